//! Dead letters: what they look like, which there are, and what can become of them.

mod letter;

mod listing;

mod release;

pub(crate) use letter::{DeadEvent, REPLAY_FOR};
pub use letter::{DeadLetter, DeadLetterEntry, DeadLetterState};
pub use listing::{DeadLetterError, DeadLetterQuery};
pub use release::{ReplayDeadLetters, ReplayReport, ReplayTo, Unreplayed};
