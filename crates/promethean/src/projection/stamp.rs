//! Which of two writes to a key stands. Pure, and the same for what waits in memory and for what
//! is in the database.

use promethean_event::{Offset, Payload};

use crate::store::{Lane, Stored};

/// Where a write comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Event time, epoch milliseconds.
    pub ts: u64,
    /// When the store took the event, epoch milliseconds.
    pub at: u64,
    /// The partition of the event.
    pub lane: Lane,
    /// Its place there.
    pub offset: Offset,
    /// The version of the document, in a view with versions.
    pub version: Option<i64>,
}

impl Stamp {
    pub(crate) fn of(stored: &Stored, lane: Lane, version: Option<i64>) -> Self {
        Self {
            ts: stored.event.ts.millis(),
            at: stored.appended_at.millis(),
            lane,
            offset: stored.event.offset,
            version,
        }
    }

    /// The same order whatever order the partitions are read in.
    const fn rank(&self) -> (u64, u64, u64) {
        (self.at, self.lane.id().get(), self.offset.get())
    }
}

/// What happens to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// It has this document.
    Put(Stamp, Payload),
    /// It has none any more.
    Delete(Stamp),
}

impl Write {
    /// Where it comes from.
    pub const fn stamp(&self) -> &Stamp {
        match self {
            Self::Put(stamp, _) | Self::Delete(stamp) => stamp,
        }
    }

    /// The same with another version.
    fn with_version(mut self, version: Option<i64>) -> Self {
        match &mut self {
            Self::Put(stamp, _) | Self::Delete(stamp) => stamp.version = version,
        }
        self
    }
}

/// By what writes to a key are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they come: the projection sees what it wrote.
    Sequence,
    /// By offset: a key is in one partition.
    Offset,
    /// By append time, then partition, then offset: a key may come from several partitions.
    Rank,
    /// By version; what is not newer is stale. Of writes with the same version the first in rank
    /// stands. A deletion without a version deletes whatever came before it.
    Version,
}

impl Order {
    /// Whether deletions have to be remembered.
    pub const fn has_graves(self) -> bool {
        matches!(self, Self::Rank | Self::Version)
    }

    /// Whether `new` replaces `old`.
    pub fn accepts(self, new: &Stamp, old: &Stamp) -> bool {
        match self {
            Self::Sequence => true,
            Self::Offset => new.lane != old.lane || new.offset > old.offset,
            Self::Rank => new.rank() > old.rank(),
            Self::Version => match (new.version, old.version) {
                (Some(new_version), Some(old_version)) => {
                    new_version > old_version
                        || new_version == old_version && new.rank() < old.rank()
                }
                _ => new.rank() > old.rank(),
            },
        }
    }

    /// What stands when `new` comes after `old`, or `None` if `new` is stale.
    pub fn after(self, new: Write, old: &Stamp) -> Option<Write> {
        if !self.accepts(new.stamp(), old) {
            return None;
        }
        // A deletion without a version keeps the version of what it deleted: what is older than
        // that stays stale.
        let version = match (&new, self) {
            (Write::Delete(stamp), Self::Version) => stamp.version.or(old.version),
            _ => new.stamp().version,
        };
        Some(new.with_version(version))
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::Partition;

    use super::*;
    use crate::store::TopicId;

    fn stamp(at: u64, partition: u32, offset: u64, version: Option<i64>) -> Stamp {
        let lane = Lane { topic: TopicId::new(1), partition: Partition::new(partition) };
        Stamp { ts: 0, at, lane, offset: Offset::new(offset), version }
    }

    /// Pitfalls 130 and 131: an older version is a stale write, not an error, and deletes count.
    #[test]
    fn an_older_version_never_stands() {
        let (old, new) = (stamp(5, 0, 5, Some(7)), stamp(6, 0, 6, Some(6)));
        assert!(!Order::Version.accepts(&new, &old));
        assert!(!Order::Version.accepts(&stamp(6, 0, 6, Some(7)), &old));
        assert!(Order::Version.accepts(&stamp(6, 0, 6, Some(8)), &old));
        let deletion = Order::Version.after(Write::Delete(stamp(6, 0, 6, None)), &old).unwrap();
        assert_eq!(deletion.stamp().version, Some(7));
        assert!(!Order::Version.accepts(&stamp(7, 0, 7, Some(7)), deletion.stamp()));
    }

    /// Pitfall 133: not the last to arrive, but the last in position.
    #[test]
    fn partitions_may_be_read_in_any_order() {
        let (a, b) = (stamp(5, 0, 90, None), stamp(5, 1, 2, None));
        assert!(Order::Rank.accepts(&b, &a) && !Order::Rank.accepts(&a, &b));
        let (a, b) = (stamp(5, 0, 90, Some(1)), stamp(5, 1, 2, Some(1)));
        assert!(!Order::Version.accepts(&b, &a) && Order::Version.accepts(&a, &b));
    }
}
