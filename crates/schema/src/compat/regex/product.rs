//! Several languages at once: the strings in all of some and in none of others.

use std::collections::HashMap;
use std::sync::Arc;

use super::class::{Class, Range};
use super::dfa::{self, Dfa};

/// Most arrows of a product; more ends undecided.
pub(crate) const ARROWS_MAX: usize = 100_000;

/// The joint automaton, with every state from which nothing is accepted cut away.
#[derive(Debug, Clone)]
pub(crate) struct Product {
    /// Per state: whether it accepts, and its arrows.
    pub(crate) rows: Vec<(bool, Vec<(Range, usize)>)>,
}

/// Joins automata; the flag says whether a string must be in the language or must not.
/// `None` if the product is too large.
pub(crate) fn product(parts: &[(Arc<Dfa>, bool)]) -> Option<Product> {
    let first = vec![0; parts.len()];
    let mut order = vec![first.clone()];
    let mut seen = HashMap::from([(first, 0)]);
    let mut rows: Vec<(bool, Vec<(Range, usize)>)> = Vec::new();
    let mut arrow_count = 0;
    while let Some(states) = order.get(rows.len()).cloned() {
        let accept =
            parts.iter().zip(&states).all(|((dfa, wanted), state)| dfa.accepts(*state) == *wanted);
        let mut arrows = Vec::new();
        for (range, targets) in joint_steps(parts, &states) {
            let next = seen.len();
            let to = *seen.entry(targets).or_insert_with_key(|targets| {
                order.push(targets.clone());
                next
            });
            arrows.push((range, to));
        }
        arrow_count += arrows.len();
        rows.push((accept, arrows));
        if arrow_count > ARROWS_MAX {
            return None;
        }
    }
    let mut product = Product { rows };
    product.trim();
    Some(product)
}

fn joint_steps(parts: &[(Arc<Dfa>, bool)], states: &[usize]) -> Vec<(Range, Vec<usize>)> {
    let any = Class::any();
    let mut joint: Vec<(Range, Vec<usize>)> =
        any.ranges().iter().map(|range| (*range, Vec::new())).collect();
    for ((dfa, _), state) in parts.iter().zip(states) {
        let indexed: Vec<(Range, usize)> =
            joint.iter().enumerate().map(|(index, (range, _))| (*range, index)).collect();
        let merged = dfa::overlay(&indexed, dfa.arrows(*state));
        joint = merged
            .into_iter()
            .filter_map(|(range, (index, to))| {
                let mut targets = joint.get(index)?.1.clone();
                targets.push(to);
                Some((range, targets))
            })
            .collect();
    }
    joint
}

impl Product {
    /// How large it is.
    pub(crate) fn arrow_count(&self) -> usize {
        self.rows.iter().map(|(_, arrows)| arrows.len() + 1).sum()
    }

    /// Drops arrows into states from which nothing is accepted.
    fn trim(&mut self) {
        let mut sources: Vec<Vec<usize>> = vec![Vec::new(); self.rows.len()];
        for (from, (_, arrows)) in self.rows.iter().enumerate() {
            for (_, to) in arrows {
                if let Some(list) = sources.get_mut(*to) {
                    list.push(from);
                }
            }
        }
        let mut live: Vec<bool> = self.rows.iter().map(|(accept, _)| *accept).collect();
        let mut stack: Vec<usize> =
            live.iter().enumerate().filter(|(_, live)| **live).map(|(index, _)| index).collect();
        while let Some(state) = stack.pop() {
            for &from in sources.get(state).map_or(&[][..], Vec::as_slice) {
                if let Some(flag) = live.get_mut(from).filter(|flag| !**flag) {
                    *flag = true;
                    stack.push(from);
                }
            }
        }
        for (_, arrows) in &mut self.rows {
            arrows.retain(|(_, to)| live.get(*to) == Some(&true));
        }
    }
}
