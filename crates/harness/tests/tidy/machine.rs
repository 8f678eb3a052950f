//! The tree builds anywhere: no path of one machine, no host of a package registry. Packages are
//! fetched by name, and where from is for the machine's own configuration to say.

use super::tree::{Finding, SourceFile};

/// Where people have their files. The place of this tree itself comes on top.
const HOMES: &[&str] = &["/root/", "/home/", "/Users/"];

const REGISTRIES: &[&str] = &[
    "index.crates.io",
    "static.crates.io",
    "sparse+http",
    "replace-with",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "pypi.org",
    "pythonhosted.org",
    "index-url",
    "find-links",
];

/// The registry that Cargo writes into the lock file when nothing else is configured.
const LOCKED_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    if file.is_tidy_itself() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let here = own_place();
    for (number, line) in file.lines() {
        let paths = HOMES.iter().copied().chain(here.as_deref());
        for path in paths.filter(|path| names_path(line, path)) {
            findings.push(file.finding(
                number,
                format!("`{path}` is a path of one machine"),
                "Write it relative to the repository, or take it as a parameter.",
            ));
        }
        for registry in REGISTRIES.iter().filter(|registry| line.contains(**registry)) {
            findings.push(file.finding(
                number,
                format!("`{registry}` says where packages come from"),
                "Name the package only; for npm, lock with `omit-lockfile-registry-resolved`.",
            ));
        }
        let is_lock = file.path.ends_with("Cargo.lock");
        if is_lock && line.starts_with("source = ") && line != LOCKED_SOURCE {
            findings.push(file.finding(
                number,
                "a package from elsewhere than the default registry",
                "Use a released version, and lock without source replacement.",
            ));
        }
    }
    findings
}

/// Where this tree stands, unless others may well have such a directory too.
fn own_place() -> Option<String> {
    let root = super::tree::root();
    let is_telling = root.components().count() > 2;
    is_telling.then(|| root.to_str().map(str::to_owned)).flatten()
}

/// Whether an absolute path begins here, rather than the middle of a longer one.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "_-.*}~".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::example(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn finds_paths_of_a_machine() {
        let text = "let a = \"/root/x\";\nfile:///home/me/a\n(/Users/me)\n";
        assert_eq!(found("docs/a.md", text), [1, 2, 3]);
    }

    #[test]
    fn finds_the_place_of_this_tree() {
        let place = own_place().unwrap_or_else(|| HOMES[0].to_owned());
        assert_eq!(found("docs/a.md", &format!("a\ncd {place}/b\n")), [2]);
    }

    #[test]
    fn relative_paths_and_addresses_pass() {
        let text = "./home/a\nsrc/home/page.rs\nhttps://example.org/home/\n${dir}/root/a\n";
        assert!(found("docs/a.md", text).is_empty());
    }

    #[test]
    fn finds_registries() {
        let text = "registry = \"sparse+https://example.org/\"\n\
                    \"resolved\": \"https://registry.npmjs.org/a.tgz\"\npip --index-url x\n";
        assert_eq!(found("a.toml", text), [1, 2, 3]);
        let text = format!("{LOCKED_SOURCE}\nsource = \"git+https://example.org/a\"\n");
        assert_eq!(found("Cargo.lock", &text), [2]);
    }
}
