use promethean_delivery::Token;

use super::ack_ranges::AckRanges;
use super::consumer::Desk;
use super::times::HandlerTimes;
use crate::clock::Stopwatch;

/// Acks that are held back for company while handlers do not wait.
const QUIET_ACKS_MAX: usize = 256;

/// What a worker carries from event to event.
pub(super) struct Pace {
    /// The time, as of the last handler that took any.
    pub(super) now_ms: u64,
    /// Acks of handlers that did not wait, held back for company.
    acks: AckRanges,
    pub(super) times: HandlerTimes,
}

impl Pace {
    pub(super) fn new(desk: &Desk) -> Self {
        let mut pace = Self { now_ms: 0, acks: AckRanges::default(), times: HandlerTimes::new() };
        pace.begin(desk);
        pace
    }

    /// Looks at the clock, after a time without work.
    pub(super) fn begin(&mut self, desk: &Desk) {
        let watch = Stopwatch::start();
        self.now_ms = desk.clock.ms_at(watch);
        self.times.begin(desk.is_metered.then_some(watch));
    }

    pub(super) fn flush(&mut self, desk: &Desk) {
        self.times.flush(desk.seat.meters());
        self.post_acks(desk);
    }

    fn post_acks(&mut self, desk: &Desk) {
        let acks = self.acks.take();
        if !acks.is_empty() {
            desk.seat.ack_quietly(acks);
        }
    }

    pub(super) fn add_ack(&mut self, desk: &Desk, token: Token) {
        if self.acks.add(token) >= QUIET_ACKS_MAX {
            self.times.flush(desk.seat.meters());
            self.post_acks(desk);
            self.now_ms = desk.clock.now_ms();
        }
    }
}
