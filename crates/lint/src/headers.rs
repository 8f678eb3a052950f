//! The headers that a call gives to an event, and the schema version among them.

use crate::facts::{Call, Entry, Expr, Span};
use crate::resolve::{Place, Resolver, Value};
use crate::settings::CallKind;

/// A header name in code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeaderUse {
    pub(crate) file: usize,
    /// The key.
    pub(crate) span: Span,
    pub(crate) name: String,
}

/// The header by which a writer says which version it writes.
const VERSION_HEADER: &str = "x-schema-version";

/// `{ headers: { … } }` among the arguments, and Python's `headers={…}`.
pub(crate) fn of_call<'a>(resolver: &Resolver<'a>, file: usize, call: &'a Call) -> Vec<HeaderUse> {
    let mut found = Vec::new();
    for (place, entries) in objects(resolver, file, call) {
        keys(resolver, &place, entries, 0, &mut found);
    }
    found
}

/// `bus.publish(event).header("x-a", "b")`
pub(crate) fn of_chain<'a>(
    resolver: &Resolver<'a>,
    file: usize,
    call: &'a Call,
) -> Option<HeaderUse> {
    let publishes = |name: &str| {
        let rule = resolver.settings.calls.get(name);
        rule.is_some_and(|rule| rule.kind == CallKind::Publish)
    };
    if call.name() != Some("header") || !call.chain.iter().any(|name| publishes(name)) {
        return None;
    }
    let first = call.arguments.first()?;
    let texts = resolver.texts(&Place::new(file), &first.value);
    let name = texts.known.into_iter().next()?;
    Some(HeaderUse { file, span: first.span.clone(), name })
}

/// The header objects that the arguments of a call lead to.
fn objects<'a>(
    resolver: &Resolver<'a>,
    file: usize,
    call: &'a Call,
) -> Vec<(Place<'a>, &'a [Entry])> {
    let mut found = Vec::new();
    let mut add = |place: &Place<'a>, value: &'a Expr| {
        for value in resolver.look(place, value) {
            if let Value::Object(place, entries) = value {
                found.push((place, entries));
            }
        }
    };
    for argument in &call.arguments {
        let here = Place::new(file);
        if argument.keyword.as_deref() == Some("headers") {
            add(&here, &argument.value);
            continue;
        }
        for value in resolver.look(&here, &argument.value) {
            let Value::Object(place, entries) = value else {
                continue;
            };
            for entry in entries.iter().filter(|entry| is_named(entry, "headers")) {
                add(&place, &entry.value);
            }
        }
    }
    found
}

fn is_named(entry: &Entry, name: &str) -> bool {
    matches!(&entry.key, Some(Expr::Text(key)) if &**key == name)
}

/// How deep spreads of headers into headers are followed.
const SPREAD_DEPTH_MAX: usize = 8;

fn keys<'a>(
    resolver: &Resolver<'a>,
    place: &Place<'a>,
    entries: &'a [Entry],
    depth: usize,
    found: &mut Vec<HeaderUse>,
) {
    for entry in entries {
        match &entry.key {
            Some(key) => {
                for name in resolver.texts(place, key).known {
                    found.push(HeaderUse { file: place.file, span: entry.span.clone(), name });
                }
            }
            None if depth < SPREAD_DEPTH_MAX => {
                for value in resolver.look(place, &entry.value) {
                    if let Value::Object(place, entries) = value {
                        keys(resolver, &place, entries, depth + 1, found);
                    }
                }
            }
            None => {}
        }
    }
}

/// The schema version that a call names: `version` where it defines the topic, `schema_version`
/// where it uses it, or the header. A payload may have a `version` of its own.
pub(crate) fn version_of<'a>(
    resolver: &Resolver<'a>,
    (file, call): (usize, &'a Call),
    kind: CallKind,
) -> Option<u32> {
    let here = Place::new(file);
    let number = |place: &Place<'a>, value: &'a Expr| {
        resolver.look(place, value).into_iter().find_map(|value| match value {
            Value::Number(number) => Some(number),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        })
    };
    let names: &[&str] = match kind {
        CallKind::Define => &["version"],
        _ => &["schema_version", "schemaVersion"],
    };
    let keyword = |name: &str| names.contains(&name);
    let named = call.arguments.iter().find(|of| of.keyword.as_deref().is_some_and(keyword));
    if let Some(named) = named {
        return number(&here, &named.value);
    }
    for argument in &call.arguments {
        let Expr::Object(entries) = &argument.value else {
            continue;
        };
        let found = entries.iter().find(|entry| names.iter().any(|name| is_named(entry, name)));
        if let Some(entry) = found {
            return number(&here, &entry.value);
        }
    }
    for (place, entries) in objects(resolver, file, call) {
        if let Some(entry) = entries.iter().find(|entry| is_named(entry, VERSION_HEADER)) {
            return number(&place, &entry.value);
        }
    }
    None
}
