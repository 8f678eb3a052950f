//! Predicates on strings that are not modelled: formats, and patterns that are not regular.
//! Single strings can still be put to the engine.

use std::rc::Rc;

use serde_json::json;

use super::Search;
use crate::compat::term::{Lit, PatternId, Term};
use crate::validate::{Formats, Validator};

/// Strings that show what a format looks like.
const SAMPLES: [(&str, &[&str]); 18] = [
    ("date", &["2024-02-29", "1999-12-31"]),
    ("date-time", &["2024-02-29T12:00:00Z", "1999-12-31T23:59:59.5+01:00"]),
    ("time", &["12:00:00Z", "23:59:59.5+01:00"]),
    ("duration", &["P1D", "PT1H"]),
    ("email", &["a@example.com", "\"a b\"@example.com"]),
    ("idn-email", &["a@example.com", "ä@exämple.com"]),
    ("hostname", &["example.com", "a"]),
    ("idn-hostname", &["example.com", "exämple.com"]),
    ("ipv4", &["127.0.0.1", "10.0.0.255"]),
    ("ipv6", &["::1", "2001:db8::1"]),
    ("uri", &["https://example.com/a", "urn:a:b"]),
    ("uri-reference", &["https://example.com/a", "a/b"]),
    ("iri", &["https://exämple.com/a", "urn:a:b"]),
    ("iri-reference", &["https://exämple.com/a", "ä/b"]),
    ("uri-template", &["https://example.com/{a}", "a"]),
    ("uuid", &["00000000-0000-4000-8000-000000000000"]),
    ("json-pointer", &["/a/0", ""]),
    ("relative-json-pointer", &["0", "1/a"]),
];

/// Languages that hold every string of a format. What is not in them cannot be of the format;
/// the rest is still put to the engine.
const SUPERSETS: [(&str, &str); 8] = [
    ("date", r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"),
    ("date-time", r"^\d{4}-\d\d-\d\d[^]\d\d:\d\d:\d\d([.]\d+)?([zZ]|[+-]\d\d:\d\d)$"),
    ("time", r"^\d\d:\d\d:\d\d([.]\d+)?([zZ]|[+-]\d\d:\d\d)$"),
    ("ipv4", r"^(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}$"),
    ("ipv6", r"^[0-9a-fA-F:.]{2,45}$"),
    ("uuid", r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"),
    ("email", "@"),
    ("uri", "^[A-Za-z][A-Za-z0-9+.-]*:"),
];

/// The language that holds every string of a format, if one is known.
pub(super) fn superset(format: &str) -> Option<&'static str> {
    SUPERSETS.iter().find(|(name, _)| *name == format).map(|(_, pattern)| *pattern)
}

impl Search<'_> {
    /// A validator for one predicate, made once.
    pub(super) fn oracle(&mut self, lit: Lit) -> Option<Rc<Validator>> {
        let key = if lit.negated() { !lit } else { lit };
        if let Some(known) = self.oracles.get(&key) {
            return known.clone();
        }
        let schema = match self.pool.term(key) {
            Term::Pattern(pattern) => json!({"pattern": self.pool.pattern_text(*pattern)}),
            Term::Format(format) => json!({"format": format}),
            _ => json!(true),
        };
        let made = Validator::compile(&schema, self.dialect, Formats::Assert).ok().map(Rc::new);
        self.oracles.insert(key, made.clone());
        made
    }

    /// Strings worth trying: those of the formats at hand.
    pub(super) fn samples(&self, opaque: &[Lit]) -> Vec<String> {
        let mut found = Vec::new();
        for lit in opaque {
            let Term::Format(format) = self.pool.term(*lit) else {
                continue;
            };
            for (name, texts) in SAMPLES {
                if name == format.as_ref() {
                    found.extend(texts.iter().map(|text| (*text).to_owned()));
                }
            }
        }
        found
    }

    /// Whether a name matches a pattern; `None` if not even the engine can say.
    pub(super) fn matches(&mut self, pattern: PatternId, name: &str) -> Option<bool> {
        if let Ok(dfa) = self.pool.automaton(pattern) {
            return Some(dfa.contains(name));
        }
        let lit = self.pool.intern(Term::Pattern(pattern));
        let oracle = self.oracle(lit)?;
        Some(oracle.is_valid(&serde_json::Value::String(name.to_owned())))
    }
}
