//! The files under the root of the repository, and what a check says about one of them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// One text file.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// From the root of the repository, with `/` between the parts.
    pub(super) path: String,
    pub(super) text: String,
}

impl SourceFile {
    /// A file for a test of a check.
    pub(super) fn example(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(super) fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    }

    /// Lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The crate folder that this is the manifest of, e.g. `log`.
    pub(super) fn manifest_of(&self) -> Option<&str> {
        let folder = self.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
        (!folder.contains('/')).then_some(folder)
    }

    /// Whether this file is part of the tidy test, which is full of bad examples.
    pub(super) fn is_tidy_itself(&self) -> bool {
        self.path.starts_with("crates/harness/tests/tidy/")
    }

    pub(super) fn finding(&self, line: usize, what: impl Into<String>, advice: &str) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into(), advice: advice.to_owned() }
    }
}

/// One violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) what: String,
    pub(super) advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}\n    {}", self.path, self.line, self.what, self.advice)
    }
}

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// Every text file that git does not ignore. Asks the directory rather than git, so that it works
/// in an unpacked archive and sees files that are not added yet.
pub(super) fn read() -> Vec<SourceFile> {
    let root = root();
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let ignored = Ignored::parse(&ignored).unwrap_or_else(|line| {
        panic!(".gitignore: the tidy test cannot read `{line}`; use a name or `*.extension`")
    });
    let mut files = Vec::new();
    collect(&root, "", &ignored, &mut files);
    files.sort_by(|left, right| left.path.cmp(&right.path));
    files
}

fn collect(folder: &Path, prefix: &str, ignored: &Ignored, files: &mut Vec<SourceFile>) {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("in {}: {error}", folder.display()));
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if ignored.covers(&path, &name) {
            continue;
        }
        let kind = entry.file_type().unwrap_or_else(|error| panic!("{path}: {error}"));
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), ignored, files);
        } else if kind.is_file() {
            // A temporary file may be gone by now, and what is not text is not ours to read.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                files.push(SourceFile { path, text });
            }
        }
    }
}

/// The little of `.gitignore` that this repository uses.
#[derive(Debug, Default)]
struct Ignored {
    at_root: Vec<String>,
    anywhere: Vec<String>,
    endings: Vec<String>,
}

impl Ignored {
    /// Fails with the line that it does not understand.
    fn parse(text: &str) -> Result<Self, String> {
        let mut ignored = Self { anywhere: vec![".git".to_owned()], ..Self::default() };
        for line in text.lines().map(str::trim_end) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let name = line.strip_suffix('/').unwrap_or(line);
            let (list, name) = if let Some(ending) = name.strip_prefix('*') {
                (&mut ignored.endings, ending)
            } else if let Some(path) = name.strip_prefix('/') {
                (&mut ignored.at_root, path)
            } else if name.contains('/') {
                (&mut ignored.at_root, name)
            } else {
                (&mut ignored.anywhere, name)
            };
            if name.is_empty() || name.contains(['*', '?', '[', '!', '\\']) {
                return Err(line.to_owned());
            }
            list.push(name.to_owned());
        }
        Ok(ignored)
    }

    fn covers(&self, path: &str, name: &str) -> bool {
        self.at_root.iter().any(|ignored| ignored == path)
            || self.anywhere.iter().any(|ignored| ignored == name)
            || self.endings.iter().any(|ending| name.ends_with(ending.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_what_git_ignores() {
        let ignored = Ignored::parse("# built\n/target\nnode_modules/\n*.profraw\n").unwrap();
        assert!(ignored.covers("target", "target"));
        assert!(!ignored.covers("docs/target", "target"));
        assert!(ignored.covers("sdk/node_modules", "node_modules"));
        assert!(ignored.covers("a/b.profraw", "b.profraw"));
        assert!(ignored.covers(".git", ".git"));
        assert!(!ignored.covers("README.md", "README.md"));
        assert_eq!(Ignored::parse("/a\nb*c\n").unwrap_err(), "b*c");
        assert_eq!(Ignored::parse("!keep\n").unwrap_err(), "!keep");
    }

    #[test]
    fn sees_the_tree() {
        let files = read();
        for path in ["Cargo.toml", ".ci/run", "crates/harness/tests/tidy/tree.rs"] {
            assert!(files.iter().any(|file| file.path == path), "{path} was not seen");
        }
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }

    #[test]
    fn a_finding_says_where_what_and_what_to_do() {
        let finding = SourceFile::example("a.rs", "").finding(3, "is wrong", "Mend it.");
        assert_eq!(finding.to_string(), "a.rs:3: is wrong\n    Mend it.");
    }
}
