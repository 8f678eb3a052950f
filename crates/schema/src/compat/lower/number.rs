//! The keywords of numbers and strings.

use serde_json::{Map, Value};

use super::Lowering;
use crate::compat::exact::{self, Exact};
use crate::compat::term::{Lit, Term};
use crate::dialect::Dialect;
use crate::validate::Formats;

impl Lowering<'_> {
    pub(super) fn numbers(&mut self, map: &Map<String, Value>, lits: &mut Vec<Lit>) {
        let number = |key: &str| match map.get(key) {
            Some(Value::Number(number)) => exact::from_number(number),
            _ => None,
        };
        let flag = |key: &str| {
            self.dialect == Dialect::Draft4 && map.get(key).and_then(Value::as_bool) == Some(true)
        };
        let terms = [
            number("minimum").map(|bound| Term::Least(bound, flag("exclusiveMinimum"))),
            number("maximum").map(|bound| Term::Most(bound, flag("exclusiveMaximum"))),
            number("exclusiveMinimum").map(|bound| Term::Least(bound, true)),
            number("exclusiveMaximum").map(|bound| Term::Most(bound, true)),
            number("multipleOf").map(Term::MultipleOf),
        ];
        lits.extend(terms.into_iter().flatten().map(|term| self.pool.intern(term)));
    }

    pub(super) fn strings(&mut self, map: &Map<String, Value>, lits: &mut Vec<Lit>) {
        if let Some(min) = count(map, "minLength") {
            lits.push(self.pool.intern(Term::MinLength(min)));
        }
        if let Some(max) = count(map, "maxLength") {
            lits.push(self.pool.intern(Term::MaxLength(max)));
        }
        if let Some(Value::String(pattern)) = map.get("pattern") {
            let id = self.pool.pattern(pattern);
            lits.push(self.pool.intern(Term::Pattern(id)));
        }
        if let Some(Value::String(format)) = map.get("format") {
            // A format that the validator does not know is a note to it, so it is one to us.
            let known = || jsonschema::options().is_known_format(self.dialect.engine(), format);
            if self.options.formats == Formats::Assert && known() {
                lits.push(self.pool.intern(Term::Format(format.as_str().into())));
            }
        }
    }
}

/// A count: a whole number that is not negative, `3.0` included. One too large for any value that
/// could exist is the largest.
pub(super) fn count(map: &Map<String, Value>, key: &str) -> Option<u64> {
    let Some(Value::Number(number)) = map.get(key) else {
        return None;
    };
    let value = exact::from_number(number)?;
    if !value.is_integer() || value < Exact::from_integer(0.into()) {
        return None;
    }
    Some(u64::try_from(value.to_integer()).unwrap_or(u64::MAX))
}
