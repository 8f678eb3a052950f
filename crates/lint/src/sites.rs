//! The places where code names a topic or a header.

use std::collections::HashSet;

use crate::callers::Callers;
use crate::facts::{Argument, Bound, Call, CallShape, Expr, Span};
use crate::headers::HeaderUse;
use crate::limits::SHOWN_CHARS_MAX;
use crate::resolve::{Place, Resolver, Texts, Value};
use crate::settings::{CallKind, CallRule};

/// One topic at one call. A call that may mean several topics gives several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicUse {
    pub(crate) file: usize,
    /// The argument.
    pub(crate) span: Span,
    pub(crate) kind: CallKind,
    /// The name of the call.
    pub(crate) call: String,
    /// `None` where only running the program would tell.
    pub(crate) topic: Option<String>,
    /// The argument as written, shortened.
    pub(crate) written: String,
    /// The schema version that the call names.
    pub(crate) version: Option<u32>,
}

/// All that was found.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    pub(crate) topics: Vec<TopicUse>,
    pub(crate) headers: Vec<HeaderUse>,
}

/// A call that takes a topic: one of the settings, or one that passes its parameter on to such.
#[derive(Debug, Clone)]
struct Candidate<'a> {
    file: usize,
    call: &'a Call,
    kind: CallKind,
    /// The name that the finding shows.
    name: &'a str,
}

/// A function and which of its parameters is a topic.
type Parameter = (usize, usize, usize);

/// Names that are a bus rather than a topic, where both may be the first argument.
const BUSES: &[&str] = &["bus", "client", "eventBus", "event_bus", "prom", "promethean", "ctx"];

pub(crate) fn find(resolver: &Resolver<'_>) -> Sites {
    let mut finder = Finder { resolver, sites: Sites::default(), waiting: Vec::new() };
    // What is not parsed by now has no call by one of the names.
    for (file, source) in resolver.files.iter().enumerate() {
        for call in source.known().map(|facts| &facts.calls).into_iter().flatten() {
            finder.call(file, call);
        }
    }
    finder.follow_parameters();
    let mut sites = finder.sites;
    let key = |site: &TopicUse| (site.file, site.span.start, site.span.end, site.topic.clone());
    sites.topics.sort_by_key(key);
    sites.topics.dedup_by(|later, first| key(later) == key(first) && later.kind == first.kind);
    sites.headers.sort_by_key(|header| (header.file, header.span.start));
    sites.headers.dedup();
    sites
}

struct Finder<'r, 'a> {
    resolver: &'r Resolver<'a>,
    sites: Sites,
    /// Topics that are a parameter of the function around the call.
    waiting: Vec<(Parameter, TopicUse)>,
}

