//! Arrays: positions, and how many items are of some form.
//!
//! Positions before the longest prefix in play are looked at one by one, all later ones are alike.
//! Everything that asks for *some* item is a counter with a lower bound; `maxContains` is an upper
//! one. Items are laid down one after the other, each taking part in a set of counters, until
//! every lower bound is met.

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::Value;

use super::{BUDGET, Outcome, Search};
use crate::compat::term::{Lit, Term};

/// Most positions looked at one by one, and most items laid down one by one.
const POSITIONS_MAX: u64 = 2_000;

/// Most equal items that are written out.
const ITEMS_MAX: u64 = 1_000_000;

/// Most counters at once.
const COUNTERS_MAX: usize = 8;

/// How many items from a position on are of some form.
#[derive(Debug, Clone)]
struct Counter {
    from: u64,
    like: Lit,
    min: u64,
    max: Option<u64>,
}

#[derive(Debug, Default)]
struct Arrays {
    min: u64,
    max: Option<u64>,
    at: Vec<(u64, Lit)>,
    from: Vec<(u64, Lit)>,
    counters: Vec<Counter>,
    unique: Option<bool>,
    /// Positions from here on are alike.
    tail: u64,
    /// Two positions that must hold the same.
    twins: Option<(u64, u64)>,
    contradiction: bool,
}

/// An item that was laid down.
#[derive(Debug, Clone)]
struct Laid {
    state: Vec<Lit>,
    value: Rc<Value>,
    /// The counters it takes part in, as bits.
    part: u32,
}

/// How far the laying has come.
#[derive(Debug, Clone)]
struct Progress {
    items: Vec<Laid>,
    /// How often each counter has counted.
    counts: Vec<u64>,
}

impl Arrays {
    fn collect(search: &Search<'_>, facts: &[Lit]) -> Self {
        let mut arrays = Self::default();
        for lit in facts {
            arrays.add(search.pool.term(*lit), lit.negated());
        }
        let ends = arrays.at.iter().map(|(at, _)| at + 1);
        let starts = arrays.from.iter().map(|(from, _)| *from);
        let counted = arrays.counters.iter().map(|counter| counter.from);
        arrays.tail = ends.chain(starts).chain(counted).max().unwrap_or(0);
        let counters_clash = |counter: &Counter| counter.max.is_some_and(|max| max < counter.min);
        arrays.contradiction |= arrays.counters.iter().any(counters_clash);
        arrays.contradiction |= arrays.max.is_some_and(|max| max < arrays.min);
        arrays
    }

    fn at_most(&mut self, bound: u64) {
        self.max = Some(self.max.map_or(bound, |max| max.min(bound)));
    }

    fn add(&mut self, term: &Term, negated: bool) {
        match (term, negated) {
            (Term::MinItems(bound), false) => self.min = self.min.max(*bound),
            (Term::MinItems(bound), true) => match bound.checked_sub(1) {
                Some(most) => self.at_most(most),
                None => self.contradiction = true,
            },
            (Term::MaxItems(bound), false) => self.at_most(*bound),
            (Term::MaxItems(bound), true) => self.min = self.min.max(bound.saturating_add(1)),
            (Term::Item(at, item), false) => self.at.push((*at, *item)),
            (Term::Item(at, item), true) => {
                self.min = self.min.max(at + 1);
                self.at.push((*at, !*item));
            }
            (Term::ItemsFrom(from, item), false) => self.from.push((*from, *item)),
            (Term::ItemsFrom(from, item), true) => {
                self.counters.push(Counter { from: *from, like: !*item, min: 1, max: None });
            }
            (Term::Contains { like, min, max }, _) => {
                self.counters.push(Counter { from: 0, like: *like, min: *min, max: *max });
            }
            (Term::Unique, negated) => self.unique = Some(!negated),
            _ => {}
        }
    }

    /// What every item at a position must be.
    fn settled(&self, at: u64) -> Vec<Lit> {
        let here = self.at.iter().filter(|(position, _)| *position == at);
        let later = self.from.iter().filter(|(from, _)| *from <= at);
        here.chain(later).map(|(_, lit)| *lit).collect()
    }

    fn is_done(&self, progress: &Progress) -> bool {
        let length = progress.items.len() as u64;
        let met = self.counters.iter().zip(&progress.counts).all(|(c, count)| *count >= c.min);
        met && length >= self.min && self.twins.is_none_or(|(_, second)| length > second)
    }
}

