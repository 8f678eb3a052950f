//! From an expression to an automaton with choices.
//!
//! States are built from the end backwards: each part is given the state that follows it. What a
//! lookaround asks for is built apart: a lookahead is an entry of its own, to be read beside what
//! follows; a lookbehind is an automaton over what was read before, finished here.

use super::PatternProblem;
use super::class::Class;
use super::dfa::Dfa;
use super::parse::Ast;
use super::subset;

/// Index of a state.
pub(crate) type StateId = usize;

/// Most states; counted repetitions multiply them.
const STATES_MAX: usize = 60_000;

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
    /// Goes on if what follows is as this lookahead says.
    Ahead(usize, StateId),
    /// Goes on if what came before is as this lookbehind says.
    Behind(usize, StateId),
    /// Found: whatever follows is accepted.
    Match,
    /// Found, if nothing follows: what a lookbehind ends in.
    Stop,
}

/// Something that must follow, or must not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead {
    pub(crate) entry: StateId,
    pub(crate) negative: bool,
}

/// Something that must have come before, or must not have.
#[derive(Debug, Clone)]
pub(crate) struct Behind {
    /// Accepts what ends in it.
    pub(crate) before: Dfa,
    pub(crate) negative: bool,
}

/// The automaton under construction.
#[derive(Debug, Default)]
pub(crate) struct Nfa {
    states: Vec<State>,
    aheads: Vec<Ahead>,
    behinds: Vec<Behind>,
    /// How many lookbehinds are being built: within them nothing that follows is known.
    in_behind: usize,
}

/// Compiles a searched expression to a deterministic automaton over whole strings.
pub(crate) fn compile(ast: &Ast) -> Result<Dfa, PatternProblem> {
    let mut nfa = Nfa::default();
    let entry = nfa.searched(ast, State::Match)?;
    subset::determinize(&nfa, entry)
}

impl Nfa {
    /// The state with this index; a dead one if there is none, which cannot be.
    pub(crate) fn state(&self, id: StateId) -> Option<&State> {
        self.states.get(id)
    }

    pub(crate) fn ahead(&self, look: usize) -> Option<Ahead> {
        self.aheads.get(look).copied()
    }

    pub(crate) fn behinds(&self) -> &[Behind] {
        &self.behinds
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

    /// An expression that may begin anywhere: a loop over any character stands before it.
    fn searched(&mut self, ast: &Ast, end: State) -> Result<StateId, PatternProblem> {
        let found = self.push(end)?;
        let body = self.build(ast, found)?;
        let skip = self.push(State::Match)?;
        let entry = self.push(State::Split(body, skip))?;
        self.set(skip, State::Read(Class::any(), entry));
        Ok(entry)
    }

    /// Builds `ast` so that it goes on in `next`.
    fn build(&mut self, ast: &Ast, next: StateId) -> Result<StateId, PatternProblem> {
        match ast {
            Ast::Empty => Ok(next),
            Ast::Class(class) => self.push(State::Read(class.clone(), next)),
            Ast::Start => self.push(State::Start(next)),
            Ast::End if self.in_behind > 0 => Err(PatternProblem::Lookbehind),
            Ast::End => self.push(State::End(next)),
            Ast::Concat(parts) => {
                parts.iter().rev().try_fold(next, |next, part| self.build(part, next))
            }
            Ast::Alternate(branches) => {
                let mut entry = None;
                for branch in branches.iter().rev() {
                    let start = self.build(branch, next)?;
                    entry = Some(match entry {
                        Some(other) => self.push(State::Split(start, other))?,
                        None => start,
                    });
                }
                Ok(entry.unwrap_or(next))
            }
            Ast::Repeat { node, min, max } => self.repeat(node, (*min, *max), next),
            Ast::Look { behind: false, negative, node } => self.look_ahead(node, *negative, next),
            Ast::Look { behind: true, negative, node } => self.look_behind(node, *negative, next),
        }
    }

    fn repeat(
        &mut self,
        node: &Ast,
        (min, max): (u32, Option<u32>),
        next: StateId,
    ) -> Result<StateId, PatternProblem> {
        let mut entry = next;
        match max {
            Some(max) => {
                for _ in min..max {
                    let once = self.build(node, entry)?;
                    entry = self.push(State::Split(once, next))?;
                }
            }
            None => {
                let again = self.push(State::Match)?;
                let once = self.build(node, again)?;
                self.set(again, State::Split(once, next));
                entry = again;
            }
        }
        for _ in 0..min {
            entry = self.build(node, entry)?;
        }
        Ok(entry)
    }

    fn look_ahead(
        &mut self,
        node: &Ast,
        negative: bool,
        next: StateId,
    ) -> Result<StateId, PatternProblem> {
        if self.in_behind > 0 {
            return Err(PatternProblem::Lookbehind);
        }
        let found = self.push(State::Match)?;
        let entry = self.build(node, found)?;
        self.aheads.push(Ahead { entry, negative });
        self.push(State::Ahead(self.aheads.len() - 1, next))
    }

    fn look_behind(
        &mut self,
        node: &Ast,
        negative: bool,
        next: StateId,
    ) -> Result<StateId, PatternProblem> {
        self.in_behind += 1;
        let entry = self.searched(node, State::Stop)?;
        self.in_behind -= 1;
        let before = subset::determinize(self, entry)?;
        self.behinds.push(Behind { before, negative });
        self.push(State::Behind(self.behinds.len() - 1, next))
    }
}
