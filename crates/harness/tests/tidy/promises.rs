//! What `docs/guarantees.md` names as holding a promise is there: a test, or a suite of them.

use super::tree::{Finding, SourceFile};

const DOCUMENT: &str = "docs/guarantees.md";

pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let documents = files.iter().filter(|file| file.path == DOCUMENT);
    let mut findings = Vec::new();
    for document in documents {
        for (number, line) in document.lines() {
            for name in line.split('`').skip(1).step_by(2).filter(|name| name.contains("::")) {
                if !is_there(name, files) {
                    let advice = "Name a test as `cargo nextest list` shows it, or its module.";
                    findings.push(document.finding(number, format!("no test `{name}`"), advice));
                }
            }
        }
    }
    findings
}

/// Whether the last part that says something is a test or a module: `*` stands for all of a module,
/// or for the rest of a name.
fn is_there(name: &str, files: &[SourceFile]) -> bool {
    let mut parts = name.rsplit("::").skip_while(|part| *part == "*");
    let Some(last) = parts.next() else {
        return false;
    };
    let rust = files.iter().filter(|file| file.has_extension(&["rs"]));
    let mut rust = rust.filter(|file| file.path.starts_with("crates/"));
    match last.strip_suffix('*') {
        Some(begin) => rust.any(|file| file.text.contains(&format!("fn {begin}"))),
        None => {
            let function = format!("fn {last}(");
            let module = [format!("mod {last};"), format!("mod {last} {{")];
            rust.any(|file| {
                file.text.contains(&function)
                    || module.iter().any(|module| file.text.contains(module))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_there_are_found() {
        let tests = "mod kills;\nfn two_hundred_kills() {}\nfn a_tail_ends() {}\n";
        let promise = |held: &str| {
            let text = format!("# A\n| it holds | {held} |\n");
            let files = [
                SourceFile::example("crates/a/tests/main.rs", tests),
                SourceFile::example(DOCUMENT, &text),
            ];
            check(&files).len()
        };
        assert_eq!(promise("`kills::*`, `kills::two_hundred_kills`, `x::a_tail_*`"), 0);
        assert_eq!(promise("`kills::three_hundred_kills`"), 1);
        assert_eq!(promise("`gone::*`, `x::b_tail_*`"), 2);
        assert_eq!(promise("`prom-kill --kills 1`"), 0, "a command");
    }
}
