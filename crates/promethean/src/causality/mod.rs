//! Which event gave rise to which: `caused_by` up, and an index of it down.
//!
//! The index is an SQLite file that follows the log from cursors of its own, which change in the
//! same transaction: after a crash it goes on where it was, and without the file it is made anew.

mod index;

mod trace;

pub use index::{CausalityError, Causes, EffectRef, FollowingCauses};
pub use trace::{Trace, TraceNode, TraceWish};
