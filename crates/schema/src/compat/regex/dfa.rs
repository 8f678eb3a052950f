//! Deterministic automata over whole strings. State 0 is the start; every state has an arrow for
//! every character.

use super::class::Range;

/// A deterministic automaton.
#[derive(Debug, Clone)]
pub(crate) struct Dfa {
    rows: Vec<Row>,
    /// Per state: whether anything is accepted from there.
    live: Vec<bool>,
    /// Per state: whether anything is not.
    open: Vec<bool>,
}

/// A state: whether it accepts, and its arrows, sorted by character.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) accept: bool,
    pub(super) arrows: Vec<(Range, usize)>,
}

impl Dfa {
    pub(super) fn new(rows: Vec<Row>) -> Self {
        let (live, open) = (reaching(&rows, true), reaching(&rows, false));
        Self { rows, live, open }
    }

    /// Whether what begins in this state can still be accepted, or can still not be.
    pub(crate) fn can(&self, state: usize, accept: bool) -> bool {
        let flags = if accept { &self.live } else { &self.open };
        flags.get(state) == Some(&true)
    }

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

    /// Where a character leads.
    pub(crate) fn next(&self, state: usize, code: u32) -> Option<usize> {
        let arrows = self.arrows(state);
        let at = arrows.partition_point(|((_, high), _)| *high < code);
        arrows.get(at).filter(|((low, _), _)| *low <= code).map(|(_, to)| *to)
    }

    /// Whether `text` is in the language.
    pub(crate) fn contains(&self, text: &str) -> bool {
        let end = text.chars().try_fold(0, |state, c| self.next(state, c as u32));
        end.is_some_and(|state| self.accepts(state))
    }

    /// Accepts what was not accepted.
    pub(super) fn complement(&mut self) {
        for row in &mut self.rows {
            row.accept = !row.accept;
        }
        std::mem::swap(&mut self.live, &mut self.open);
    }
}

/// Per state: whether one that accepts, or one that does not, can be reached from it.
fn reaching(rows: &[Row], accept: bool) -> Vec<bool> {
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    for (from, row) in rows.iter().enumerate() {
        for (_, to) in &row.arrows {
            if let Some(list) = sources.get_mut(*to) {
                list.push(from);
            }
        }
    }
    let mut reaching: Vec<bool> = rows.iter().map(|row| row.accept == accept).collect();
    let mut stack: Vec<usize> =
        reaching.iter().enumerate().filter(|(_, is)| **is).map(|(state, _)| state).collect();
    while let Some(state) = stack.pop() {
        for from in sources.get(state).into_iter().flatten() {
            if let Some(flag) = reaching.get_mut(*from).filter(|flag| !**flag) {
                *flag = true;
                stack.push(*from);
            }
        }
    }
    reaching
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

pub(super) fn push_arrow(arrows: &mut Vec<(Range, usize)>, (low, high): Range, to: usize) {
    match arrows.last_mut() {
        Some(((_, last), last_to)) if *last_to == to && *last + 1 == low => *last = high,
        _ => arrows.push(((low, high), to)),
    }
}
