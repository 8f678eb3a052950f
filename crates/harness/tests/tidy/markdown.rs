//! A document has one title, and its relative links lead somewhere.

use super::tree::{Finding, SourceFile};

/// `exists` is asked with paths from the root of the repository.
pub(super) fn check(file: &SourceFile, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    if !file.has_extension(&["md"]) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut titles = 0;
    for (number, line) in prose(file) {
        if line.starts_with("# ") {
            titles += 1;
            if titles == 2 {
                let advice = "One title per document: make this a section (`##`).";
                findings.push(file.finding(number, "a second top-level title", advice));
            }
        }
        for target in links(&line) {
            if !leads_somewhere(file, target, exists) {
                let advice = "Links are relative to the document; mend or remove it.";
                findings.push(file.finding(number, format!("broken link `{target}`"), advice));
            }
        }
    }
    if titles == 0 {
        findings.push(file.finding(1, "no top-level title", "Begin with a line `# Title`."));
    }
    findings
}

/// The lines outside code blocks, with inline code blanked.
fn prose(file: &SourceFile) -> impl Iterator<Item = (usize, String)> {
    let mut fence: Option<&str> = None;
    file.lines().filter_map(move |(number, line)| {
        let marker = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, marker) {
            (None, Some(opened)) => fence = Some(opened),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some((number, without_code(line))),
            _ => {}
        }
        None
    })
}

fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.filter(|(index, _)| index % 2 == 0).map(|(_, part)| part).collect::<Vec<_>>().join("``")
}

/// The targets of `[text](target)` and `[name]: target`.
fn links(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut rest = line;
    while let Some((_, after)) = rest.split_once("](") {
        let (target, next) = after.split_once(')').unwrap_or((after, ""));
        targets.push(target);
        rest = next;
    }
    if line.starts_with('[') {
        targets.extend(line.split_once("]: ").map(|(_, target)| target));
    }
    // A title may follow: `(target "title")`.
    targets.into_iter().filter_map(|target| target.split_whitespace().next()).collect()
}

fn leads_somewhere(file: &SourceFile, target: &str, exists: &dyn Fn(&str) -> bool) -> bool {
    let target = target.split('#').next().unwrap_or(target);
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let mut path: Vec<&str> = file.path.split('/').collect();
    path.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if path.pop().is_none() {
                    return false;
                }
            }
            part => path.push(part),
        }
    }
    exists(&path.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let exists = |path: &str| path == "docs/there.md" || path == "README.md";
        let file = SourceFile::example("docs/a.md", text);
        let findings = check(&file, &exists);
        findings.iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn finds_missing_and_second_titles() {
        assert_eq!(found("Text.\n\n## Section\n"), ["1: no top-level title"]);
        assert_eq!(found("# One\n\n# Two\n\n# Three\n"), ["3: a second top-level title"]);
        assert!(found("# One\n\n```sh\n# a comment\n```\n~~~\n# more\n```\n~~~\n").is_empty());
    }

    #[test]
    fn finds_broken_links() {
        let broken = found("# A\n[x](gone.md) and [y](../gone.md#part)\n[z]: gone.md\n");
        let expected = [
            "2: broken link `gone.md`",
            "2: broken link `../gone.md#part`",
            "3: broken link `gone.md`",
        ];
        assert_eq!(broken, expected);
        assert_eq!(found("# A\n[x](../../out.md)\n").len(), 1);
    }

    #[test]
    fn working_links_pass() {
        let text = "# A\n[x](there.md#part \"title\") [y](../README.md) [z](#here) \
                    [w](https://example.org/gone.md) `[v](gone.md)`\n[m]: mailto:a@example.org\n";
        assert!(found(text).is_empty());
    }
}
