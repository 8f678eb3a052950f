//! Patterns as regular languages.
//!
//! A `pattern` of JSON Schema is an ECMA-262 expression searched for anywhere in a string. It is
//! parsed ([`parse`]), compiled to an automaton that reads whole strings ([`nfa`], [`dfa`]), and
//! joined with others to ask for a word in all of them ([`product`], [`words`]). What is not
//! regular, or not modelled, is an error here and an opaque predicate to the search: nothing is
//! approximated. The engine that checks values reads some expressions in a way of its own, or not
//! at all: it is given them respelt ([`spell`]), so that there is one reading.

pub(crate) mod class;
pub(crate) mod dfa;
pub(crate) mod nfa;
pub(crate) mod parse;
pub(crate) mod product;
pub(crate) mod spell;
mod subset;
pub(crate) mod words;

pub(crate) use dfa::Dfa;

/// Why a pattern is not a regular language to us; a phrase that follows "pattern with".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternProblem {
    /// Not an expression at all, or one of a form we do not read.
    Syntax,
    /// `\1`, `\k<name>`.
    Backreference,
    /// `(?<=..)` that itself looks ahead, or at the end.
    Lookbehind,
    /// The automaton would be larger than allowed.
    TooLarge,
}

impl PatternProblem {
    /// The construct, in words.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Syntax => "syntax that is not modelled",
            Self::Backreference => "a backreference",
            Self::Lookbehind => "a lookbehind that looks ahead",
            Self::TooLarge => "an automaton larger than the limit",
        }
    }
}

/// Compiles a pattern to the language of the strings it is found in.
pub(crate) fn compile(pattern: &str) -> Result<Dfa, PatternProblem> {
    nfa::compile(&parse::parse(pattern)?.ast)
}

#[cfg(test)]
mod tests;
