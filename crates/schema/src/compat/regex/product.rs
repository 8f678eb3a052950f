//! Several languages at once: the strings in all of some and in none of others.

use std::collections::HashMap;
use std::sync::Arc;

use super::class::{Class, Range};
use super::dfa::{self, Dfa};

/// Most arrows of a product; more ends undecided.
pub(crate) const ARROWS_MAX: usize = 200_000;

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
            // What one of them rules out for good needs no further reading.
            let open = parts.iter().zip(&targets).all(|((dfa, wanted), to)| dfa.can(*to, *wanted));
            if !open {
                continue;
            }
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

    /// The length of a shortest word and of a longest one: `None` if there is no word, or if there
    /// is no end to them.
    pub(crate) fn lengths(&self) -> (Option<u64>, Option<u64>) {
        let count = self.rows.len();
        let mut entries = vec![0_usize; count];
        let mut reached = vec![false; count];
        let mut order = Vec::with_capacity(count);
        let mut shortest = None;
        let mut level = vec![0];
        let mut length = 0;
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        while !level.is_empty() {
            let mut next = Vec::new();
            for state in level {
                let Some((accept, arrows)) = self.rows.get(state) else { continue };
                if *accept && shortest.is_none() {
                    shortest = Some(length);
                }
                order.push(state);
                for (_, to) in arrows {
                    if let Some(entry) = entries.get_mut(*to) {
                        *entry += 1;
                    }
                    if let Some(seen) = reached.get_mut(*to).filter(|seen| !**seen) {
                        *seen = true;
                        next.push(*to);
                    }
                }
            }
            level = next;
            length += 1;
        }
        (shortest, self.longest(entries, order.len()))
    }

    /// The longest way through, if there is no way round: states are passed once all ways into
    /// them are known.
    fn longest(&self, mut entries: Vec<usize>, reached: usize) -> Option<u64> {
        let mut distance = vec![0_u64; self.rows.len()];
        let mut ready = if entries.first() == Some(&0) { vec![0] } else { Vec::new() };
        let mut passed = 0;
        let mut longest = 0;
        while let Some(state) = ready.pop() {
            passed += 1;
            let (accept, arrows) = self.rows.get(state)?;
            let here = distance.get(state).copied().unwrap_or(0);
            if *accept {
                longest = longest.max(here);
            }
            for (_, to) in arrows {
                if let Some(far) = distance.get_mut(*to) {
                    *far = (*far).max(here + 1);
                }
                let entry = entries.get_mut(*to)?;
                *entry -= 1;
                if *entry == 0 {
                    ready.push(*to);
                }
            }
        }
        (passed == reached).then_some(longest)
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
