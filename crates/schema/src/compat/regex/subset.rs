//! The set construction: from an automaton with choices to one without.
//!
//! A state of the result is a set of *configurations*: a state of the automaton with choices, and
//! what the lookaheads that were passed still ask of what follows, each as a state of an automaton
//! of its own. What lookbehinds ask of what came before is known from one automaton each, which
//! reads along from the start.

use std::collections::{BTreeSet, HashMap};

use super::PatternProblem;
use super::class::Class;
use super::dfa::{Dfa, Row, push_arrow};
use super::nfa::{Nfa, State, StateId};

/// Most states of one pattern.
const STATES_MAX: usize = 30_000;

/// Most arrows of one pattern, which bounds its memory.
const ARROWS_MAX: usize = 400_000;

/// Most configurations that are looked at, which bounds the time.
const WORK_MAX: usize = 400_000;

/// A state, and what the lookaheads on the way to it still wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Config {
    at: StateId,
    /// Automaton and state of each, sorted.
    pending: Vec<(usize, usize)>,
}

/// What is known of the characters that came before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Before {
    /// There are none.
    start: bool,
    /// The state of each lookbehind's automaton.
    behind: Vec<usize>,
}

struct Subset<'a> {
    nfa: &'a Nfa,
    /// The automata of lookaheads.
    followers: Vec<Dfa>,
    made: HashMap<(usize, Before), usize>,
    work: usize,
}

/// Makes an automaton without choices, from the start of the string.
pub(super) fn determinize(nfa: &Nfa, entry: StateId) -> Result<Dfa, PatternProblem> {
    let mut subset = Subset { nfa, followers: Vec::new(), made: HashMap::new(), work: 0 };
    let before = Before { start: true, behind: vec![0; nfa.behinds().len()] };
    subset.run(entry, before)
}

type Set = (Vec<Config>, Before);

