/// Mistakes that a group can be told to make, so that a simulator can prove it would notice.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// The cursor is wherever the last ack was (pitfall 1).
    CursorIsLastAck,
    /// Attempts are counted in memory only (pitfall 106).
    AttemptsInMemory,
    /// A dead letter is written apart from the group's advance (pitfall 107).
    DeadLetterApart,
    /// Stale tokens are taken, as if the client could be trusted to drop them (pitfall 82).
    FenceInClient,
    /// A lane gets a new owner without waiting for the old one (pitfall 82).
    TwoOwners,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::CursorIsLastAck,
        Self::AttemptsInMemory,
        Self::DeadLetterApart,
        Self::FenceInClient,
        Self::TwoOwners,
    ];
}

impl crate::Group {
    /// Makes the group wrong.
    #[doc(hidden)]
    pub fn plant(&mut self, bug: PlantedBug) {
        self.planted = Some(bug);
    }

    pub(crate) fn is_planted(&self, bug: PlantedBug) -> bool {
        self.planted == Some(bug)
    }

    /// Takes everything below `offset` for done.
    pub(crate) fn finish_below(&mut self, at: crate::lane_table::LaneRef, offset: u64) {
        let Some(floor) = self.lanes.get(at).map(|lane| lane.floor) else {
            return;
        };
        for below in floor..offset {
            self.finish_any(at, below);
        }
    }
}
