//! How a report is shown, one file per format. All of them write text; none prints.

mod human;

mod json;

mod sarif;

mod github;

pub use github::github;
pub use human::{Colour, human};
pub use json::json;
pub use sarif::sarif;
