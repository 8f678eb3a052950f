//! What texts an expression stands for, over the names of its file and those it imports.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::facts::{Bound, Call, Entry, Expr, Facts, Import, ModuleBase, ModuleRef};
use crate::language::{Family, Reader, rust_module};
use crate::limits::{ALTERNATIVES_MAX, RESOLVE_STEPS_MAX, RESOLVE_VISITS_MAX};
use crate::modules::Modules;
use crate::settings::Checked;
use crate::source::SourceFile;

/// The files, and how their names hang together.
pub(crate) struct Resolver<'a> {
    pub(crate) files: &'a [SourceFile],
    pub(crate) settings: &'a Checked<'a>,
    modules: Modules,
    visits: Cell<usize>,
    reader: RefCell<Reader>,
}

/// Where an expression stands: in which file, and inside which call of its function.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    pub(crate) file: usize,
    frame: Option<Rc<Frame<'a>>>,
    steps: usize,
}

/// One call of a function that was followed.
#[derive(Debug)]
struct Frame<'a> {
    file: usize,
    function: usize,
    arguments: Vec<Option<(Place<'a>, &'a Expr)>>,
}

/// What an expression turned out to be.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Text(String),
    Number(u32),
    Object(Place<'a>, &'a [Entry]),
    List(Place<'a>, &'a [Expr]),
    Function { file: usize, start: usize },
    Module(usize),
    NotText,
    Unknown,
}

/// The texts of a topic argument.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) known: Vec<String>,
    /// Whether there may be others.
    pub(crate) unknown: bool,
}

/// Methods that give back what they are called on, as text.
const SAME: &[&str] = &[
    "to_string",
    "to_owned",
    "into",
    "as_str",
    "as_ref",
    "clone",
    "toString",
    "valueOf",
    "borrow",
    "unwrap",
    "expect",
    "parse",
    "try_into",
    "bind",
];
/// Functions that give back their first argument, as a text or a topic.
const WRAPPERS: &[&str] = &["String", "str", "Topic", "TopicName", "Pattern", "Some", "Ok"];
/// Types whose `new` and `from` do.
const WRAPPER_TYPES: &[&str] =
    &["Topic", "TopicName", "Pattern", "String", "Cow", "Arc", "Rc", "Box", "Topics"];

impl<'a> Place<'a> {
    pub(crate) fn new(file: usize) -> Self {
        Self { file, frame: None, steps: RESOLVE_STEPS_MAX }
    }

    fn deeper(&self) -> Self {
        Self { steps: self.steps.saturating_sub(1), ..self.clone() }
    }

    /// The same number of steps left, elsewhere.
    fn moved(&self, file: usize) -> Self {
        Self { file, frame: None, steps: self.steps.saturating_sub(1) }
    }
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(files: &'a [SourceFile], settings: &'a Checked<'a>) -> Self {
        let modules = Modules::new(files.iter().map(|file| (file.path.as_str(), file.language)));
        Self { files, settings, modules, visits: Cell::new(0), reader: RefCell::default() }
    }

