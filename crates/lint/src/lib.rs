//! Reads source code for the topics and headers that it uses, and judges them: `prom lint`.
//!
//! A crate of its own because the grammars are heavy to build; nothing but `prom` uses it. It needs
//! no server, does not print, and does not read the environment.
//!
//! ```
//! use promethean_lint::{Catalogue, Request, Settings, Severity, lint};
//!
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("hub.ts"), "bus.publish('Bad Topic', {})")?;
//! let root = folder.path();
//! let (settings, catalogue) = (Settings::default(), Catalogue::default());
//! let report =
//!     lint(&Request { root, settings: &settings, catalogue: &catalogue, paths: None })?;
//! assert_eq!(report.findings[0].name, "topic-name");
//! assert!(report.fails(Severity::Error));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The way of a file: `files` lists it, `language` parses it and lowers its syntax tree to
//! language-neutral `facts`, `resolve` finds the texts that arguments stand for, over imports
//! (`modules`), `sites` and `headers` are what calls name, `rules` judge, [`mod@format`] shows.

mod settings;

mod catalogue;

mod files;

mod language;

mod facts;

mod source;

mod modules;

mod resolve;

mod sites;

mod callers;

mod headers;

mod rules;

mod finding;

mod run;

mod report;

mod baseline;

pub mod format;

pub mod limits;

pub use baseline::{Baseline, BaselineError};
pub use catalogue::{Catalogue, Manifest, SchemaDirectoryError, TopicEntry};
pub use finding::{Excerpt, Finding, Severity};
pub use language::Language;
pub use report::{Counts, Report, Site};
pub use rules::{RuleDescription, explain, rules};
pub use run::{LintError, Request, lint};
pub use settings::{CallKind, CallRule, Level, Settings, SettingsError, TOPIC_PATTERN};
