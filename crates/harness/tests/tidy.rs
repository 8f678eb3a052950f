//! The rules of `STYLE.md` that a program can check, as tests over the source tree.
//!
//! One module per rule. Each has a `check` that takes a file and returns findings, is run over the
//! whole tree below, and is shown on bad examples to fail. A finding names file and line, what is
//! wrong, and what to do.

mod tree;

mod size;

mod names;

mod manifest;

mod edges;

mod clock;

mod markers;

mod machine;

mod markdown;

mod protocol;

mod promises;

use tree::{Finding, SourceFile};

/// Runs a check over every file and fails with all that it found.
fn passes(check: impl Fn(&SourceFile) -> Vec<Finding>) {
    let files = tree::read();
    assert!(files.len() > 20, "the source tree was not found: {} files", files.len());
    let findings: Vec<String> =
        files.iter().flat_map(check).map(|finding| finding.to_string()).collect();
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn files_are_small() {
    passes(size::check);
}

#[test]
fn names_say_something() {
    passes(names::check);
}

#[test]
fn crates_inherit_the_lints() {
    passes(manifest::check);
}

#[test]
fn crates_use_only_what_they_may() {
    passes(edges::check);
}

#[test]
fn time_comes_from_a_clock() {
    passes(clock::check);
}

#[test]
fn nothing_is_left_for_later() {
    passes(markers::check);
}

#[test]
fn nothing_names_a_machine() {
    passes(machine::check);
}

#[test]
fn documents_have_a_title_and_working_links() {
    let root = tree::root();
    passes(|file| markdown::check(file, &|path| root.join(path).exists()));
}

#[test]
fn promises_name_tests_that_are_there() {
    let findings = promises::check(&tree::read());
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn the_wire_is_the_one_that_is_described() {
    let mut files = tree::read();
    if std::env::var_os("PROM_UPDATE_DOCS").is_some()
        && let Some(text) = protocol::corrected(&files)
    {
        std::fs::write(tree::root().join("PROTOCOL.md"), text).unwrap();
        files = tree::read();
    }
    let findings: Vec<String> = protocol::check(&files).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
