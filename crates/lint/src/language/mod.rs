//! From source text to [`Facts`], by syntax tree: one module per language.

mod collector;

mod ecmascript;
mod javascript;
mod python;
mod rust;
pub(crate) use rust::module as rust_module;
mod rust_tokens;
mod text;
mod typescript;

use std::path::Path;

use tree_sitter::{Node, Parser};

use crate::facts::{Facts, Failure};
use crate::settings::Checked;
use collector::Collector;

/// A language that the linter reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Language {
    /// `.ts`, `.mts`, `.cts`
    TypeScript,
    /// `.tsx`
    Tsx,
    /// `.js`, `.jsx`, `.mjs`, `.cjs`
    JavaScript,
    /// `.rs`
    Rust,
    /// `.py`
    Python,
}

/// Languages whose files can import each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    EcmaScript,
    Rust,
    Python,
}

impl Language {
    /// The language of a file, by its whole extension: `.d.ts` (declarations only), `.map` and
    /// `.json` are none, and neither is `.min.js`.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let generated = [".d.ts", ".d.mts", ".d.cts", ".min.js", ".min.mjs", ".min.cjs"];
        if generated.iter().any(|ending| name.ends_with(ending)) {
            return None;
        }
        match path.extension()?.to_str()? {
            "ts" | "mts" | "cts" => Some(Self::TypeScript),
            "tsx" => Some(Self::Tsx),
            "js" | "jsx" | "mjs" | "cjs" => Some(Self::JavaScript),
            "rs" => Some(Self::Rust),
            "py" => Some(Self::Python),
            _ => None,
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::TypeScript | Self::Tsx | Self::JavaScript => Family::EcmaScript,
            Self::Rust => Family::Rust,
            Self::Python => Family::Python,
        }
    }

    fn grammar(self) -> tree_sitter::Language {
        match self {
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX.into(),
            Self::JavaScript => tree_sitter_javascript::LANGUAGE.into(),
            Self::Rust => tree_sitter_rust::LANGUAGE.into(),
            Self::Python => tree_sitter_python::LANGUAGE.into(),
        }
    }
}

/// Keeps one parser per language, since setting one up costs more than a small file.
#[derive(Default)]
pub(crate) struct Reader {
    parsers: Vec<(Language, Parser)>,
}

impl Reader {
    /// What `text` says. What does not parse is listed in the facts; the rest is still read.
    pub(crate) fn read(&mut self, language: Language, text: &str, settings: &Checked<'_>) -> Facts {
        let mut collector = Collector::new(text, settings);
        match self.parser(language).and_then(|parser| parser.parse(text, None)) {
            Some(tree) => {
                let root = tree.root_node();
                match language {
                    Language::TypeScript | Language::Tsx => {
                        typescript::collect(&mut collector, root)
                    }
                    Language::JavaScript => javascript::collect(&mut collector, root),
                    Language::Rust => rust::collect(&mut collector, root),
                    Language::Python => python::collect(&mut collector, root),
                }
                if let Some(failure) = first_error(root) {
                    collector.facts.failures.push(failure);
                }
            }
            None => collector
                .facts
                .failures
                .push(Failure { span: 0..0, what: "the parser gave up".to_owned() }),
        }
        let mut facts = collector.facts;
        facts.merge_objects();
        facts
    }

    fn parser(&mut self, language: Language) -> Option<&mut Parser> {
        let known = self.parsers.iter().position(|(of, _)| *of == language);
        let index = match known {
            Some(index) => index,
            None => {
                let mut parser = Parser::new();
                parser.set_language(&language.grammar()).ok()?;
                self.parsers.push((language, parser));
                self.parsers.len() - 1
            }
        };
        self.parsers.get_mut(index).map(|(_, parser)| parser)
    }
}

/// The first place where the tree is not what the grammar wants. One per file is enough: the
/// others mostly follow from it.
fn first_error(root: Node<'_>) -> Option<Failure> {
    if !root.has_error() {
        return None;
    }
    let mut node = root;
    loop {
        if node.is_missing() {
            let what = format!("`{}` is missing", node.kind());
            return Some(Failure { span: node.byte_range(), what });
        }
        if node.is_error() {
            return Some(Failure { span: node.byte_range(), what: "cannot be parsed".to_owned() });
        }
        let mut cursor = node.walk();
        let bad = node
            .children(&mut cursor)
            .find(|child| child.has_error() || child.is_missing() || child.is_error());
        match bad {
            Some(child) => node = child,
            None => {
                let what = "cannot be parsed".to_owned();
                return Some(Failure { span: node.byte_range(), what });
            }
        }
    }
}
