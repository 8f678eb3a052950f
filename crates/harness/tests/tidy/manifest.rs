//! Every crate inherits the lints of the workspace. Also reads the little of a manifest that the
//! checks need.

use super::tree::{Finding, SourceFile};

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    if file.manifest_of().is_none() {
        return Vec::new();
    }
    let inherits = entries(file)
        .any(|entry| entry.table == "lints" && entry.key == "workspace" && entry.value == "true");
    if inherits {
        return Vec::new();
    }
    vec![file.finding(
        1,
        "the lints of the workspace do not apply to this crate",
        "Add `[lints]` with `workspace = true`.",
    )]
}

/// One `key = value` of a manifest.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) line: usize,
    /// The table it stands in, e.g. `dev-dependencies`.
    pub(super) table: &'a str,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

/// The entries of a manifest, in order. Reads line by line, so values that go over several lines
/// are not seen; a dependency is written on one.
pub(super) fn entries(file: &SourceFile) -> impl Iterator<Item = Entry<'_>> {
    let mut table = "";
    file.lines().filter_map(move |(line, text)| {
        let text = text.split(" #").next().unwrap_or(text).trim();
        if text.starts_with('#') {
            return None;
        }
        if let Some(header) = text.strip_prefix('[') {
            table = header.trim_matches(['[', ']']);
            return None;
        }
        let (key, value) = text.split_once('=')?;
        Some(Entry { line, table, key: key.trim(), value: value.trim() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(&SourceFile::example("crates/log/Cargo.toml", text)).len()
    }

    #[test]
    fn finds_a_crate_without_lints() {
        assert_eq!(found("[package]\nname = \"promethean-log\"\n"), 1);
        assert_eq!(found("[lints]\nworkspace = false\n"), 1);
        assert_eq!(found("[dependencies]\nworkspace = true\n"), 1);
        assert_eq!(found("[package]\n\n[lints]\nworkspace = true # all\n"), 0);
    }

    #[test]
    fn other_files_are_not_crates() {
        assert!(check(&SourceFile::example("Cargo.toml", "[workspace]\n")).is_empty());
        assert!(check(&SourceFile::example("fuzz/Cargo.toml", "[package]\n")).is_empty());
    }
}
