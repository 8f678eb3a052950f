//! From an expression to an automaton with choices.
//!
//! States are built from the end backwards: each part is given the state that follows it. That is
//! what makes lookaheads plain: at the place of one, the strings that may follow are a language
//! of their own, and the lookahead is an intersection with it.

use super::PatternProblem;
use super::class::{Class, Range};
use super::dfa::{self, Dfa};
use super::parse::Ast;

/// Index of a state.
pub(crate) type StateId = usize;

/// Most states; counted repetitions multiply them.
const STATES_MAX: usize = 20_000;

/// A state of the automaton.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// Reads one character of the class.
    Read(Class, StateId),
    /// Goes on in either.
    Split(StateId, StateId),
    /// Goes on at the start of the string only.
    Start(StateId),
    /// Goes on at the end of the string only.
    End(StateId),
    /// A state of an automaton that was put in whole: it reads to the end of the string.
    Row { arrows: Vec<(Range, StateId)>, accept: bool },
    /// Found: whatever follows is accepted.
    Match,
}

/// The automaton under construction.
#[derive(Debug, Default)]
pub(crate) struct Nfa {
    states: Vec<State>,
}

/// Compiles a searched expression to a deterministic automaton over whole strings.
pub(crate) fn compile(ast: &Ast) -> Result<Dfa, PatternProblem> {
    let mut nfa = Nfa::default();
    let found = nfa.push(State::Match)?;
    let body = nfa.build(ast, found, true)?;
    // The search may begin anywhere: a loop over any character stands before the body.
    let skip = nfa.push(State::Match)?;
    let entry = nfa.push(State::Split(body, skip))?;
    nfa.set(skip, State::Read(Class::any(), entry));
    dfa::determinize(&nfa, entry, dfa::Place::Start)
}

impl Nfa {
    /// The state with this index; a dead one if there is none, which cannot be.
    pub(crate) fn state(&self, id: StateId) -> Option<&State> {
        self.states.get(id)
    }

    fn push(&mut self, state: State) -> Result<StateId, PatternProblem> {
        if self.states.len() >= STATES_MAX {
            return Err(PatternProblem::TooLarge);
        }
        self.states.push(state);
        Ok(self.states.len() - 1)
    }

    fn set(&mut self, id: StateId, state: State) {
        if let Some(slot) = self.states.get_mut(id) {
            *slot = state;
        }
    }

    /// Builds `ast` so that it goes on in `next`. `known` says that what follows `next` is
    /// complete, which a lookahead needs and a loop does not have.
    fn build(&mut self, ast: &Ast, next: StateId, known: bool) -> Result<StateId, PatternProblem> {
        match ast {
            Ast::Empty => Ok(next),
            Ast::Class(class) => self.push(State::Read(class.clone(), next)),
            Ast::Start => self.push(State::Start(next)),
            Ast::End => self.push(State::End(next)),
            Ast::Concat(parts) => {
                parts.iter().rev().try_fold(next, |next, part| self.build(part, next, known))
            }
            Ast::Alternate(branches) => {
                let mut entry = None;
                for branch in branches.iter().rev() {
                    let start = self.build(branch, next, known)?;
                    entry = Some(match entry {
                        Some(other) => self.push(State::Split(start, other))?,
                        None => start,
                    });
                }
                Ok(entry.unwrap_or(next))
            }
            Ast::Repeat { node, min, max } => self.repeat(node, (*min, *max), (next, known)),
            Ast::Look { negative, node } if known => self.look(node, *negative, next),
            Ast::Look { .. } => Err(PatternProblem::Lookahead),
        }
    }

    fn repeat(
        &mut self,
        node: &Ast,
        (min, max): (u32, Option<u32>),
        (next, known): (StateId, bool),
    ) -> Result<StateId, PatternProblem> {
        let mut entry = next;
        match max {
            Some(max) => {
                for _ in min..max {
                    let once = self.build(node, entry, known)?;
                    entry = self.push(State::Split(once, next))?;
                }
            }
            None => {
                let again = self.push(State::Match)?;
                let once = self.build(node, again, false)?;
                self.set(again, State::Split(once, next));
                entry = again;
            }
        }
        for _ in 0..min {
            entry = self.build(node, entry, known)?;
        }
        Ok(entry)
    }

    /// The strings that may follow here, and in which the lookahead is found (or is not).
    fn look(
        &mut self,
        node: &Ast,
        negative: bool,
        next: StateId,
    ) -> Result<StateId, PatternProblem> {
        let rest = dfa::determinize(self, next, dfa::Place::Unknown)?;
        let found = self.push(State::Match)?;
        let ahead = self.build(node, found, true)?;
        let ahead = dfa::determinize(self, ahead, dfa::Place::Unknown)?;
        let both = rest.intersect(&ahead, negative)?;
        self.embed(&both)
    }

    fn embed(&mut self, dfa: &Dfa) -> Result<StateId, PatternProblem> {
        let first = self.states.len();
        for index in 0..dfa.len() {
            let arrows = dfa.arrows(index).iter().map(|&(range, to)| (range, first + to)).collect();
            self.push(State::Row { arrows, accept: dfa.accepts(index) })?;
        }
        Ok(first)
    }
}
