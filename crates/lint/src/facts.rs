//! What a source file says, without its language: names, functions, imports, calls.
//!
//! The language modules lower syntax trees to these; the resolver and the rules know only these.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A range of bytes in a file.
pub(crate) type Span = Range<usize>;

/// An expression, as far as a topic or a header may be made by it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    /// A text that is fully known.
    Text(Box<str>),
    /// A whole number, for versions.
    Number(u32),
    /// A name with members: `Topics.Heartbeat`, `crate::topics::HEARTBEAT`. `at` tells which
    /// bindings it sees.
    Path { at: usize, parts: Vec<Box<str>> },
    /// A member of something that is not a plain name.
    Member(Box<Expr>, Box<Expr>),
    /// Parts that make one text: a template, a concatenation, `format!`.
    Join(Vec<Expr>),
    /// One of several: a conditional, a default, a name that is assigned more than once.
    Any(Vec<Expr>),
    /// An array.
    List(Vec<Expr>),
    /// An object, enum, class or module: what has members.
    Object(Vec<Entry>),
    /// A function that begins at this byte; see [`Facts::functions`].
    Function(usize),
    /// A module of the project, e.g. by `require`.
    Module(ModuleRef),
    /// A call whose value is used.
    Call(Box<Call>),
    /// Something that cannot be a topic: a number, a closure, `null`.
    NotText,
    /// Something that only running the program would tell.
    Opaque,
}

impl Expr {
    pub(crate) fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn name(at: usize, name: &str) -> Self {
        Self::Path { at, parts: vec![name.into()] }
    }

    /// The member `name` of this, keeping paths flat.
    pub(crate) fn member(self, name: &str) -> Self {
        match self {
            Self::Path { at, mut parts } => {
                parts.push(name.into());
                Self::Path { at, parts }
            }
            other => Self::Member(Box::new(other), Box::new(Self::text(name))),
        }
    }

    /// The member that `key` names when the program runs.
    pub(crate) fn index(self, key: Self) -> Self {
        match key {
            Self::Text(name) => self.member(&name),
            key => Self::Member(Box::new(self), Box::new(key)),
        }
    }
}

/// One member of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The key; `None` where another object is spread into this one.
    pub(crate) key: Option<Expr>,
    /// Where the key stands.
    pub(crate) span: Span,
    pub(crate) value: Expr,
}

impl Entry {
    pub(crate) fn new(key: &str, span: Span, value: Expr) -> Self {
        Self { key: Some(Expr::text(key)), span, value }
    }
}

/// A call of a function, method or macro.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) span: Span,
    pub(crate) callee: Expr,
    pub(crate) arguments: Vec<Argument>,
    /// The calls that its receiver is made of, nearest first: for `bus.publish(e).header(k, v)`
    /// that of `header` has `publish`.
    pub(crate) chain: Vec<Box<str>>,
    /// The type of `consume::<Heartbeat>(…)`, in languages where it is the topic.
    pub(crate) type_argument: Option<(Span, Expr)>,
    pub(crate) shape: CallShape,
}

/// How a call is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallShape {
    Function,
    Method,
    Macro,
    /// `#[event(topic = "…")]` and the like.
    Attribute,
}

impl Call {
    /// The last name of the callee.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.callee {
            Expr::Path { parts, .. } => parts.last().map(|part| &**part),
            Expr::Member(_, key) => match &**key {
                Expr::Text(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// What stands before the last name, as written: `this.bus`.
    pub(crate) fn receiver(&self) -> Option<String> {
        match &self.callee {
            Expr::Path { parts, .. } => parts
                .split_last()
                .filter(|(_, rest)| !rest.is_empty())
                .map(|(_, rest)| rest.join(".")),
            _ => None,
        }
    }

    /// The argument at `index`, counted without named ones, or the one called `name`.
    pub(crate) fn argument(&self, index: usize, name: &str) -> Option<&Argument> {
        let named = |argument: &&Argument| argument.keyword.as_deref() == Some(name);
        let mut positional = self.arguments.iter().filter(|argument| argument.keyword.is_none());
        positional.nth(index).or_else(|| self.arguments.iter().find(named))
    }
}

/// One argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Argument {
    /// Its name, where the language lets the caller write one.
    pub(crate) keyword: Option<Box<str>>,
    pub(crate) span: Span,
    pub(crate) value: Expr,
}

/// A name and what it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    /// Where the name can be seen.
    pub(crate) scope: Span,
    pub(crate) value: Bound,
}