    /// What a file says, parsed now if need be.
    pub(crate) fn facts(&self, file: usize) -> Option<&'a Facts> {
        let source = self.files.get(file)?;
        Some(source.facts(&mut self.reader.borrow_mut(), self.settings))
    }

    /// The texts that a topic argument stands for.
    pub(crate) fn texts(&self, place: &Place<'a>, expr: &'a Expr) -> Texts {
        self.visits.set(0);
        let mut texts = Texts::default();
        self.add_texts(self.values(place, expr), &mut texts);
        texts.known.dedup();
        texts
    }

    /// What an expression is; nothing found is `Unknown`.
    pub(crate) fn look(&self, place: &Place<'a>, expr: &'a Expr) -> Vec<Value<'a>> {
        self.visits.set(0);
        self.values(place, expr)
    }

    fn add_texts(&self, values: Vec<Value<'a>>, texts: &mut Texts) {
        let several = values.len() > 1;
        texts.unknown |= values.is_empty();
        for value in values {
            match value {
                Value::Text(text) if !texts.known.contains(&text) => texts.known.push(text),
                Value::List(place, items) => {
                    for item in items {
                        self.add_texts(self.values(&place.deeper(), item), texts);
                    }
                }
                // A variant without text of its own beside the one with it.
                Value::Object(_, []) if several => {}
                Value::Object(place, entries) => {
                    self.add_texts(self.topic_of(&place, entries), texts);
                }
                Value::Module(_) | Value::Unknown => texts.unknown = true,
                Value::Text(_) | Value::Number(_) | Value::Function { .. } | Value::NotText => {}
            }
        }
    }

    /// The topic that a type, class or options object is about.
    fn topic_of(&self, place: &Place<'a>, entries: &'a [Entry]) -> Vec<Value<'a>> {
        let about = |entry: &&Entry| match &entry.key {
            Some(Expr::Text(key)) => matches!(&**key, "topic" | "TOPIC") || key.ends_with("()"),
            _ => false,
        };
        let found: Vec<_> = entries.iter().filter(about).collect();
        if found.is_empty() {
            return vec![Value::Unknown];
        }
        found.iter().flat_map(|entry| self.values(&place.deeper(), &entry.value)).collect()
    }

    fn values(&self, place: &Place<'a>, expr: &'a Expr) -> Vec<Value<'a>> {
        let visits = self.visits.get() + 1;
        self.visits.set(visits);
        if place.steps == 0 || visits > RESOLVE_VISITS_MAX {
            return vec![Value::Unknown];
        }
        let inner = place.deeper();
        match expr {
            Expr::Text(text) => vec![Value::Text(text.to_string())],
            Expr::Number(number) => vec![Value::Number(*number)],
            Expr::Path { at, parts } => self.path(&inner, *at, parts),
            Expr::Member(object, key) => {
                let mut texts = Texts::default();
                self.add_texts(self.values(&inner, key), &mut texts);
                let mut values = self.values(&inner, object);
                values = match texts.known.as_slice() {
                    [] => return vec![Value::Unknown],
                    keys => values
                        .iter()
                        .flat_map(|value| keys.iter().flat_map(|key| self.member(value, key)))
                        .collect(),
                };
                values.extend(texts.unknown.then_some(Value::Unknown));
                values
            }
            Expr::Join(parts) => self.joined(&inner, parts),
            Expr::Any(of) => of.iter().flat_map(|one| self.values(&inner, one)).collect(),
            Expr::List(items) => vec![Value::List(inner, items)],
            Expr::Object(entries) => vec![Value::Object(inner, entries)],
            Expr::Function(start) => vec![Value::Function { file: place.file, start: *start }],
            Expr::Module(module) => match self.modules.find(place.file, module) {
                Some(file) => vec![Value::Module(file)],
                None => vec![Value::Unknown],
            },
            Expr::Call(call) => self.called(&inner, call),
            Expr::NotText => vec![Value::NotText],
            Expr::Opaque => vec![Value::Unknown],
        }
    }

    /// Every text that the parts can make together.
    fn joined(&self, place: &Place<'a>, parts: &'a [Expr]) -> Vec<Value<'a>> {
        let mut made = vec![String::new()];
        for part in parts {
            let mut texts = Texts::default();
            let mut values = self.values(place, part);
            for value in &mut values {
                if let Value::Number(number) = value {
                    *value = Value::Text(number.to_string());
                }
            }
            self.add_texts(values, &mut texts);
            if texts.unknown || texts.known.is_empty() {
                return vec![Value::Unknown];
            }
            made = made
                .iter()
                .flat_map(|text| texts.known.iter().map(move |part| format!("{text}{part}")))
                .collect();
            if made.len() > ALTERNATIVES_MAX {
                return vec![Value::Unknown];
            }
        }
        made.into_iter().map(Value::Text).collect()
    }

    /// `head.member.member`: the head by scope, import, module path or star import.
    fn path(&self, place: &Place<'a>, at: usize, parts: &'a [Box<str>]) -> Vec<Value<'a>> {
        let (Some((head, rest)), Some(facts)) = (parts.split_first(), self.facts(place.file))
        else {
            return vec![Value::Unknown];
        };
        let bound = facts.lookup(head, at);
        if !bound.is_empty() {
            let values = bound.into_iter().flat_map(|bound| self.bound(place, bound)).collect();
            return self.members(values, rest);
        }
        if let Some(import) = facts.imports.get(head) {
            return self.members(self.imported(place, import), rest);
        }
        if parts.len() > 1 && self.family(place.file) == Some(Family::Rust) {
            let values = self.by_module_path(place, parts);
            if !values.is_empty() {
                return values;
            }
        }
        let values = self.by_star(place, &facts.stars, head);
        if values.is_empty() { vec![Value::Unknown] } else { self.members(values, rest) }
    }

    fn family(&self, file: usize) -> Option<Family> {
        Some(self.files.get(file)?.language?.family())
    }

    fn bound(&self, place: &Place<'a>, bound: &'a Bound) -> Vec<Value<'a>> {
        match bound {
            Bound::Value(expr) => self.values(place, expr),
            Bound::Parameter { function, index } => {
                let frame = place
                    .frame
                    .as_ref()
                    .filter(|frame| frame.file == place.file && frame.function == *function);
                match frame.and_then(|frame| frame.arguments.get(*index)?.clone()) {
                    Some((of, expr)) => {
                        let steps = place.steps.min(of.steps);
                        self.values(&Place { steps, ..of }, expr)
                    }
                    None => vec![Value::Unknown],
                }
            }
        }
    }

    fn members(&self, mut values: Vec<Value<'a>>, keys: &[Box<str>]) -> Vec<Value<'a>> {
        for key in keys {
            values = values.iter().flat_map(|value| self.member(value, key)).collect();
        }
        values
    }

    fn member(&self, value: &Value<'a>, key: &str) -> Vec<Value<'a>> {
        match value {
            Value::Object(place, entries) => {
                let found = self.entries(place, entries, key);
                if found.is_empty() { vec![Value::Unknown] } else { found }
            }
            // `Heartbeat.name` of a typed topic, `Topics.HEARTBEAT.value` of a Python enum.
            Value::Text(text) if matches!(key, "value" | "name" | "topic") => {
                vec![Value::Text(text.clone())]
            }
            Value::Module(file) => {
                let found = self.of_module(&Place::new(*file), key);
                if found.is_empty() { vec![Value::Unknown] } else { found }
            }
            _ => vec![Value::Unknown],
        }
    }

    fn entries(&self, place: &Place<'a>, entries: &'a [Entry], key: &str) -> Vec<Value<'a>> {
        let place = place.deeper();
        if place.steps == 0 {
            return Vec::new();
        }
        let named = |entry: &&Entry| match &entry.key {
            Some(Expr::Text(name)) => &**name == key,
            Some(computed) => {
                let mut texts = Texts::default();
                self.add_texts(self.values(&place, computed), &mut texts);
                texts.known.iter().any(|name| name == key)
            }
            None => false,
        };
        let found: Vec<&Entry> = entries.iter().filter(named).collect();
        if !found.is_empty() {
            return found.iter().flat_map(|entry| self.values(&place, &entry.value)).collect();
        }
        let spread = entries.iter().filter(|entry| entry.key.is_none());
        let spread = spread.flat_map(|entry| self.values(&place, &entry.value));
        spread
            .flat_map(|value| match value {
                Value::Object(place, entries) => self.entries(&place, entries, key),
                _ => Vec::new(),
            })
            .collect()
    }

    /// A name at the top of a file, or one that the file passes on.
    fn of_module(&self, place: &Place<'a>, name: &str) -> Vec<Value<'a>> {
        let visits = self.visits.get() + 1;
        self.visits.set(visits);
        let Some(file) = self.files.get(place.file).filter(|_| visits < RESOLVE_VISITS_MAX) else {
            return Vec::new();
        };
        let Some(facts) = self.facts(place.file) else {
            return Vec::new();
        };
        let bound = facts.lookup(name, file.text.len());
        if !bound.is_empty() {
            return bound.into_iter().flat_map(|bound| self.bound(place, bound)).collect();
        }
        if let Some(import) = facts.imports.get(name) {
            return self.imported(place, import);
        }
        let exports = facts.lookup("module.exports", file.text.len());
        let exports = exports.into_iter().flat_map(|bound| self.bound(place, bound));
        let exported: Vec<_> = exports
            .flat_map(|value| match value {
                Value::Object(place, entries) => self.entries(&place, entries, name),
                _ => Vec::new(),
            })
            .collect();
        if !exported.is_empty() {
            return exported;
        }
        let child = ModuleRef { base: ModuleBase::Module(0), parts: vec![name.into()] };
        if let Some(file) = self.modules.find(place.file, &child) {
            return vec![Value::Module(file)];
        }
        self.by_star(place, &facts.stars, name)
    }

    fn by_star(&self, place: &Place<'a>, stars: &'a [ModuleRef], name: &str) -> Vec<Value<'a>> {
        if place.steps == 0 {
            return Vec::new();
        }
        for star in stars {
            let values = match self.modules.find(place.file, star).filter(|of| *of != place.file) {
                Some(file) => self.of_module(&place.moved(file), name),
                None => {
                    let whole = self.by_split(place, star, &[]);
                    whole
                        .into_iter()
                        .flat_map(|value| match value {
                            Value::Object(place, entries) => self.entries(&place, entries, name),
                            _ => Vec::new(),
                        })
                        .collect()
                }
            };
            if !values.is_empty() {
                return values;
            }
        }
        Vec::new()
    }

    fn imported(&self, place: &Place<'a>, import: &Import) -> Vec<Value<'a>> {
        let item: &[Box<str>] = import.item.as_slice();
        let values = self.by_split(place, &import.module, item);
        if values.is_empty() { vec![Value::Unknown] } else { values }
    }

    fn by_module_path(&self, place: &Place<'a>, parts: &[Box<str>]) -> Vec<Value<'a>> {
        self.by_split(place, &rust_module(parts), &[])
    }

    /// The longest beginning of the path that is a file, and the rest as its members.
    fn by_split(&self, place: &Place<'a>, of: &ModuleRef, item: &[Box<str>]) -> Vec<Value<'a>> {
        if place.steps == 0 {
            return Vec::new();
        }
        let whole: Vec<Box<str>> = of.parts.iter().chain(item).cloned().collect();
        for keep in (0..=whole.len()).rev() {
            let (parts, rest) = whole.split_at(keep);
            let module = ModuleRef { base: of.base, parts: parts.to_vec() };
            let Some(file) = self.modules.find(place.file, &module) else {
                continue;
            };
            let Some((first, rest)) = rest.split_first() else {
                return vec![Value::Module(file)];
            };
            let values = self.of_module(&place.moved(file), first);
            if !values.is_empty() {
                return self.members(values, rest);
            }
        }
        Vec::new()
    }

    fn called(&self, place: &Place<'a>, call: &'a Call) -> Vec<Value<'a>> {
        let Some(name) = call.name() else {
            return vec![Value::Unknown];
        };
        if let Some(rule) = self.settings.calls.get(name).filter(|_| self.settings.defines(name)) {
            let argument = call.argument(rule.argument.unwrap_or(0), "topic");
            let argument = argument.filter(|first| !matches!(first.value, Expr::Path { .. }));
            let argument = argument.or(call.arguments.get(1)).or(call.arguments.first());
            return match argument {
                Some(argument) => self.values(place, &argument.value),
                None => vec![Value::Unknown],
            };
        }
        let receiver = self.receiver(place, call);
        let mapped: Vec<_> = receiver
            .iter()
            .flat_map(|value| match value {
                Value::Object(place, entries) => self.entries(place, entries, &format!("{name}()")),
                _ => Vec::new(),
            })
            .collect();
        if !mapped.is_empty() {
            return mapped;
        }
        if let Some(values) = self.list_method(place, call, &receiver) {
            return values;
        }
        let followed = self.followed(place, call);
        if !followed.is_empty() {
            return followed;
        }
        if SAME.contains(&name) && !receiver.is_empty() {
            return receiver;
        }
        match call.arguments.first().filter(|_| is_wrapper(call, name)) {
            Some(first) => self.values(place, &first.value),
            None => vec![Value::Unknown],
        }
    }

    /// What stands before the last name of a callee.
    fn receiver(&self, place: &Place<'a>, call: &'a Call) -> Vec<Value<'a>> {
        match &call.callee {
            Expr::Path { at, parts } => match parts.split_last() {
                Some((_, rest)) if !rest.is_empty() => self.path(place, *at, rest),
                _ => Vec::new(),
            },
            Expr::Member(object, _) => self.values(place, object),
            _ => Vec::new(),
        }
    }

    /// `["a", "b"].join(".")` and `"a".concat("b")`.
    fn list_method(
        &self,
        place: &Place<'a>,
        call: &'a Call,
        receiver: &[Value<'a>],
    ) -> Option<Vec<Value<'a>>> {
        let first = call.arguments.first().map(|argument| &argument.value);
        match (receiver, call.name()?, first) {
            ([Value::List(of, items)], "join", Some(Expr::Text(between))) => {
                let texts = items.iter().map(|item| self.values(of, item));
                let texts: Option<Vec<String>> = texts
                    .map(|values| match values.as_slice() {
                        [Value::Text(text)] => Some(text.clone()),
                        _ => None,
                    })
                    .collect();
                Some(vec![texts.map_or(Value::Unknown, |texts| Value::Text(texts.join(between)))])
            }
            ([Value::Text(start)], "concat", Some(end)) => match self.values(place, end).as_slice()
            {
                [Value::Text(end)] => Some(vec![Value::Text(format!("{start}{end}"))]),
                _ => Some(vec![Value::Unknown]),
            },
            _ => None,
        }
    }

    /// The value of a function of the project that returns one expression, and of a constructor.
    fn followed(&self, place: &Place<'a>, call: &'a Call) -> Vec<Value<'a>> {
        let mut values = Vec::new();
        for callee in self.values(place, &call.callee) {
            match callee {
                Value::Function { file, start } => {
                    let function = self.facts(file).and_then(|facts| facts.functions.get(&start));
                    let Some(function) = function else {
                        continue;
                    };
                    let Some(result) = &function.result else {
                        continue;
                    };
                    let arguments = function.parameters.iter().enumerate().map(|(index, name)| {
                        let argument = call.argument(index, name)?;
                        Some((place.clone(), &argument.value))
                    });
                    let arguments = arguments.collect();
                    let frame = Rc::new(Frame { file, function: start, arguments });
                    let steps = place.steps.saturating_sub(1);
                    values.extend(self.values(&Place { file, frame: Some(frame), steps }, result));
                }
                object @ Value::Object(..) => values.push(object),
                _ => {}
            }
        }
        values
    }
}

fn is_wrapper(call: &Call, name: &str) -> bool {
    match &call.callee {
        Expr::Path { parts, .. } if parts.len() > 1 => {
            let of = parts.iter().rev().nth(1).map_or("", |part| &**part);
            matches!(
                name,
                "new" | "from" | "from_str" | "system" | "exact" | "of" | "parse" | "Borrowed"
            ) && WRAPPER_TYPES.contains(&of)
        }
        _ => WRAPPERS.contains(&name),
    }
}
