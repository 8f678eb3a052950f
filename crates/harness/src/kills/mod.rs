//! A process with a bus in it that is killed again and again, with SIGKILL, under load.
//!
//! The process writes down what it does (`history`), before it relies on it; a file that is only
//! appended to survives the kill of its writer. Afterwards somebody who knows nothing of the bus
//! (`checker`) goes through the history.

mod checker;

mod child;

mod history;

mod parent;

pub use checker::{Verdict, check};
pub use child::run as run_child;
pub(crate) use history::Writer;
pub use history::{Line, read};
pub use parent::{KillOptions, Report, run};
