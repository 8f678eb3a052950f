use crate::input::Found;

/// Where an event stands between fetch and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Never delivered; the walk over the window will meet it.
    Fresh,
    /// In the ready queue.
    Ready,
    /// Behind an earlier event of its key.
    Waiting,
    /// Its next attempt is being made durable.
    Recording,
    /// With a member.
    Out,
    /// Waits for the time of its next attempt.
    Backoff,
    /// Acked, skipped, dead-lettered, or never there.
    Done,
}

/// One fetched event. 40 bytes: the window is an array of them, indexed by offset - floor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    /// Hash of the key, if `keyed`.
    pub(crate) key: u64,
    /// End of the lease while out; time of the next attempt while in backoff.
    pub(crate) deadline: u64,
    /// Distance to the next event of the same key that waits; 0 if there is none.
    pub(crate) next: u32,
    /// Who has it while out.
    pub(crate) member: u32,
    /// Length of the lease so far, so that `deadline - lease_ms` is when it was delivered.
    pub(crate) lease_ms: u32,
    /// Size, counted against the member's bytes.
    pub(crate) bytes: u32,
    /// Deliveries counted so far.
    pub(crate) attempt: u16,
    /// Releases from the dead letters.
    pub(crate) round: u16,
    pub(crate) standing: Standing,
    pub(crate) keyed: bool,
    /// The attempt that comes next is durable already.
    pub(crate) recorded: bool,
}

const _: () = assert!(size_of::<Slot>() <= 40);

impl Slot {
    pub(crate) const fn new(standing: Standing) -> Self {
        Self {
            key: 0,
            deadline: 0,
            next: 0,
            member: 0,
            lease_ms: 0,
            bytes: 0,
            attempt: 0,
            round: 0,
            standing,
            keyed: false,
            recorded: false,
        }
    }

    pub(crate) const fn with_key(mut self, key: Option<u64>) -> Self {
        if let Some(key) = key {
            self.key = key;
            self.keyed = true;
        }
        self
    }

    /// With what is known of an event.
    pub(crate) const fn of(mut self, event: &Found) -> Self {
        self.bytes = event.bytes;
        self.with_key(event.key)
    }

    pub(crate) fn key(&self) -> Option<u64> {
        self.keyed.then_some(self.key)
    }
}