impl Subset<'_> {
    fn run(&mut self, entry: StateId, before: Before) -> Result<Dfa, PatternProblem> {
        let first = self.settle(vec![Config { at: entry, pending: Vec::new() }], before)?;
        let mut order = vec![first.clone()];
        let mut seen: HashMap<Set, usize> = HashMap::from([(first, 0)]);
        // What is read often leads to the same place before it is settled, too.
        let mut known: HashMap<Set, usize> = HashMap::new();
        let mut rows = Vec::new();
        let mut arrow_count = 0;
        while let Some((set, before)) = order.get(rows.len()).cloned() {
            let accept = self.accepts(&set, &before)?;
            let mut arrows = Vec::new();
            let mut readers = Readers::new(self.nfa, &set);
            for cut in self.cuts(&set, &before).windows(2) {
                let &[low, next] = cut else { continue };
                let reading = readers.at(low);
                if (0xD800..0xE000).contains(&low) {
                    continue;
                }
                let raw = self.read(reading.filter_map(|at| set.get(at)), &before, low)?;
                let to = match known.get(&raw) {
                    Some(to) => *to,
                    None => {
                        let settled = self.settle(raw.0.clone(), raw.1.clone())?;
                        let next = seen.len();
                        let to = *seen.entry(settled).or_insert_with_key(|set| {
                            order.push(set.clone());
                            next
                        });
                        known.insert(raw, to);
                        to
                    }
                };
                push_arrow(&mut arrows, (low, next - 1), to);
            }
            arrow_count += arrows.len();
            rows.push(Row { accept, arrows });
            if order.len() > STATES_MAX || arrow_count > ARROWS_MAX {
                return Err(PatternProblem::TooLarge);
            }
        }
        Ok(Dfa::new(rows))
    }

    /// Where the configurations tell characters apart.
    fn cuts(&self, set: &[Config], before: &Before) -> Vec<u32> {
        let mut cuts = BTreeSet::new();
        let mut cut = |ranges: &mut dyn Iterator<Item = (u32, u32)>| {
            cuts.extend(ranges.flat_map(|(low, high)| [low, high + 1]));
        };
        cut(&mut Class::any().ranges().iter().copied());
        for config in set {
            if let Some(State::Read(class, _)) = self.nfa.state(config.at) {
                cut(&mut class.ranges().iter().copied());
            }
            for (follower, state) in &config.pending {
                let arrows = self.followers.get(*follower).map(|f| f.arrows(*state));
                cut(&mut arrows.into_iter().flatten().map(|(range, _)| *range));
            }
        }
        for (behind, state) in self.nfa.behinds().iter().zip(&before.behind) {
            cut(&mut behind.before.arrows(*state).iter().map(|(range, _)| *range));
        }
        cuts.into_iter().collect()
    }

    /// Reads one character in the configurations that can.
    fn read<'s>(
        &mut self,
        reading: impl Iterator<Item = &'s Config>,
        before: &Before,
        c: u32,
    ) -> Result<Set, PatternProblem> {
        let mut next = Vec::new();
        for config in reading {
            let at = match self.nfa.state(config.at) {
                Some(State::Read(_, next)) => *next,
                _ => config.at,
            };
            let pending = config.pending.iter().map(|(follower, state)| {
                let to = self.followers.get(*follower).and_then(|f| f.next(*state, c));
                (*follower, to.unwrap_or(0))
            });
            if let Some(pending) = self.still_pending(pending.collect()) {
                next.push(Config { at, pending });
            }
        }
        self.work += next.len() + 1;
        if self.work > WORK_MAX {
            return Err(PatternProblem::TooLarge);
        }
        let behinds = self.nfa.behinds().iter().zip(&before.behind);
        let behind = behinds.map(|(b, state)| b.before.next(*state, c).unwrap_or(0)).collect();
        Ok((next, Before { start: false, behind }))
    }

    /// Drops what is met whatever follows; `None` if something can no longer be met.
    fn still_pending(&self, mut pending: Vec<(usize, usize)>) -> Option<Vec<(usize, usize)>> {
        let can = |(at, state): &(usize, usize), accept: bool| {
            self.followers.get(*at).is_some_and(|follower| follower.can(*state, accept))
        };
        if !pending.iter().all(|one| can(one, true)) {
            return None;
        }
        pending.retain(|one| can(one, false));
        pending.sort_unstable();
        pending.dedup();
        Some(pending)
    }

    /// Goes on without reading, and leaves what waits for a character or for the end.
    fn settle(&mut self, from: Vec<Config>, mut before: Before) -> Result<Set, PatternProblem> {
        let mut set = self.closure(from, &before, false)?;
        let keeps = |config: &Config| {
            let state = self.nfa.state(config.at);
            matches!(state, Some(State::Read(..) | State::End(_) | State::Match | State::Stop))
        };
        set.retain(keeps);
        drop_narrower(&mut set);
        // Whether this is the start matters only to what may go on without reading, at the end.
        let waits = |config: &Config| matches!(self.nfa.state(config.at), Some(State::End(_)));
        before.start &= set.iter().any(waits);
        Ok((set, before))
    }

    /// All configurations that are reached without reading. What was found is all that matters:
    /// nothing that follows can undo it.
    fn closure(
        &mut self,
        from: Vec<Config>,
        before: &Before,
        at_end: bool,
    ) -> Result<Vec<Config>, PatternProblem> {
        let mut found = BTreeSet::new();
        let mut stack = from;
        while let Some(config) = stack.pop() {
            if !found.insert(config.clone()) {
                continue;
            }
            self.work += 1;
            let go = |at: StateId| Config { at, pending: config.pending.clone() };
            match self.nfa.state(config.at) {
                Some(State::Split(left, right)) => stack.extend([go(*left), go(*right)]),
                Some(State::Start(next)) if before.start => stack.push(go(*next)),
                Some(State::End(next)) if at_end => stack.push(go(*next)),
                Some(State::Behind(look, next)) => {
                    let state = before.behind.get(*look).copied().unwrap_or(0);
                    let behind = self.nfa.behinds().get(*look);
                    if behind.is_some_and(|b| b.before.accepts(state) != b.negative) {
                        stack.push(go(*next));
                    }
                }
                Some(State::Ahead(look, next)) => {
                    let follower = self.follower(*look, before)?;
                    let mut pending = config.pending.clone();
                    pending.push((follower, 0));
                    if let Some(pending) = self.still_pending(pending) {
                        stack.push(Config { at: *next, pending });
                    }
                }
                Some(State::Match) if !at_end && config.pending.is_empty() => {
                    return Ok(vec![config]);
                }
                _ => {}
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Whether a string that ends here is in the language.
    fn accepts(&mut self, set: &[Config], before: &Before) -> Result<bool, PatternProblem> {
        let ended = self.closure(set.to_vec(), before, true)?;
        Ok(ended.iter().any(|config| {
            let found = matches!(self.nfa.state(config.at), Some(State::Match | State::Stop));
            found
                && config.pending.iter().all(|(follower, state)| {
                    self.followers.get(*follower).is_some_and(|f| f.accepts(*state))
                })
        }))
    }

    /// The automaton of a lookahead that begins after what came before.
    fn follower(&mut self, look: usize, before: &Before) -> Result<usize, PatternProblem> {
        if let Some(known) = self.made.get(&(look, before.clone())) {
            return Ok(*known);
        }
        let ahead = self.nfa.ahead(look).ok_or(PatternProblem::Syntax)?;
        let mut dfa = self.run(ahead.entry, before.clone())?;
        if ahead.negative {
            dfa.complement();
        }
        self.followers.push(dfa);
        self.made.insert((look, before.clone()), self.followers.len() - 1);
        Ok(self.followers.len() - 1)
    }
}

/// Which configurations can read a character; asked for one after the other, upwards.
struct Readers {
    /// Where a range begins, and whose it is; the last first.
    begins: Vec<(u32, usize)>,
    /// Where one is over.
    ends: Vec<(u32, usize)>,
    reading: BTreeSet<usize>,
}

impl Readers {
    fn new(nfa: &Nfa, set: &[Config]) -> Self {
        let (mut begins, mut ends) = (Vec::new(), Vec::new());
        let mut reading = BTreeSet::new();
        for (index, config) in set.iter().enumerate() {
            match nfa.state(config.at) {
                Some(State::Read(class, _)) => {
                    begins.extend(class.ranges().iter().map(|(low, _)| (*low, index)));
                    ends.extend(class.ranges().iter().map(|(_, high)| (high + 1, index)));
                }
                Some(State::Match) => {
                    reading.insert(index);
                }
                _ => {}
            }
        }
        begins.sort_unstable_by(|a, b| b.cmp(a));
        ends.sort_unstable_by(|a, b| b.cmp(a));
        Self { begins, ends, reading }
    }

    fn at(&mut self, c: u32) -> impl Iterator<Item = usize> {
        while let Some((_, index)) = self.ends.pop_if(|(at, _)| *at <= c) {
            self.reading.remove(&index);
        }
        while let Some((_, index)) = self.begins.pop_if(|(at, _)| *at <= c) {
            self.reading.insert(index);
        }
        self.reading.iter().copied()
    }
}

/// Of two ways to the same state the one that waits for less is enough.
fn drop_narrower(set: &mut Vec<Config>) {
    if set.iter().all(|config| config.pending.is_empty()) {
        return;
    }
    let wider = |config: &Config, other: &Config| {
        other.at == config.at
            && other.pending.len() < config.pending.len()
            && other.pending.iter().all(|one| config.pending.contains(one))
    };
    let kept: Vec<Config> = set
        .iter()
        .filter(|config| !set.iter().any(|other| wider(config, other)))
        .cloned()
        .collect();
    *set = kept;
}
