//! Deterministic automata over whole strings. State 0 is the start; every state has an arrow for
//! every character.

use std::collections::{BTreeSet, HashMap};

use super::PatternProblem;
use super::class::{Class, Range};
use super::nfa::{Nfa, State, StateId};

/// Most states of one pattern.
const STATES_MAX: usize = 4_000;

/// Most arrows of one pattern, which bounds its memory.
const ARROWS_MAX: usize = 400_000;

/// What is known of the place where an automaton begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The start of the string.
    Start,
    /// Some place within it: asking for the start there cannot be answered.
    Unknown,
}

/// A deterministic automaton.
#[derive(Debug, Clone)]
pub(crate) struct Dfa {
    rows: Vec<Row>,
}

#[derive(Debug, Clone)]
struct Row {
    accept: bool,
    arrows: Vec<(Range, usize)>,
}

impl Dfa {
    /// Number of states.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether a string that ends in this state is in the language.
    pub(crate) fn accepts(&self, state: usize) -> bool {
        self.rows.get(state).is_some_and(|row| row.accept)
    }

    /// The arrows out of a state, sorted by character.
    pub(crate) fn arrows(&self, state: usize) -> &[(Range, usize)] {
        self.rows.get(state).map_or(&[], |row| &row.arrows)
    }

    /// Whether `text` is in the language.
    pub(crate) fn contains(&self, text: &str) -> bool {
        let mut state = 0;
        for c in text.chars() {
            let code = c as u32;
            let arrows = self.arrows(state);
            let at = arrows.partition_point(|((_, high), _)| *high < code);
            match arrows.get(at) {
                Some(&((low, _), to)) if low <= code => state = to,
                _ => return false,
            }
        }
        self.accepts(state)
    }

    /// The strings in this language that are in `other`, or that are not if `negative`.
    pub(crate) fn intersect(&self, other: &Self, negative: bool) -> Result<Self, PatternProblem> {
        let mut seen = HashMap::from([((0, 0), 0)]);
        let mut order = vec![(0, 0)];
        let mut rows = Vec::new();
        while let Some(&(left, right)) = order.get(rows.len()) {
            let mut arrows = Vec::new();
            for (range, (to_left, to_right)) in overlay(self.arrows(left), other.arrows(right)) {
                let next = seen.len();
                let to = *seen.entry((to_left, to_right)).or_insert_with(|| {
                    order.push((to_left, to_right));
                    next
                });
                push_arrow(&mut arrows, range, to);
            }
            rows.push(Row {
                accept: self.accepts(left) && (other.accepts(right) != negative),
                arrows,
            });
            if rows.len() > STATES_MAX {
                return Err(PatternProblem::TooLarge);
            }
        }
        Ok(Self { rows })
    }
}

/// Walks two total rows of arrows side by side.
pub(crate) fn overlay<A: Copy, B: Copy>(
    left: &[(Range, A)],
    right: &[(Range, B)],
) -> Vec<(Range, (A, B))> {
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut i, mut j) = (0, 0);
    while let (Some(&((a, b), x)), Some(&((c, d), y))) = (left.get(i), right.get(j)) {
        let (low, high) = (a.max(c), b.min(d));
        if low <= high {
            out.push(((low, high), (x, y)));
        }
        if b <= d {
            i += 1;
        }
        if d <= b {
            j += 1;
        }
    }
    out
}

fn push_arrow(arrows: &mut Vec<(Range, usize)>, (low, high): Range, to: usize) {
    match arrows.last_mut() {
        Some(((_, last), last_to)) if *last_to == to && *last + 1 == low => *last = high,
        _ => arrows.push(((low, high), to)),
    }
}

