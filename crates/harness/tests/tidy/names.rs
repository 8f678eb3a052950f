//! A file, a module and a type are named for what they keep or decide.

use super::tree::{Finding, SourceFile};

/// Says nothing, alone or as a part: `utils`, `log_utils`, `LeaseManager`.
const VAGUE_ANYWHERE: &[&str] =
    &["util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"];
/// Says nothing alone; with a noun it may.
const VAGUE_ALONE: &[&str] = &["shared", "base", "core", "data", "info", "handler", "handlers"];

const CODE: &[&str] = &["rs", "ts", "js", "mjs", "py", "sh"];
const ADVICE: &str = "Say what is kept (lease table, cursor file) or decided (assignment, retry).";

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in vague_parts(file) {
        findings.push(file.finding(1, format!("`{part}` in the path says nothing"), ADVICE));
    }
    if file.has_extension(&["rs"]) {
        for (number, line) in file.lines() {
            if let Some(name) = declared(line).filter(|name| is_vague(name)) {
                findings.push(file.finding(number, format!("`{name}` says nothing"), ADVICE));
            }
        }
    }
    findings
}

fn vague_parts(file: &SourceFile) -> Vec<&str> {
    let (folders, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let mut parts: Vec<&str> = folders.split('/').filter(|folder| is_vague(folder)).collect();
    if file.has_extension(CODE) {
        let stem = name.split('.').next().unwrap_or(name);
        if is_vague(stem) || stem == "types" {
            parts.push(name);
        }
    }
    parts
}

/// The module or type that a line of Rust declares. Not `type`: a trait of others may demand it.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    if !["mod", "struct", "enum", "trait", "union"].contains(&keyword) {
        return None;
    }
    let name = words.next()?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(end.map_or(name, |end| &name[..end]))
}

fn is_vague(name: &str) -> bool {
    let words = words(name);
    let alone = words.len() == 1;
    words.iter().any(|word| {
        VAGUE_ANYWHERE.contains(&word.as_str()) || alone && VAGUE_ALONE.contains(&word.as_str())
    })
}

/// `lease_table`, `lease-table` and `LeaseTable` are the words `lease` and `table`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        let separator = letter == '_' || letter == '-';
        if separator || letter.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| !separator) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::example(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_vague_paths() {
        for path in [
            "crates/log/src/util.rs",
            "crates/log/src/utils.rs",
            "crates/log/src/helpers.rs",
            "crates/log/src/segment_manager.rs",
            "crates/log/src/types.rs",
            "crates/log/src/data.rs",
            "crates/log/src/misc.rs",
            "crates/log/src/shared.rs",
            "crates/log/src/base.rs",
            "crates/log/src/info.rs",
            "crates/log/src/handler.rs",
            "crates/core/src/lib.rs",
            "crates/log-common/src/lib.rs",
            "sdk/typescript/src/types.ts",
        ] {
            assert_eq!(found(path, ""), [1], "{path}");
        }
    }

    #[test]
    fn finds_vague_modules_and_types() {
        let text =
            "mod record;\npub(crate) mod utils;\npub struct LeaseManager<T> {\nenum Info {\n";
        assert_eq!(found("a.rs", text), [2, 3, 4]);
    }

    #[test]
    fn leaves_nouns_alone() {
        for path in ["crates/log/src/database.rs", "crates/event/src/base64.rs", "docs/data.md"] {
            assert!(found(path, "").is_empty(), "{path}");
        }
        let text = "struct SharedLog;\nuse core::fmt;\n// mod utils\nstruct Information;\n";
        assert!(found("a.rs", text).is_empty());
    }
}