/// What a name stands for.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    Value(Expr),
    /// The parameter at `index` of the function that begins at `function`.
    Parameter {
        function: usize,
        index: usize,
    },
}

/// A function with a body.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) parameters: Vec<Box<str>>,
    /// What a parameter is where the caller says nothing, by its index.
    pub(crate) defaults: BTreeMap<usize, (Span, Expr)>,
    /// What it returns, where that is one expression.
    pub(crate) result: Option<Expr>,
}

/// Where the parts of a module's path begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleBase {
    /// A package, an alias, or a child: to be found by the end of its path.
    Anywhere,
    /// So many folders above that of the file: 0 is its own.
    Folder(usize),
    /// So many modules above the file's own (Rust's `self`, `super`).
    Module(usize),
    /// The root of the crate.
    Crate,
}

/// A module as an import names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleRef {
    pub(crate) base: ModuleBase,
    pub(crate) parts: Vec<Box<str>>,
}

/// An imported name.
#[derive(Debug, Clone)]
pub(crate) struct Import {
    pub(crate) module: ModuleRef,
    /// What is imported of the module; `None` is the module itself.
    pub(crate) item: Option<Box<str>>,
}

/// What could not be read of a file.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) span: Span,
    pub(crate) what: String,
}

/// All that is known of one file.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) bindings: HashMap<Box<str>, Vec<Binding>>,
    pub(crate) functions: HashMap<usize, Function>,
    pub(crate) imports: HashMap<Box<str>, Import>,
    /// Modules all of whose names can be seen here.
    pub(crate) stars: Vec<ModuleRef>,
    pub(crate) calls: Vec<Call>,
    pub(crate) failures: Vec<Failure>,
}

impl Facts {
    /// What `name` stands for at `at`: the bindings of the innermost scope that has any.
    pub(crate) fn lookup(&self, name: &str, at: usize) -> Vec<&Bound> {
        let Some(bindings) = self.bindings.get(name) else {
            return Vec::new();
        };
        let seen = bindings.iter().filter(|binding| binding.scope.contains(&at));
        let innermost = seen.clone().map(|binding| binding.scope.len()).min();
        seen.filter(|binding| Some(binding.scope.len()) == innermost)
            .map(|binding| &binding.value)
            .collect()
    }

    /// Makes one object of several with the same name and scope: an enum and its `impl`s, a class
    /// and what is assigned to its members.
    pub(crate) fn merge_objects(&mut self) {
        let is_object = |of: &&Binding| matches!(of.value, Bound::Value(Expr::Object(_)));
        let several = |of: &&mut Vec<Binding>| of.iter().filter(is_object).nth(1).is_some();
        for bindings in self.bindings.values_mut().filter(several) {
            let mut merged: Vec<Binding> = Vec::with_capacity(bindings.len());
            for binding in bindings.drain(..) {
                let earlier = merged.iter_mut().find(|earlier| earlier.scope == binding.scope);
                match (earlier.map(|earlier| &mut earlier.value), binding.value) {
                    (Some(Bound::Value(Expr::Object(all))), Bound::Value(Expr::Object(more))) => {
                        all.extend(more);
                    }
                    (_, value) => merged.push(Binding { scope: binding.scope, value }),
                }
            }
            *bindings = merged;
        }
    }
}