impl<'a> Finder<'_, 'a> {
    fn call(&mut self, file: usize, call: &'a Call) {
        let Some(name) = call.name() else {
            return;
        };
        self.sites.headers.extend(crate::headers::of_chain(self.resolver, file, call));
        let Some(rule) = self.rule_of(file, call, name) else {
            return;
        };
        let rule = rule.clone();
        let candidate = Candidate { file, call, kind: rule.kind, name };
        if rule.kind == CallKind::Publish {
            self.sites.headers.extend(crate::headers::of_call(self.resolver, file, call));
        }
        for argument in self.arguments(file, call, &rule) {
            self.judge(&candidate, argument);
        }
    }

    /// The rule for a call: by its name, by the name it was imported under, or by what a constant
    /// stands for (`const send = bus.publish.bind(bus)`).
    fn rule_of(&self, file: usize, call: &Call, name: &str) -> Option<&'a CallRule> {
        let calls = &self.resolver.settings.calls;
        let facts = self.resolver.facts(file)?;
        let rule = calls.get(name).or_else(|| {
            if call.shape != CallShape::Function {
                return None;
            }
            let imported = facts.imports.get(name).and_then(|import| import.item.as_deref());
            let alias = imported.or_else(|| match facts.lookup(name, call.span.start).as_slice() {
                [Bound::Value(Expr::Call(bound))] if bound.name() == Some("bind") => {
                    match &bound.callee {
                        Expr::Path { parts, .. } => parts.iter().rev().nth(1).map(|part| &**part),
                        _ => None,
                    }
                }
                [Bound::Value(Expr::Path { parts, .. })] if parts.len() > 1 => {
                    parts.last().map(|part| &**part)
                }
                _ => None,
            });
            alias.and_then(|alias| calls.get(alias))
        })?;
        // What is called on something that is not a name has a receiver, too.
        let unnamed = if call.shape == CallShape::Method { "?" } else { "" };
        let receiver = call.receiver().unwrap_or_else(|| unnamed.to_owned());
        let last = receiver.rsplit('.').next().unwrap_or_default();
        let wanted = |known: &String| *known == receiver || known == last;
        (rule.receivers.is_empty() || rule.receivers.iter().any(wanted)).then_some(rule)
    }

    /// The arguments of a call that are topics.
    fn arguments(&self, file: usize, call: &'a Call, rule: &CallRule) -> Vec<(Span, &'a Expr)> {
        if let Some((span, of)) = &call.type_argument
            && let Some(chosen) = self.by_type(file, call, (span, of), rule)
        {
            return chosen;
        }
        let one = |argument: Option<&'a Argument>| {
            argument.map(|found| (found.span.clone(), &found.value)).into_iter().collect::<Vec<_>>()
        };
        if let Some(property) = &rule.property {
            let options = call.argument(rule.argument.unwrap_or(0), "options");
            return self.by_property(file, options, property);
        }
        if let Some(index) = rule.argument {
            return one(call.argument(index, "topic"));
        }
        let named = call.arguments.iter().find(|of| of.keyword.as_deref() == Some("topic"));
        match call.shape {
            CallShape::Attribute => one(named),
            CallShape::Method => one(named.or(call.argument(0, "topic"))),
            CallShape::Function | CallShape::Macro => {
                if named.is_some() {
                    return one(named);
                }
                let text = |index: usize| {
                    let argument = call.argument(index, "")?;
                    let texts = self.texts(file, &argument.value);
                    (!texts.known.is_empty()).then_some(argument)
                };
                if let Some(found) = text(0).or_else(|| text(1)) {
                    return one(Some(found));
                }
                let listed = |of: &&Argument| {
                    rule.kind == CallKind::Define
                        && of
                            .keyword
                            .as_ref()
                            .is_some_and(|key| key.starts_with(char::is_uppercase))
                };
                let listed: Vec<_> = call.arguments.iter().filter(listed).collect();
                if !listed.is_empty() {
                    return listed.iter().map(|of| (of.span.clone(), &of.value)).collect();
                }
                one(call.argument(usize::from(begins_with_bus(call)), "topic"))
            }
        }
    }

    /// `consume::<Heartbeat>("ops")`: the type is the topic, unless it says nothing.
    fn by_type(
        &self,
        file: usize,
        call: &'a Call,
        (span, of): (&Span, &'a Expr),
        rule: &CallRule,
    ) -> Option<Vec<(Span, &'a Expr)>> {
        let by_type = || Some(vec![(span.clone(), of)]);
        let typed = !self.texts(file, of).known.is_empty();
        if rule.kind == CallKind::Publish {
            // `publish::<Beat>("heartbeat.received", beat)`: the name wins where there is one.
            let first = call.arguments.first().map(|first| self.texts(file, &first.value));
            let named = first.is_some_and(|texts| !texts.known.is_empty());
            return if typed && !named { by_type() } else { None };
        }
        let untyped = match of {
            Expr::Path { parts, .. } => {
                parts.last().is_none_or(|last| matches!(&**last, "Value" | "String" | "str" | "_"))
            }
            _ => true,
        };
        if typed || !untyped { by_type() } else { None }
    }

    fn by_property(
        &self,
        file: usize,
        options: Option<&'a Argument>,
        property: &str,
    ) -> Vec<(Span, &'a Expr)> {
        let Some(options) = options else {
            return Vec::new();
        };
        for value in self.resolver.look(&Place::new(file), &options.value) {
            let Value::Object(place, entries) = value else {
                continue;
            };
            let named = |key: &Expr| matches!(key, Expr::Text(name) if &**name == property);
            let entry = entries.iter().find(|entry| entry.key.as_ref().is_some_and(named));
            if let Some(entry) = entry.filter(|_| place.file == file) {
                return vec![(entry.span.clone(), &entry.value)];
            }
        }
        vec![(options.span.clone(), &options.value)]
    }

    fn texts(&self, file: usize, value: &'a Expr) -> Texts {
        self.resolver.texts(&Place::new(file), value)
    }

    fn judge(&mut self, candidate: &Candidate<'a>, (span, value): (Span, &'a Expr)) {
        // `observable.subscribe({ next() {} })` is somebody else's.
        if is_foreign(value) {
            return;
        }
        let texts = self.texts(candidate.file, value);
        let version = crate::headers::version_of(
            self.resolver,
            (candidate.file, candidate.call),
            candidate.kind,
        );
        let site = |topic: Option<String>| TopicUse {
            file: candidate.file,
            span: span.clone(),
            kind: candidate.kind,
            call: candidate.name.to_owned(),
            topic,
            written: self.written(candidate.file, &span),
            version,
        };
        let known: Vec<_> = texts.known.into_iter().map(|topic| site(Some(topic))).collect();
        if texts.unknown {
            let open = site(None);
            match self.parameter(candidate.file, value) {
                Some(parameter) => self.waiting.push((parameter, open)),
                None => self.sites.topics.push(open),
            }
        }
        self.sites.topics.extend(known);
    }

    fn written(&self, file: usize, span: &Span) -> String {
        let whole = self.resolver.files.get(file).map_or("", |file| file.slice(span));
        let words: Vec<&str> = whole.split_whitespace().collect();
        let text = words.join(" ");
        match text.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or("")),
            None => text,
        }
    }

    /// The function and parameter that a bare name is.
    fn parameter(&self, file: usize, value: &Expr) -> Option<Parameter> {
        let value = match value {
            Expr::Call(call) if call.arguments.is_empty() || call.shape == CallShape::Function => {
                match (&call.callee, call.arguments.first()) {
                    (Expr::Path { at, parts }, None) => {
                        Expr::Path { at: *at, parts: parts.iter().take(1).cloned().collect() }
                    }
                    (_, Some(first)) => first.value.clone(),
                    _ => return None,
                }
            }
            other => other.clone(),
        };
        let Expr::Path { at, parts } = value else {
            return None;
        };
        let [name] = parts.as_slice() else {
            return None;
        };
        match self.resolver.facts(file)?.lookup(name, at).as_slice() {
            [Bound::Parameter { function, index }] => Some((file, *function, *index)),
            _ => None,
        }
    }

    /// What a parameter is where a caller says nothing.
    fn default_of(&mut self, (file, function, index): Parameter, open: &TopicUse) {
        let of = self.resolver.facts(file).and_then(|facts| facts.functions.get(&function));
        let Some((span, value)) = of.and_then(|of| of.defaults.get(&index)) else {
            return;
        };
        for topic in self.texts(file, value).known {
            let written = self.written(file, span);
            let (span, topic) = (span.clone(), Some(topic));
            self.sites.topics.push(TopicUse { file, span, topic, written, ..open.clone() });
        }
    }

    /// Goes from functions that pass a parameter on as a topic to those who call them. Where nobody
    /// does, the call inside stays, as dynamic.
    fn follow_parameters(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let mut callers = Callers::default();
        let mut seen: HashSet<(Parameter, CallKind)> = HashSet::new();
        while let Some((parameter, open)) = self.waiting.pop() {
            let (file, function, index) = parameter;
            let calls = callers.of(self.resolver, file, function);
            if calls.is_empty() {
                self.default_of(parameter, &open);
                self.sites.topics.push(open);
                continue;
            }
            if !seen.insert((parameter, open.kind)) {
                continue;
            }
            let of = self.resolver.facts(file).and_then(|facts| facts.functions.get(&function));
            let name = of.and_then(|of| of.parameters.get(index)).map_or("", |name| &**name);
            if calls.iter().any(|(_, call)| call.argument(index, name).is_none()) {
                self.default_of(parameter, &open);
            }
            for (file, call) in calls {
                let called = call.name().unwrap_or_default();
                let candidate = Candidate { file, call, kind: open.kind, name: called };
                if open.kind == CallKind::Publish {
                    let headers = crate::headers::of_call(self.resolver, file, call);
                    self.sites.headers.extend(headers);
                }
                if let Some(argument) = call.argument(index, name) {
                    self.judge(&candidate, (argument.span.clone(), &argument.value));
                }
            }
        }
    }
}

fn begins_with_bus(call: &Call) -> bool {
    match call.arguments.first().map(|first| &first.value) {
        Some(Expr::Path { parts, .. }) => {
            call.arguments.len() > 1 && parts.last().is_some_and(|last| BUSES.contains(&&**last))
        }
        _ => false,
    }
}

/// An object of options without a topic cannot be one.
fn is_foreign(value: &Expr) -> bool {
    let Expr::Object(entries) = value else {
        return false;
    };
    !entries.iter().any(|entry| {
        entry.key.is_none() || matches!(&entry.key, Some(Expr::Text(key)) if &**key == "topic")
    })
}
