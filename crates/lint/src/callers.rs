//! Who calls which function of the project.

use std::collections::{HashMap, HashSet};

use crate::facts::{Bound, Call, Expr, Facts};
use crate::resolve::{Place, Resolver, Value};

/// Calls by the function they mean: its file, and the byte where it begins. Grows as files come
/// into view: one that was not parsed is, if it has the name of a function that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Callers<'a> {
    of: HashMap<(usize, usize), Vec<(usize, &'a Call)>>,
    seen: HashSet<usize>,
}

impl<'a> Callers<'a> {
    /// The calls of the function that begins at `start` in `file`.
    pub(crate) fn of(
        &mut self,
        resolver: &Resolver<'a>,
        file: usize,
        start: usize,
    ) -> Vec<(usize, &'a Call)> {
        let names = resolver.facts(file).map(|facts| names(facts, start)).unwrap_or_default();
        for (index, source) in resolver.files.iter().enumerate() {
            if self.seen.contains(&index) || source.language.is_none() {
                continue;
            }
            // A default export may be called anything, but who imports it says the file's name.
            let path = resolver.files.get(file).map_or("", |file| &file.path);
            let called = |name: &str| {
                source.text.contains(if name == "default" { stem(path) } else { name })
            };
            if source.known().is_some() || names.iter().any(|name| called(name)) {
                self.add(resolver, index);
            }
        }
        self.of.get(&(file, start)).cloned().unwrap_or_default()
    }

    fn add(&mut self, resolver: &Resolver<'a>, file: usize) {
        self.seen.insert(file);
        for call in resolver.facts(file).map(|facts| &facts.calls).into_iter().flatten() {
            for value in resolver.look(&Place::new(file), &call.callee) {
                if let Value::Function { file: of, start } = value {
                    self.of.entry((of, start)).or_default().push((file, call));
                }
            }
        }
    }
}

/// The names by which a function can be called: its own, those of constants, and of members.
fn names(facts: &Facts, start: usize) -> Vec<&str> {
    let is_it = |value: &Expr| matches!(value, Expr::Function(of) if *of == start);
    let mut names = Vec::new();
    for (name, bindings) in &facts.bindings {
        for binding in bindings {
            match &binding.value {
                Bound::Value(Expr::Object(entries)) => {
                    let members = entries.iter().filter(|entry| is_it(&entry.value));
                    names.extend(members.filter_map(|entry| match &entry.key {
                        Some(Expr::Text(key)) => Some(&**key),
                        _ => None,
                    }));
                }
                Bound::Value(value) if is_it(value) => {
                    names.push(if &**name == "module.exports" { "default" } else { name });
                }
                _ => {}
            }
        }
    }
    names
}

/// The name of a file without folder and extension.
fn stem(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.split('.').next().unwrap_or(name);
    if matches!(stem, "index" | "mod" | "lib" | "main" | "__init__") {
        folder.rsplit('/').next().unwrap_or(folder)
    } else {
        stem
    }
}
