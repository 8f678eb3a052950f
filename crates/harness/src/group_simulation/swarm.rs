use promethean_delivery::{GroupOptions, Mode, Ordered, Park};

use super::Random;

/// What one seed does, and how often: every seed leaves some faults out, so that the others have
/// room to show what they do.
#[derive(Debug, Clone)]
pub(crate) struct Swarm {
    pub(crate) group: GroupOptions,
    pub(crate) lanes: u64,
    pub(crate) keys: u64,
    pub(crate) weights: [(Action, u64); 24],
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Append,
    Advance,
    AnswerFetch,
    FailFetch,
    MakeDurable,
    ReportSaved,
    Join,
    Leave,
    Silence,
    Heartbeat,
    Credit,
    Pause,
    Ack,
    AckRange,
    AckStale,
    Nack,
    ParkNow,
    Extend,
    Skip,
    Seek,
    Resolve,
    Crash,
    ClockJump,
    DropLane,
}

impl Swarm {
    pub(crate) fn new(random: &mut Random) -> Self {
        let mode = random.pick(&[Mode::Shared, Mode::Partitioned]).unwrap_or_default();
        let ordered = match random.chance(75) {
            true => Ordered::Key,
            false => Ordered::None,
        };
        let park = match ordered == Ordered::Key && random.chance(40) {
            true => Park::Key,
            false => Park::Event,
        };
        let lease_ms = 50 + random.below(400) as u32;
        let group = GroupOptions {
            mode,
            ordered,
            park,
            lease_ms,
            lease_ms_max: lease_ms * (1 + random.below(4) as u32),
            max_attempts: 1 + random.below(4) as u16,
            backoff_ms: 1 + random.below(50) as u32,
            backoff_ms_max: 100,
            window_events: 4 + random.below(60) as u32,
            horizon_events: 2 + random.below(40) as u32,
            saves_in_flight: 1 + random.below(3) as u32,
            member_ttl_ms: random.chance(70).then_some(500),
            drain_ms: 1 + random.below(300) as u32,
        };
        Self {
            group,
            lanes: 1 + random.below(4),
            keys: 1 + random.below(6),
            weights: Self::weights(random),
        }
    }

    fn weights(random: &mut Random) -> [(Action, u64); 24] {
        use Action as A;
        let mut weights = [
            (A::Append, 12),
            (A::Advance, 12),
            (A::AnswerFetch, 14),
            (A::FailFetch, 1),
            (A::MakeDurable, 14),
            (A::ReportSaved, 14),
            (A::Join, 4),
            (A::Leave, 1),
            (A::Silence, 1),
            (A::Heartbeat, 8),
            (A::Credit, 5),
            (A::Pause, 2),
            (A::Ack, 20),
            (A::AckRange, 6),
            (A::AckStale, 5),
            (A::Nack, 6),
            (A::ParkNow, 1),
            (A::Extend, 3),
            (A::Skip, 1),
            (A::Seek, 1),
            (A::Resolve, 2),
            (A::Crash, 2),
            (A::ClockJump, 1),
            (A::DropLane, 1),
        ];
        for (action, weight) in &mut weights {
            let needed = matches!(
                action,
                A::Append | A::AnswerFetch | A::MakeDurable | A::ReportSaved | A::Join
            );
            // A third of what is not needed does not happen; a sixth happens all the time.
            match random.below(6) {
                0 | 1 if !needed => *weight = 0,
                2 => *weight *= 4,
                _ => {}
            }
        }
        weights
    }

    pub(crate) fn pick(&self, random: &mut Random) -> Action {
        let sum: u64 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = random.below(sum);
        for (action, weight) in self.weights {
            if at < weight {
                return action;
            }
            at -= weight;
        }
        Action::Advance
    }
}
