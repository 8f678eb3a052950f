use promethean::projection::ViewError;
use promethean::store::ReadError;
use promethean::{GroupError, GroupLag};
use promethean_event::GroupName;

/// Why a bus does not come to rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unsettled {
    /// Nobody handles what is there.
    #[error("group {group} has {events} events to handle and no member; subscribe to it first")]
    NoMember {
        /// The group.
        group: GroupName,
        /// What it has not finished.
        events: u64,
    },
    /// Something goes on and on.
    #[error(
        "group {group} still has {events} events to handle, {out} of them out, and it does not end; \
         is there a consumer that holds one for ever, or that publishes what it consumes?"
    )]
    Restless {
        /// The group.
        group: GroupName,
        /// What it has not finished.
        events: u64,
        /// What its members hold.
        out: u64,
    },
    /// A projection does not get to where its topics end.
    #[error("projection {0} does not catch up with its topics; does it wait for something?")]
    Behind(String),
    /// A projection has failed, or was stopped.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A group cannot be looked at.
    #[error(transparent)]
    Group(#[from] GroupError),
}

impl Unsettled {
    pub(crate) fn restless(lag: &GroupLag) -> Self {
        Self::Restless {
            group: lag.group.clone(),
            events: lag.events(),
            out: lag.partitions.iter().map(|part| part.out).sum(),
        }
    }
}
