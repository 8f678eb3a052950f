//! A Rust file has at most 600 lines, without its `#[cfg(test)] mod tests`. Functions are measured
//! by clippy (`clippy.toml`).

use super::tree::{Finding, SourceFile};

const LINES_MAX: usize = 600;

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    if !file.has_extension(&["rs"]) {
        return Vec::new();
    }
    let lines = lines_without_tests(&file.text);
    if lines <= LINES_MAX {
        return Vec::new();
    }
    vec![file.finding(
        LINES_MAX + 1,
        format!("{lines} lines without its tests; the limit is {LINES_MAX}"),
        "Split the file by what is kept or what is decided; aim below 300.",
    )]
}

fn lines_without_tests(text: &str) -> usize {
    let mut lines = text.lines().peekable();
    let mut counted = 0;
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let opens = |next: &&&str| next.trim_start().starts_with("mod tests {");
        if line.trim() == "#[cfg(test)]" && lines.peek().filter(opens).is_some() {
            // rustfmt closes the module at the indentation of its attribute.
            let end = format!("{}}}", &line[..indent]);
            for skipped in lines.by_ref() {
                if skipped == end {
                    break;
                }
            }
        } else {
            counted += 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> String {
        "// line\n".repeat(count)
    }

    #[test]
    fn finds_a_long_file() {
        assert!(check(&SourceFile::example("a.rs", &lines(600))).is_empty());
        let findings = check(&SourceFile::example("a.rs", &lines(601)));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.starts_with("601 lines"), "{findings:?}");
        assert!(check(&SourceFile::example("a.md", &lines(601))).is_empty());
    }

    #[test]
    fn tests_do_not_count_and_what_follows_them_does() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(900));
        let text = format!("{}{tests}", lines(600));
        assert!(check(&SourceFile::example("a.rs", &text)).is_empty());
        let text = format!("{}{tests}{}", lines(300), lines(301));
        assert_eq!(check(&SourceFile::example("a.rs", &text)).len(), 1);
    }

    #[test]
    fn another_test_item_counts() {
        let text = format!("#[cfg(test)]\nfn example() {{\n{}}}\n", lines(600));
        assert_eq!(check(&SourceFile::example("a.rs", &text)).len(), 1);
    }
}
