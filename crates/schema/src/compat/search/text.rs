//! Strings: lengths, languages, listed values, and predicates only the engine can answer.

use std::rc::Rc;

use serde_json::Value;

use super::{Outcome, Search, oracle};
use crate::compat::regex::product::{self, Product};
use crate::compat::regex::words;
use crate::compat::term::{Lit, PatternId, Scalar, Term};

/// Words that are tried against predicates which only the engine can answer.
const TRIES: usize = 64;

#[derive(Debug, Default)]
struct Texts {
    min: u64,
    max: Option<u64>,
    languages: Vec<(PatternId, bool)>,
    opaque: Vec<Lit>,
    contradiction: bool,
}

impl Search<'_> {
    pub(super) fn text(&mut self, facts: &[Lit]) -> Outcome {
        let texts = self.collect_texts(facts);
        if texts.contradiction || texts.max.is_some_and(|max| max < texts.min) {
            return Outcome::Empty;
        }
        let (allowed, excluded) = self.listed(facts);
        match allowed {
            Some(allowed) => self.among_texts(&texts, &allowed, &excluded),
            None => self.any_text(&texts, &excluded),
        }
    }

    fn collect_texts(&mut self, facts: &[Lit]) -> Texts {
        let mut texts = Texts::default();
        let narrow = |max: &mut Option<u64>, bound: u64| {
            *max = Some(max.map_or(bound, |max| max.min(bound)));
        };
        for lit in facts {
            match (self.pool.term(*lit), lit.negated()) {
                (Term::MinLength(bound), false) => texts.min = texts.min.max(*bound),
                (Term::MinLength(bound), true) => match bound.checked_sub(1) {
                    Some(most) => narrow(&mut texts.max, most),
                    None => texts.contradiction = true,
                },
                (Term::MaxLength(bound), false) => narrow(&mut texts.max, *bound),
                (Term::MaxLength(bound), true) => {
                    texts.min = texts.min.max(bound.saturating_add(1))
                }
                (Term::Pattern(pattern), negated) => {
                    let pattern = *pattern;
                    match self.pool.automaton(pattern) {
                        Ok(_) => texts.languages.push((pattern, !negated)),
                        Err(_) => texts.opaque.push(*lit),
                    }
                }
                (Term::Format(format), negated) => {
                    let superset = oracle::superset(format).filter(|_| !negated);
                    texts.opaque.push(*lit);
                    if let Some(superset) = superset {
                        let pattern = self.pool.pattern(superset);
                        if self.pool.automaton(pattern).is_ok() {
                            texts.languages.push((pattern, true));
                        }
                    }
                }
                _ => {}
            }
        }
        texts.languages.sort_unstable();
        texts
    }

    /// Whether a text is in all languages and of a good length.
    fn fits(&mut self, texts: &Texts, text: &str) -> bool {
        let length = text.chars().count() as u64;
        length >= texts.min
            && texts.max.is_none_or(|max| length <= max)
            && texts.languages.iter().all(|(pattern, wanted)| {
                self.pool.automaton(*pattern).is_ok_and(|dfa| dfa.contains(text) == *wanted)
            })
    }

    fn among_texts(&mut self, texts: &Texts, allowed: &[Scalar], excluded: &[Scalar]) -> Outcome {
        let mut outcome = Outcome::Empty;
        for scalar in allowed {
            let Scalar::Text(text) = scalar else { continue };
            if excluded.binary_search(scalar).is_ok() || !self.fits(texts, text) {
                continue;
            }
            outcome = outcome.or(self.ask(&texts.opaque, text));
            if matches!(outcome, Outcome::Found(_)) {
                break;
            }
        }
        outcome
    }

    fn any_text(&mut self, texts: &Texts, excluded: &[Scalar]) -> Outcome {
        let Some(product) = self.product(&texts.languages) else {
            return Outcome::unknown("patterns whose joint automaton is larger than the limit");
        };
        let extra = if texts.opaque.is_empty() { 1 } else { TRIES };
        let Some(words) = words::words(&product, texts.min, texts.max, excluded.len() + extra)
        else {
            return Outcome::unknown("a string longer than is written out");
        };
        self.spend(words.found.len());
        let mut outcome = Outcome::Empty;
        let samples = self.samples(&texts.opaque);
        let samples = samples.into_iter().filter(|text| self.fits(texts, text)).collect::<Vec<_>>();
        for text in words.found.iter().chain(&samples) {
            if excluded.binary_search(&Scalar::Text(text.as_str().into())).is_ok() {
                continue;
            }
            outcome = outcome.or(self.ask(&texts.opaque, text));
            if matches!(outcome, Outcome::Found(_)) {
                return outcome;
            }
        }
        if words.complete { outcome } else { outcome.or(self.blame(&texts.opaque)) }
    }

    /// So many different strings, where lengths and patterns are all that is asked of them.
    pub(super) fn plain_texts(&mut self, facts: &[Lit], wanted: usize) -> Option<Vec<String>> {
        let texts = self.collect_texts(facts);
        let (allowed, excluded) = self.listed(facts);
        if texts.contradiction || allowed.is_some() || !texts.opaque.is_empty() {
            return None;
        }
        let product = self.product(&texts.languages)?;
        self.spend(wanted + excluded.len());
        let words = words::words(&product, texts.min, texts.max, wanted + excluded.len())?;
        let is_excluded =
            |text: &String| excluded.binary_search(&Scalar::Text(text.as_str().into())).is_ok();
        let mut found = words.found;
        found.retain(|text| !is_excluded(text));
        found.truncate(wanted);
        (found.len() == wanted).then_some(found)
    }

    fn blame(&mut self, opaque: &[Lit]) -> Outcome {
        let Some(lit) = opaque.first() else {
            return Outcome::unknown("a set of strings that was not exhausted");
        };
        match self.pool.term(*lit).clone() {
            Term::Pattern(pattern) => {
                let problem =
                    self.pool.automaton(pattern).err().map_or("", |problem| problem.describe());
                let text = self.pool.pattern_text(pattern);
                Outcome::unknown(format!("pattern {text:?} with {problem}"))
            }
            Term::Format(format) => Outcome::unknown(format!("format {format:?}")),
            _ => Outcome::unknown("an opaque predicate on strings"),
        }
    }

    fn product(&mut self, languages: &[(PatternId, bool)]) -> Option<Rc<Product>> {
        if let Some(known) = self.products.get(languages) {
            return known.clone();
        }
        let parts = languages
            .iter()
            .filter_map(|(pattern, wanted)| Some((self.pool.automaton(*pattern).ok()?, *wanted)))
            .collect::<Vec<_>>();
        let made = product::product(&parts).map(Rc::new);
        let arrows = made.as_ref().map_or(product::ARROWS_MAX, |made| made.arrow_count());
        self.spend(arrows * languages.len().max(1));
        self.products.insert(languages.to_vec(), made.clone());
        made
    }

    /// Asks the engine whether a text meets the predicates that are not modelled.
    fn ask(&mut self, opaque: &[Lit], text: &str) -> Outcome {
        let value = Value::String(text.to_owned());
        for lit in opaque {
            match self.oracle(*lit) {
                Some(oracle) if oracle.is_valid(&value) == lit.negated() => return Outcome::Empty,
                Some(_) => {}
                None => return self.blame(&[*lit]),
            }
        }
        Outcome::found(value)
    }
}
