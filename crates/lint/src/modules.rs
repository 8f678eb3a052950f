//! Which file an import means, within the files that are linted.
//!
//! A file's module path is its path without extension, without `src`, and without the last part
//! where that only stands for its folder (`index`, `mod`, `lib`, `main`, `__init__`). Packages and
//! aliases are found by the end of that path; where two fit equally well, neither is taken.

use std::collections::HashMap;

use crate::facts::{ModuleBase, ModuleRef};
use crate::language::{Family, Language};

/// The index of modules.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    of: Vec<Option<Module>>,
    exact: HashMap<(Family, String), usize>,
    by_last: HashMap<(Family, Box<str>), Vec<usize>>,
}

#[derive(Debug)]
struct Module {
    family: Family,
    /// The folder of the file, as it is.
    folder: Vec<Box<str>>,
    path: Vec<Box<str>>,
    is_crate_root: bool,
}

impl Modules {
    /// Takes the files in the order of their numbers; those without language are not modules.
    pub(crate) fn new<'a>(files: impl Iterator<Item = (&'a str, Option<Language>)>) -> Self {
        let mut modules = Self::default();
        for (index, (path, language)) in files.enumerate() {
            let module = language.map(|language| Module::new(path, language.family()));
            if let Some(module) = &module {
                modules.exact.entry((module.family, module.path.join("/"))).or_insert(index);
                let last = module.path.last().cloned().unwrap_or_default();
                modules.by_last.entry((module.family, last)).or_default().push(index);
            }
            modules.of.push(module);
        }
        modules
    }

    /// The file that `module` means when `from` says it.
    pub(crate) fn find(&self, from: usize, module: &ModuleRef) -> Option<usize> {
        let origin = self.of.get(from)?.as_ref()?;
        let parts = &module.parts;
        match module.base {
            ModuleBase::Folder(above) => {
                let keep = origin.folder.len().checked_sub(above)?;
                self.exact(origin.family, origin.folder.iter().take(keep), parts)
            }
            ModuleBase::Module(above) => {
                let keep = origin.path.len().checked_sub(above)?;
                self.exact(origin.family, origin.path.iter().take(keep), parts)
            }
            ModuleBase::Crate => self.in_crate(origin, parts),
            ModuleBase::Anywhere if parts.is_empty() => {
                (origin.family == Family::Rust).then_some(from)
            }
            ModuleBase::Anywhere => {
                let child = || self.exact(origin.family, origin.path.iter(), parts);
                let child = if origin.family == Family::Rust { child() } else { None };
                child.or_else(|| self.by_end(from, origin, parts))
            }
        }
    }

    fn exact<'a>(
        &self,
        family: Family,
        base: impl Iterator<Item = &'a Box<str>>,
        parts: &'a [Box<str>],
    ) -> Option<usize> {
        let path = base.chain(parts).filter(|part| is_kept(part)).map(|part| normal(part, family));
        let mut path: Vec<String> = path.collect();
        if path.last().is_some_and(|last| stands_for_folder(last, family)) {
            path.pop();
        }
        self.exact.get(&(family, path.join("/"))).copied()
    }

    fn in_crate(&self, origin: &Module, parts: &[Box<str>]) -> Option<usize> {
        let root = (0..=origin.path.len()).rev().find(|&keep| {
            let path: Vec<&str> = origin.path.iter().take(keep).map(|part| &**part).collect();
            let index = self.exact.get(&(origin.family, path.join("/")));
            let module = index.and_then(|&index| self.of.get(index)?.as_ref());
            module.is_some_and(|module| module.is_crate_root)
        });
        self.exact(origin.family, origin.path.iter().take(root.unwrap_or(0)), parts)
    }

    fn by_end(&self, from: usize, origin: &Module, parts: &[Box<str>]) -> Option<usize> {
        let parts: Vec<Box<str>> = parts
            .iter()
            .filter(|part| is_kept(part))
            .map(|part| normal(part, origin.family).into())
            .collect();
        let last = parts.last()?;
        let candidates = self.by_last.get(&(origin.family, last.clone()))?;
        // A package name or alias in front need not be a folder.
        (0..parts.len()).find_map(|skipped| {
            let wanted = parts.get(skipped..)?;
            let fits = candidates.iter().filter(|&&index| index != from).filter_map(|&index| {
                let module = self.of.get(index)?.as_ref()?;
                let near = common(&module.folder, &origin.folder);
                module.path.ends_with(wanted).then_some((near, index))
            });
            let best = fits.clone().map(|(near, _)| near).max()?;
            let mut nearest = fits.filter(|(near, _)| *near == best);
            let (_, index) = nearest.next()?;
            nearest.next().is_none().then_some(index)
        })
    }
}

