//! The one integration-test binary of the linter.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it did not expect should stop there"
)]

#[path = "lint/project.rs"]
mod project;

#[path = "lint/corpus.rs"]
mod corpus;

#[path = "lint/pitfalls.rs"]
mod pitfalls;

#[path = "lint/rules.rs"]
mod rules;

#[path = "lint/settings.rs"]
mod settings;

#[path = "lint/baseline.rs"]
mod baseline;

#[path = "lint/format.rs"]
mod format;

#[path = "lint/hostile.rs"]
mod hostile;

#[path = "lint/example.rs"]
mod example;
