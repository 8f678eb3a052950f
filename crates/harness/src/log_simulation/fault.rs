use std::io;

use serde::Serialize;

/// A kind of call that reaches a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[expect(missing_docs, reason = "each is named after the call of the seam")]
pub enum Call {
    Create,
    Open,
    Rename,
    Remove,
    List,
    SyncDir,
    FreeBytes,
    Read,
    Write,
    SyncData,
    SetLen,
    Len,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum FaultKind {
    /// The call fails with EIO and does nothing; a sync drops what it should have kept.
    Error,
    /// The call fails with ENOSPC and does nothing. Calls that need no room are left alone.
    NoSpace,
    /// A part of the bytes is written, then EIO. Other calls are left alone.
    ShortWrite,
    /// The power goes: a part of the call may have happened; nothing answers any more.
    Crash,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Error, Self::NoSpace, Self::ShortWrite, Self::Crash];

    /// Whether a call of this kind can fail so.
    pub fn hits(self, call: Call) -> bool {
        match self {
            Self::Error | Self::Crash => true,
            Self::NoSpace => matches!(
                call,
                Call::Create | Call::Rename | Call::Write | Call::SyncData | Call::SetLen
            ),
            Self::ShortWrite => call == Call::Write,
        }
    }

    /// The error of the operating system.
    pub fn error(self) -> io::Error {
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        match self {
            Self::Error | Self::ShortWrite => io::Error::from_raw_os_error(EIO),
            Self::NoSpace => io::Error::from_raw_os_error(ENOSPC),
            Self::Crash => io::Error::other("the power is off"),
        }
    }
}

/// One fault, armed for a call that is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Which call from now on: 1 is the next. If the fault cannot hit that call, it waits for the
    /// first one after it that it can hit.
    pub at_call: u64,
    /// What happens to it.
    pub kind: FaultKind,
}

/// The armed fault and the count of calls.
#[derive(Debug, Default)]
pub(super) struct FaultPlan {
    pub(super) calls: u64,
    fault: Option<Fault>,
    fired: Option<Call>,
    pub(super) power_off: bool,
}

impl FaultPlan {
    pub(super) fn arm(&mut self, fault: Option<Fault>) {
        self.fault = fault.map(|fault| Fault { at_call: self.calls + fault.at_call, ..fault });
        self.fired = None;
    }

    /// The call that the armed fault hit, if it did.
    pub(super) fn fired(&self) -> Option<Call> {
        self.fired
    }

    /// Counts a call; the fault to apply to it, if any.
    pub(super) fn next(&mut self, call: Call) -> Option<FaultKind> {
        self.calls += 1;
        let fault = self.fault.filter(|fault| self.calls >= fault.at_call)?;
        if !fault.kind.hits(call) {
            return None;
        }
        self.fault = None;
        self.fired = Some(call);
        self.power_off = fault.kind == FaultKind::Crash;
        Some(fault.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fires_once_at_the_call_it_can_hit() {
        let mut plan = FaultPlan::default();
        plan.arm(Some(Fault { at_call: 2, kind: FaultKind::ShortWrite }));
        assert_eq!(plan.next(Call::Write), None);
        assert_eq!(plan.next(Call::Read), None);
        assert_eq!(plan.next(Call::Write), Some(FaultKind::ShortWrite));
        assert_eq!(plan.next(Call::Write), None);
        assert_eq!(plan.fired(), Some(Call::Write));
    }

    #[test]
    fn a_crash_stays() {
        let mut plan = FaultPlan::default();
        plan.arm(Some(Fault { at_call: 1, kind: FaultKind::Crash }));
        assert_eq!(plan.next(Call::Len), Some(FaultKind::Crash));
        assert!(plan.power_off);
    }
}