impl Module {
    fn new(path: &str, family: Family) -> Self {
        let mut folder: Vec<Box<str>> = path.split('/').map(Into::into).collect();
        let name = folder.pop().unwrap_or_default();
        let stem = name.rsplit_once('.').map_or(&*name, |(stem, _)| stem);
        let mut path: Vec<Box<str>> = folder
            .iter()
            .filter(|part| is_kept(part))
            .map(|part| normal(part, family).into())
            .collect();
        if !stands_for_folder(stem, family) {
            path.push(normal(stem, family).into());
        }
        let is_crate_root = family == Family::Rust && matches!(stem, "lib" | "main");
        Self { family, folder, path, is_crate_root }
    }
}

fn is_kept(part: &str) -> bool {
    part != "src" && part != "."
}

fn normal(part: &str, family: Family) -> String {
    if family == Family::Rust { part.replace('-', "_") } else { part.to_owned() }
}

fn stands_for_folder(stem: &str, family: Family) -> bool {
    match family {
        Family::EcmaScript => stem == "index",
        Family::Rust => matches!(stem, "mod" | "lib" | "main"),
        Family::Python => stem == "__init__",
    }
}

fn common(left: &[Box<str>], right: &[Box<str>]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Modules {
        let files = [
            ("services/hub/src/main.ts", Language::TypeScript),
            ("services/hub/src/topics/index.ts", Language::TypeScript),
            ("packages/events/src/index.ts", Language::TypeScript),
            ("crates/my-bus/src/lib.rs", Language::Rust),
            ("crates/my-bus/src/topics.rs", Language::Rust),
            ("crates/my-bus/src/topics/old.rs", Language::Rust),
            ("app/pkg/__init__.py", Language::Python),
            ("app/pkg/topics.py", Language::Python),
            ("app/pkg/worker.py", Language::Python),
            ("a/names.py", Language::Python),
            ("b/names.py", Language::Python),
        ];
        Modules::new(files.into_iter().map(|(path, language)| (path, Some(language))))
    }

    fn find(from: usize, base: ModuleBase, parts: &[&str]) -> Option<usize> {
        let parts = parts.iter().map(|part| (*part).into()).collect();
        index().find(from, &ModuleRef { base, parts })
    }

    #[test]
    fn relative_imports() {
        assert_eq!(find(0, ModuleBase::Folder(0), &["topics"]), Some(1));
        assert_eq!(find(1, ModuleBase::Folder(1), &["main"]), Some(0));
        assert_eq!(find(0, ModuleBase::Folder(9), &["main"]), None);
        assert_eq!(find(8, ModuleBase::Folder(0), &["topics"]), Some(7));
        assert_eq!(find(8, ModuleBase::Folder(0), &[]), Some(6));
    }

    #[test]
    fn packages_and_crates() {
        assert_eq!(find(0, ModuleBase::Anywhere, &["acme", "events"]), Some(2));
        assert_eq!(find(8, ModuleBase::Anywhere, &["pkg", "topics"]), Some(7));
        assert_eq!(find(5, ModuleBase::Crate, &["topics"]), Some(4));
        assert_eq!(find(5, ModuleBase::Module(1), &[]), Some(4));
        assert_eq!(find(3, ModuleBase::Anywhere, &["topics"]), Some(4));
        assert_eq!(find(4, ModuleBase::Anywhere, &["my_bus"]), Some(3));
    }

    #[test]
    fn what_is_ambiguous_is_not_taken() {
        assert_eq!(find(8, ModuleBase::Anywhere, &["names"]), None);
    }
}