impl Search<'_> {
    pub(super) fn array(&mut self, facts: &[Lit]) -> Outcome {
        let mut arrays = Arrays::collect(self, facts);
        if arrays.contradiction {
            return Outcome::Empty;
        }
        if arrays.tail > POSITIONS_MAX || arrays.counters.len() > COUNTERS_MAX {
            return Outcome::unknown("an array with too many positions or counts");
        }
        let start = Progress { items: Vec::new(), counts: vec![0; arrays.counters.len()] };
        if arrays.unique != Some(false) {
            return self.lay(&arrays, start, &mut HashSet::new());
        }
        let mut outcome = Outcome::Empty;
        for first in 0..=arrays.tail {
            for second in first + 1..=arrays.tail + 1 {
                // Two of the alike positions are as good as any other two.
                arrays.twins = Some((first, second));
                outcome = outcome.or(self.lay(&arrays, start.clone(), &mut HashSet::new()));
                if matches!(outcome, Outcome::Found(_)) {
                    return outcome;
                }
            }
        }
        outcome
    }

    /// Lays down items from here on. `failed` holds positions and counts that led nowhere.
    fn lay(
        &mut self,
        arrays: &Arrays,
        progress: Progress,
        failed: &mut HashSet<(u64, Vec<u64>)>,
    ) -> Outcome {
        if arrays.is_done(&progress) {
            return self.finish_array(arrays, &progress);
        }
        let at = progress.items.len() as u64;
        if arrays.max.is_some_and(|max| at >= max) {
            return Outcome::Empty;
        }
        let plain = arrays.unique.is_none();
        if plain {
            if let Some(outcome) = self.repeat_last(arrays, &progress) {
                return outcome;
            }
            if failed.contains(&(at, progress.counts.clone())) {
                return Outcome::Empty;
            }
        }
        if !self.step() || at > POSITIONS_MAX {
            return Outcome::unknown(BUDGET);
        }
        let mut outcome = Outcome::Empty;
        for laid in self.ways(arrays, &progress, at) {
            let laid = match laid {
                Ok(laid) => laid,
                Err(doubt) => {
                    outcome = outcome.or(doubt);
                    continue;
                }
            };
            let mut next = progress.clone();
            arrays.count(&mut next.counts, at, laid.part);
            next.items.push(laid);
            outcome = outcome.or(self.lay(arrays, next, failed));
            if matches!(outcome, Outcome::Found(_)) {
                return outcome;
            }
        }
        if plain && outcome.is_empty() {
            failed.insert((at, progress.counts));
        }
        outcome
    }

    /// When only length is missing and all further positions are alike, one item does for all.
    fn repeat_last(&mut self, arrays: &Arrays, progress: &Progress) -> Option<Outcome> {
        let at = progress.items.len() as u64;
        let met = arrays.counters.iter().zip(&progress.counts).all(|(c, count)| *count >= c.min);
        if !met || at < arrays.tail {
            return None;
        }
        if arrays.min > ITEMS_MAX {
            return Some(Outcome::unknown("an array longer than is written out"));
        }
        let mut state = arrays.settled(at);
        state.extend(arrays.counters.iter().filter(|c| c.max.is_some()).map(|c| !c.like));
        let Outcome::Found(value) = self.decide(state) else {
            return None;
        };
        let mut items: Vec<Value> =
            progress.items.iter().map(|laid| Value::clone(&laid.value)).collect();
        items.resize(
            usize::try_from(arrays.min).unwrap_or(0).max(items.len()),
            Value::clone(&value),
        );
        Some(Outcome::found(Value::Array(items)))
    }

    /// All items that can be laid down at a position, by the counters they take part in; those
    /// that serve most counters first.
    fn ways(
        &mut self,
        arrays: &Arrays,
        progress: &Progress,
        at: u64,
    ) -> Vec<Result<Laid, Outcome>> {
        if let Some((first, second)) = arrays.twins
            && at == second
        {
            let twin = usize::try_from(first).ok().and_then(|first| progress.items.get(first));
            let fits = twin.filter(|twin| arrays.allows(&progress.counts, at, twin.part));
            return fits.cloned().map(Ok).into_iter().collect();
        }
        let also = arrays.twins.filter(|(first, _)| *first == at).map(|(_, second)| second);
        let mut settled = arrays.settled(at);
        settled.extend(also.into_iter().flat_map(|also| arrays.settled(also)));
        // Past every position that differs and every length that is needed, an item that no
        // counter is waiting for changes nothing.
        let idle_allowed = at < arrays.tail.max(arrays.min)
            || arrays.twins.is_some_and(|(_, second)| at <= second);
        let mut parts: Vec<u32> = (0..1_u32 << arrays.counters.len())
            .filter(|part| arrays.is_sensible(progress, *part, (at, also)))
            .filter(|part| idle_allowed || arrays.is_progress(progress, *part))
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.count_ones()));
        let mut ways = Vec::new();
        for part in parts {
            let mut state = settled.clone();
            for (index, counter) in arrays.counters.iter().enumerate() {
                let concerned = counter.from <= at || also.is_some_and(|also| counter.from <= also);
                if part & (1 << index) != 0 {
                    state.push(counter.like);
                } else if concerned && counter.max.is_some() {
                    state.push(!counter.like);
                }
            }
            match self.decide(state.iter().copied()) {
                Outcome::Found(value) => ways.push(Ok(Laid { state, value, part })),
                Outcome::Empty => {}
                doubt @ Outcome::Unknown(_) => ways.push(Err(doubt)),
            }
        }
        ways
    }

    fn finish_array(&mut self, arrays: &Arrays, progress: &Progress) -> Outcome {
        if arrays.unique != Some(true) {
            let items = progress.items.iter().map(|laid| Value::clone(&laid.value)).collect();
            return Outcome::found(Value::Array(items));
        }
        self.all_different(progress)
    }

    /// Chooses different values for all positions: a matching of positions to values.
    fn all_different(&mut self, progress: &Progress) -> Outcome {
        let count = progress.items.len();
        let mut doubt = None;
        let mut options: Vec<Rc<Vec<Rc<Value>>>> = Vec::with_capacity(count);
        let mut known: std::collections::HashMap<&[Lit], Rc<Vec<Rc<Value>>>> =
            std::collections::HashMap::new();
        for laid in &progress.items {
            if let Some(values) = known.get(laid.state.as_slice()) {
                options.push(values.clone());
                continue;
            }
            let values = self.distinct(&laid.state, count);
            doubt = doubt.or(values.doubt);
            let values = Rc::new(values.found);
            known.insert(&laid.state, values.clone());
            options.push(values);
        }
        match matching(&options) {
            Some(items) => Outcome::found(Value::Array(items)),
            None => doubt.map_or(Outcome::Empty, Outcome::Unknown),
        }
    }
}

