//! Time is a parameter. A wall clock, a stop watch or a sleep that a simulator cannot own may
//! stand only where the table says, with the reason.

use super::tree::{Finding, SourceFile};

const CALLS: &[&str] = &["SystemTime::now", "Instant::now", "thread::sleep"];

/// Where real time may be read: paths, `*` for one part, a `/` at the end for all below.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/*/src/clock.rs", "the real implementation of a clock"),
    ("crates/*/benches/", "measures"),
    ("crates/harness/", "measures, and drives real processes"),
    ("crates/testing/tests/", "the clock that the harness owns"),
    ("crates/prom/src/command/bench/", "measures"),
    ("crates/prom/src/command/bench.rs", "measures"),
];

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.has_extension(&["rs"]) || ALLOWED.iter().any(|(path, _)| covers(path, &file.path)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        let code = line.split("//").next().unwrap_or(line);
        for call in CALLS.iter().filter(|call| code.contains(**call)) {
            findings.push(file.finding(
                number,
                format!("`{call}` takes time from the machine"),
                "Take the time, or a clock, as a parameter; wait for an event, not for a while.",
            ));
        }
    }
    findings
}

fn covers(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        match (wanted, parts.next()) {
            ("", Some(_)) => return true,
            (_, None) => return false,
            (wanted, Some(part)) if wanted != "*" && wanted != part => return false,
            _ => {}
        }
    }
    parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::example(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_calls() {
        let text = "let a = SystemTime::now();\nlet b = std::time::Instant::now();\n\
                    std::thread::sleep(pause);\nlet f = Instant::now;\n";
        assert_eq!(found("crates/log/src/writer.rs", text), [1, 2, 3, 4]);
    }

    #[test]
    fn comments_and_allowed_files_pass() {
        assert!(found("crates/log/src/writer.rs", "// not Instant::now(): a clock\n").is_empty());
        let text = "SystemTime::now()";
        assert!(found("crates/log/src/clock.rs", text).is_empty());
        assert!(found("crates/log/benches/deep/append.rs", text).is_empty());
        assert_eq!(found("crates/log/src/deep/clock.rs", text), [1]);
        assert_eq!(found("crates/log/src/clock.rs/no.rs", text), [1]);
    }
}
