//! All the ways in which a pair breaks, not only the first.
//!
//! The reader's schema is taken apart into its conditions, down through properties; each condition
//! that some value of the writer fails gets a counter-example of its own.

use serde_json::Value;

use super::search::Search;
use super::term::{Lit, Term};
use super::{Answer, Comparison};
use crate::limits::FINDINGS_MAX;

/// Most conditions that are asked about.
const CONDITIONS_MAX: usize = 256;

/// How deep properties are taken apart.
const DEPTH_MAX: usize = 6;

/// Adds a counter-example per condition that breaks.
pub(super) fn more_examples(
    comparison: &Comparison<'_>,
    search: &mut Search<'_>,
    (writer, reader): (Lit, Lit),
    examples: &mut Vec<Value>,
) {
    let mut conditions = Vec::new();
    take_apart(search, reader, 0, &mut conditions);
    if conditions.len() < 2 {
        return;
    }
    let first = std::mem::take(examples);
    for condition in conditions {
        if examples.len() >= FINDINGS_MAX {
            break;
        }
        if let Answer::Examples(found) = comparison.first_example(search, &[writer, !condition]) {
            examples.extend(found);
        }
    }
    if examples.is_empty() {
        *examples = first;
    }
}

fn take_apart(search: &mut Search<'_>, lit: Lit, depth: usize, out: &mut Vec<Lit>) {
    if out.len() >= CONDITIONS_MAX {
        return;
    }
    let whole = depth >= DEPTH_MAX || lit.negated();
    match search.pool.term(lit).clone() {
        Term::All(parts) if !whole => {
            for part in parts {
                take_apart(search, part, depth, out);
            }
        }
        Term::Link(link) if !whole => {
            let target = search.pool.link(link);
            take_apart(search, target, depth + 1, out);
        }
        Term::Property(name, value) if !whole => {
            let mut inner = Vec::new();
            take_apart(search, value, depth + 1, &mut inner);
            out.extend(
                inner
                    .into_iter()
                    .map(|value| search.pool.intern(Term::Property(name.clone(), value))),
            );
        }
        Term::ItemsFrom(from, value) if !whole => {
            let mut inner = Vec::new();
            take_apart(search, value, depth + 1, &mut inner);
            out.extend(
                inner.into_iter().map(|value| search.pool.intern(Term::ItemsFrom(from, value))),
            );
        }
        _ => out.push(lit),
    }
}
