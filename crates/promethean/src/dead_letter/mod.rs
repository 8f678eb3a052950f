//! Dead letters: what they look like, which there are, and what can become of them.

mod letter;

mod listing;

mod release;

pub use letter::DeadLetterEntry;
pub(crate) use letter::{DeadEvent, REPLAY_FOR, REPLAY_ROUND};
pub use listing::{DeadLetterError, DeadLetterPage};
pub use promethean_event::{DeadLetter, DeadLetterQuery, DeadLetterState, ReplayTo};
pub use release::{ReplayDeadLetters, ReplayReport, Unreplayed};