impl Arrays {
    fn count(&self, counts: &mut [u64], at: u64, part: u32) {
        for (index, (counter, count)) in self.counters.iter().zip(counts).enumerate() {
            if part & (1 << index) != 0 && counter.from <= at {
                *count += 1;
            }
        }
    }

    /// Whether no upper bound is passed.
    fn allows(&self, counts: &[u64], at: u64, part: u32) -> bool {
        self.counters.iter().zip(counts).enumerate().all(|(index, (counter, count))| {
            part & (1 << index) == 0
                || counter.from > at
                || counter.max.is_none_or(|max| *count < max)
        })
    }

    /// Whether some counter that is not satisfied yet counts.
    fn is_progress(&self, progress: &Progress, part: u32) -> bool {
        self.counters
            .iter()
            .zip(&progress.counts)
            .enumerate()
            .any(|(index, (counter, count))| part & (1 << index) != 0 && *count < counter.min)
    }

    /// Whether taking part in these counters is allowed, and is not idle: without an upper bound
    /// there is no reason to count more than is needed.
    fn is_sensible(&self, progress: &Progress, part: u32, (at, also): (u64, Option<u64>)) -> bool {
        let idle =
            self.counters.iter().zip(&progress.counts).enumerate().any(|(index, (c, count))| {
                let concerned = c.from <= at || also.is_some_and(|also| c.from <= also);
                part & (1 << index) != 0 && (!concerned || (c.max.is_none() && *count >= c.min))
            });
        !idle && self.allows(&progress.counts, at, part)
    }
}

/// Different values for all positions, if there are: augmenting paths.
fn matching(options: &[Rc<Vec<Rc<Value>>>]) -> Option<Vec<Value>> {
    // Where all positions are alike, any order will do.
    if let [first, others @ ..] = options
        && first.len() >= options.len()
        && others.iter().all(|other| Rc::ptr_eq(first, other))
    {
        return Some(first.iter().take(options.len()).map(|v| Value::clone(v)).collect());
    }
    let mut taken: Vec<(Rc<Value>, usize)> = Vec::new();
    for position in 0..options.len() {
        if !augment(options, position, &mut taken, &mut Vec::new()) {
            return None;
        }
    }
    taken.sort_by_key(|(_, position)| *position);
    Some(taken.into_iter().map(|(value, _)| Value::clone(&value)).collect())
}

fn augment(
    options: &[Rc<Vec<Rc<Value>>>],
    position: usize,
    taken: &mut Vec<(Rc<Value>, usize)>,
    visited: &mut Vec<Rc<Value>>,
) -> bool {
    let Some(values) = options.get(position) else {
        return false;
    };
    for value in values.iter() {
        if visited.iter().any(|seen| same(seen, value)) {
            continue;
        }
        visited.push(value.clone());
        match taken.iter().position(|(other, _)| same(other, value)) {
            None => {
                taken.push((value.clone(), position));
                return true;
            }
            Some(at) => {
                let Some(owner) = taken.get(at).map(|(_, owner)| *owner) else {
                    continue;
                };
                if augment(options, owner, taken, visited)
                    && let Some(entry) = taken.iter_mut().find(|(other, _)| same(other, value))
                {
                    entry.1 = position;
                    return true;
                }
            }
        }
    }
    false
}

/// Equality of JSON values as JSON Schema has it; our witnesses write equal numbers equally.
fn same(left: &Value, right: &Value) -> bool {
    left == right
}
