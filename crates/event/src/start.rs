use crate::{EventId, Timestamp};

/// Where a group begins in a partition that it has not read before. One that it has read goes on
/// where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// With what is published from now on.
    #[default]
    Latest,
    /// With the oldest event that is kept.
    Earliest,
    /// With the first event that the store took at or after a time.
    At(Timestamp),
    /// With what came after an event: after it in its own partition, after its time in others.
    AfterId(EventId),
}
