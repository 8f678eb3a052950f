use promethean_delivery::{Ack, Delivery, LaneId, Run, Span, Token};

/// Acks of deliveries, those that came for the first time put together to ranges: a group decides
/// a range at once.
#[derive(Debug, Default)]
pub(super) struct AckRanges {
    items: Vec<Ack>,
    events: usize,
}

impl AckRanges {
    /// Adds an event; gives how many there are.
    pub(super) fn add(&mut self, token: Token) -> usize {
        self.events += 1;
        let Token { lane, offset, epoch, attempt, round } = token;
        if (attempt, round) != (1, 0) {
            self.items.push(Ack::Token(token));
            return self.events;
        }
        self.add_first((lane, epoch), Span { from: offset, to: offset + 1 });
        self.events
    }

    /// Adds events that were delivered together.
    pub(super) fn add_run(&mut self, (lane, epoch): (LaneId, u32), run: Run) {
        if (run.attempt, run.round) == (1, 0) {
            self.events += run.count() as usize;
            self.add_first((lane, epoch), Span { from: run.from, to: run.to });
            return;
        }
        for Delivery { offset, attempt, round } in run.events() {
            self.add(Token { lane, offset, epoch, attempt, round });
        }
    }

    fn add_first(&mut self, (lane, epoch): (LaneId, u32), more: Span) {
        match self.items.last_mut() {
            Some(Ack::FirstAttempts { lane: of, epoch: at, span })
                if (*of, *at, span.to) == (lane, epoch, more.from) =>
            {
                span.to = more.to;
            }
            _ => self.items.push(Ack::FirstAttempts { lane, epoch, span: more }),
        }
    }

    /// All of them; none are left.
    pub(super) fn take(&mut self) -> Vec<Ack> {
        self.events = 0;
        std::mem::take(&mut self.items)
    }
}
