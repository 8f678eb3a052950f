//! Nothing is left for later: no notes to do something, no holes, no tests that do not run.

use super::tree::{Finding, SourceFile};

const MARKERS: &[(&str, &str)] = &[
    ("todo!(", "Write it, or return an error that says that it is not supported."),
    ("unimplemented!(", "Write it, or return an error that says that it is not supported."),
    ("#[ignore", "Run the test, make it cheaper, or delete it."),
];
const NOTES: &[&str] = &["TODO", "FIXME", "XXX"];

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    if file.is_tidy_itself() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        if file.has_extension(&["rs"]) {
            for (marker, advice) in MARKERS.iter().filter(|(marker, _)| line.contains(marker)) {
                findings.push(file.finding(number, format!("`{marker}` is unfinished"), advice));
            }
        }
        let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        if let Some(note) = words.find(|word| NOTES.contains(word)) {
            let advice = "Do it now, or open an issue and say here what holds today.";
            findings.push(file.finding(number, format!("a note `{note}`"), advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::example(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_what_is_unfinished() {
        let text = "todo!(\"later\")\nunimplemented!()\n#[ignore]\n#[ignore = \"slow\"]\n\
                    // TODO: more\n/* FIXME */\n// XXX\n";
        assert_eq!(found("a.rs", text), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(found("README.md", "Fine.\n\nTODO\n"), [3]);
    }

    #[test]
    fn words_that_contain_one_pass() {
        let text = "const TODOS: u8 = 1;\n// Unix mktemp: XXXXXX\nlet todo = list();\n";
        assert!(found("a.rs", text).is_empty());
    }
}