/// The set construction.
pub(crate) fn determinize(nfa: &Nfa, entry: StateId, place: Place) -> Result<Dfa, PatternProblem> {
    let first = closure(nfa, &[entry], false, place == Place::Start);
    let waits = |id: &StateId| matches!(nfa.state(*id), Some(State::Start(_)));
    if place == Place::Unknown && first.iter().any(waits) {
        return Err(PatternProblem::Lookahead);
    }
    let mut order = vec![first.clone()];
    let mut seen = HashMap::from([(first, 0)]);
    let mut rows = Vec::new();
    let mut arrow_count = 0;
    while let Some(set) = order.get(rows.len()).cloned() {
        let at_end = closure(nfa, &set, true, rows.is_empty() && place == Place::Start);
        let accept = at_end.iter().any(|id| accepts(nfa, *id));
        let mut arrows = Vec::new();
        for (range, targets) in steps(nfa, &set) {
            let next_set = closure(nfa, &targets, false, false);
            let next = seen.len();
            let to = *seen.entry(next_set).or_insert_with_key(|set| {
                order.push(set.clone());
                next
            });
            push_arrow(&mut arrows, range, to);
        }
        arrow_count += arrows.len();
        rows.push(Row { accept, arrows });
        if order.len() > STATES_MAX || arrow_count > ARROWS_MAX {
            return Err(PatternProblem::TooLarge);
        }
    }
    Ok(Dfa { rows })
}

fn accepts(nfa: &Nfa, id: StateId) -> bool {
    matches!(nfa.state(id), Some(State::Match | State::Row { accept: true, .. }))
}

/// All states reachable without reading. Sorted. A set that has matched is only the match:
/// what follows cannot undo it.
fn closure(nfa: &Nfa, from: &[StateId], at_end: bool, at_start: bool) -> Vec<StateId> {
    let mut found = BTreeSet::new();
    let mut stack = from.to_vec();
    while let Some(id) = stack.pop() {
        if !found.insert(id) {
            continue;
        }
        match nfa.state(id) {
            Some(State::Split(left, right)) => stack.extend([*left, *right]),
            Some(State::Start(next)) if at_start => stack.push(*next),
            Some(State::End(next)) if at_end => stack.push(*next),
            Some(State::Match) if !at_end => return vec![id],
            _ => {}
        }
    }
    // Splits have done their work; dropping them makes equal sets equal.
    found.retain(|id| !matches!(nfa.state(*id), Some(State::Split(..))));
    found.into_iter().collect()
}

/// The characters, cut where any state of the set tells them apart, and where they lead.
fn steps(nfa: &Nfa, set: &[StateId]) -> Vec<(Range, Vec<StateId>)> {
    let mut edges: Vec<(Range, StateId)> = Vec::new();
    for id in set {
        match nfa.state(*id) {
            Some(State::Read(class, next)) => {
                edges.extend(class.ranges().iter().map(|range| (*range, *next)));
            }
            Some(State::Row { arrows, .. }) => edges.extend_from_slice(arrows),
            Some(State::Match) => {
                edges.extend(Class::any().ranges().iter().map(|range| (*range, *id)));
            }
            _ => {}
        }
    }
    let mut opens: Vec<(u32, StateId)> = edges.iter().map(|((low, _), to)| (*low, *to)).collect();
    let mut closes: Vec<(u32, StateId)> =
        edges.iter().map(|((_, high), to)| (*high + 1, *to)).collect();
    opens.sort_unstable();
    closes.sort_unstable();
    sweep(&opens, &closes)
}

/// Sweeps over the characters, keeping the multiset of open edges.
fn sweep(opens: &[(u32, StateId)], closes: &[(u32, StateId)]) -> Vec<(Range, Vec<StateId>)> {
    let mut cuts: Vec<u32> = opens.iter().chain(closes).map(|(at, _)| *at).collect();
    cuts.extend(Class::any().ranges().iter().flat_map(|(low, high)| [*low, *high + 1]));
    cuts.sort_unstable();
    cuts.dedup();
    let mut open: HashMap<StateId, usize> = HashMap::new();
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::with_capacity(cuts.len());
    for pair in cuts.windows(2) {
        let &[low, next] = pair else { continue };
        while let Some((at, to)) = opens.get(i).filter(|(at, _)| *at <= low) {
            debug_assert!(*at <= low, "opened in order");
            *open.entry(*to).or_default() += 1;
            i += 1;
        }
        while let Some((_, to)) = closes.get(j).filter(|(at, _)| *at <= low) {
            if let Some(count) = open.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    open.remove(to);
                }
            }
            j += 1;
        }
        if (0xD800..0xE000).contains(&low) {
            continue;
        }
        let mut targets: Vec<StateId> = open.keys().copied().collect();
        targets.sort_unstable();
        out.push(((low, next - 1), targets));
    }
    out
}
