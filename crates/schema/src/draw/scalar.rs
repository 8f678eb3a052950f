use std::sync::Arc;

use serde_json::{Number, Value};

use super::{Sampler, Together};
use crate::compat::regex::{self, Dfa};

/// Characters that texts are made of.
const LETTERS: [char; 8] = ['a', 'b', 'c', 'x', 'Z', '0', '-', 'é'];

/// Longest text that is drawn without need.
const TEXT_CHARS_MAX: usize = 12;

/// Longest text that is drawn at all.
const TEXT_CHARS_LIMIT: usize = 10_000;

/// An example of each format that is common.
const FORMATS: [(&str, &str); 9] = [
    ("date-time", "2026-11-16T08:00:00Z"),
    ("date", "2026-11-16"),
    ("time", "08:00:00Z"),
    ("email", "a@example.com"),
    ("uri", "https://example.com/a"),
    ("uuid", "018c2e65-4b00-7000-8000-000000000001"),
    ("ipv4", "192.0.2.1"),
    ("ipv6", "2001:db8::1"),
    ("hostname", "example.com"),
];

/// A pattern as an automaton, with the states from which a word can still be finished.
#[derive(Debug)]
pub(super) struct Language {
    automaton: Dfa,
    live: Vec<bool>,
}

impl Language {
    fn new(automaton: Dfa) -> Self {
        let states = automaton.len();
        let mut live: Vec<bool> = (0..states).map(|state| automaton.accepts(state)).collect();
        loop {
            let before = live.iter().filter(|live| **live).count();
            for state in 0..states {
                let leads = |(_, to): &(_, usize)| live.get(*to).copied().unwrap_or(false);
                let alive = automaton.arrows(state).iter().any(leads);
                if let Some(flag) = live.get_mut(state) {
                    *flag |= alive;
                }
            }
            if live.iter().filter(|live| **live).count() == before {
                return Self { automaton, live };
            }
        }
    }

    fn is_live(&self, state: usize) -> bool {
        self.live.get(state).copied().unwrap_or(false)
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.automaton.contains(text)
    }
}

impl<'a> Sampler<'a> {
    pub(super) fn number(&mut self, together: &Together<'a>, integer: bool) -> Value {
        let bounds = |keys: [&'a str; 2]| {
            keys.into_iter().flat_map(|key| together.all(key).filter_map(Value::as_f64))
        };
        let low = bounds(["minimum", "exclusiveMinimum"]).reduce(f64::max);
        let high = bounds(["maximum", "exclusiveMaximum"]).reduce(f64::min);
        let step = together.all("multipleOf").filter_map(Value::as_f64).reduce(f64::max);
        let step = step.unwrap_or(if integer { 1.0 } else { 0.5 });
        let from = low.or(high.map(|high| high - 8.0 * step)).unwrap_or(-2.0 * step);
        // Around the bound, where the mistakes are; and sometimes far from it.
        let steps = if self.random.chance(10) { 1_000 } else { 7 };
        let steps = self.random.below(steps) as f64;
        let first = (from / step).ceil();
        let value = match (low, high) {
            (None, None) | (Some(_), _) => (first + steps) * step,
            (None, Some(high)) => ((high / step).floor() - steps) * step,
        };
        as_json(value, integer)
    }

    pub(super) fn text(&mut self, together: &Together<'a>) -> Value {
        let formats = together.all("format").filter_map(Value::as_str);
        let known = formats
            .filter_map(|format| FORMATS.iter().find(|(name, _)| *name == format))
            .map(|(_, example)| *example);
        if let Some(example) = known.last().filter(|_| self.random.chance(80)) {
            return Value::String(example.to_owned());
        }
        let (min, max) = (together.at_least("minLength"), together.at_most("maxLength"));
        // A long text counts as many values: it takes as long to make.
        self.left = self.left.saturating_sub(min / 16);
        let max = max.unwrap_or(usize::MAX).min(min.saturating_add(TEXT_CHARS_MAX));
        let pattern = together.all("pattern").filter_map(Value::as_str).last();
        let language = pattern.and_then(|pattern| self.language(pattern));
        Value::String(match language {
            Some(language) => self.word(&language, (min, max)),
            None => {
                let length = min.saturating_add(self.random.below(max.saturating_sub(min) + 1));
                (0..length.min(TEXT_CHARS_LIMIT)).map(|_| self.letter()).collect()
            }
        })
    }

    fn letter(&mut self) -> char {
        self.random.pick(&LETTERS).copied().unwrap_or('a')
    }

    /// The language of a pattern, made once; `None` if it is not regular.
    pub(super) fn language(&mut self, pattern: &str) -> Option<Arc<Language>> {
        if let Some(known) = self.patterns.get(pattern) {
            return known.clone();
        }
        let made = regex::compile(pattern).ok().map(Language::new).map(Arc::new);
        self.patterns.insert(pattern.to_owned(), made.clone());
        made
    }

    /// A walk through the automaton that ends in a state that accepts, if it comes to one.
    pub(super) fn word(&mut self, language: &Language, (min, max): (usize, usize)) -> String {
        let automaton = &language.automaton;
        let mut word = String::new();
        let (mut state, mut length) = (0, 0);
        let mut accepted = None;
        while length <= max.min(TEXT_CHARS_LIMIT) {
            if automaton.accepts(state) && length >= min {
                accepted = Some(word.len());
                if self.random.chance(35) {
                    break;
                }
            }
            let arrows = automaton.arrows(state);
            let live: Vec<_> = arrows.iter().filter(|(_, to)| language.is_live(*to)).collect();
            let Some(&&((low, high), next)) = self.random.pick(&live) else {
                break;
            };
            word.push(self.within(low, high));
            state = next;
            length += 1;
        }
        if let Some(end) = accepted {
            word.truncate(end);
        }
        word
    }

    /// A character of a range; a plain one if there is one.
    fn within(&mut self, low: u32, high: u32) -> char {
        let plain: Vec<char> =
            LETTERS.into_iter().filter(|&c| (low..=high).contains(&(c as u32))).collect();
        if let Some(&letter) = self.random.pick(&plain) {
            return letter;
        }
        let span = usize::try_from(high.saturating_sub(low)).unwrap_or(0).min(25);
        let code = low + u32::try_from(self.random.below(span + 1)).unwrap_or(0);
        char::from_u32(code).or_else(|| char::from_u32(low)).unwrap_or('a')
    }
}

fn as_json(value: f64, integer: bool) -> Value {
    let whole = value.fract() == 0.0 && value.abs() < 9e15;
    if whole || integer {
        return Value::Number(Number::from(value as i64));
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
