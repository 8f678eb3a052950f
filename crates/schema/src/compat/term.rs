//! The algebra: schemas as terms that are closed under complement.
//!
//! A schema is a predicate on JSON values. [`Term`]s are the predicates we reason about, interned
//! so that equal ones are the same number; a [`Lit`] is a term or its complement. Each keyword is
//! one term that holds for every value of another kind, as JSON Schema has it (`minimum` says
//! nothing of strings), so a schema object is simply [`Term::All`] of its keywords. There is no
//! "any of": it is the complement of all complements.

use std::collections::HashMap;
use std::sync::Arc;

use super::exact::Exact;
use super::regex::{self, Dfa, PatternProblem};

/// The kinds of JSON values. Whole numbers stand apart from other numbers: `1.0` is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Integer,
    Fraction,
    String,
    Object,
    Array,
}

impl Kind {
    /// All kinds, in the order in which a witness is looked for: plain ones first.
    pub(crate) const ALL: [Self; 7] = [
        Self::String,
        Self::Integer,
        Self::Boolean,
        Self::Null,
        Self::Fraction,
        Self::Object,
        Self::Array,
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const EVERY: Self = Self(0x7F);

    pub(crate) fn of(kinds: &[Kind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | kind.bit()))
    }

    pub(crate) fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A value without parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Scalar {
    Null,
    Boolean(bool),
    Number(Exact),
    Text(Box<str>),
}

impl Scalar {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Boolean(_) => Kind::Boolean,
            Self::Number(number) if number.is_integer() => Kind::Integer,
            Self::Number(_) => Kind::Fraction,
            Self::Text(_) => Kind::String,
        }
    }
}

/// Index of an interned pattern.
pub(crate) type PatternId = u32;

/// A term or its complement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lit(u32);

impl Lit {
    /// Holds for every value.
    pub(crate) const TRUE: Self = Self(0);
    /// Holds for none.
    pub(crate) const FALSE: Self = Self(1);

    pub(crate) fn negated(self) -> bool {
        self.0 & 1 == 1
    }

    pub(crate) fn index(self) -> usize {
        (self.0 >> 1) as usize
    }
}

impl std::ops::Not for Lit {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// A predicate on JSON values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Term {
    /// Every value.
    True,
    /// Values of these kinds.
    Kinds(Kinds),
    /// All of these.
    All(Box<[Lit]>),
    /// Exactly one of these.
    One(Box<[Lit]>),
    /// A schema that refers to itself further down; the target is in [`Pool::link`].
    Link(usize),
    /// One of these values. Unlike keywords it fails for all others, of any kind.
    Scalars(Box<[Scalar]>),
    /// Not below; strictly above if the flag is set.
    Least(Exact, bool),
    /// Not above; strictly below if the flag is set.
    Most(Exact, bool),
    MultipleOf(Exact),
    MinLength(u64),
    MaxLength(u64),
    Pattern(PatternId),
    Format(Box<str>),
    MinItems(u64),
    MaxItems(u64),
    /// The item at this index, if there is one.
    Item(u64, Lit),
    /// All items from this index on.
    ItemsFrom(u64, Lit),
    /// Between so many items are like that.
    Contains {
        like: Lit,
        min: u64,
        max: Option<u64>,
    },
    Unique,
    MinProperties(u64),
    MaxProperties(u64),
    Required(Box<str>),
    /// The property of this name, if there is one.
    Property(Box<str>, Lit),
    /// All properties whose names match.
    Matching(PatternId, Lit),
    /// All properties that are neither named nor matched here.
    Rest {
        names: Box<[Box<str>]>,
        patterns: Box<[PatternId]>,
        value: Lit,
    },
    /// All names, as strings.
    Names(Lit),
    /// Something we do not model: only equal to itself.
    Opaque(Box<str>),
}

impl Term {
    /// The kinds a keyword speaks about; `None` for terms that are not such keywords.
    pub(crate) fn scope(&self) -> Option<Kinds> {
        Some(match self {
            Self::Least(..) | Self::Most(..) | Self::MultipleOf(_) => {
                Kinds::of(&[Kind::Integer, Kind::Fraction])
            }
            Self::MinLength(_) | Self::MaxLength(_) | Self::Pattern(_) | Self::Format(_) => {
                Kinds::of(&[Kind::String])
            }
            Self::MinItems(_)
            | Self::MaxItems(_)
            | Self::Item(..)
            | Self::ItemsFrom(..)
            | Self::Contains { .. }
            | Self::Unique => Kinds::of(&[Kind::Array]),
            Self::MinProperties(_)
            | Self::MaxProperties(_)
            | Self::Required(_)
            | Self::Property(..)
            | Self::Matching(..)
            | Self::Rest { .. }
            | Self::Names(_) => Kinds::of(&[Kind::Object]),
            _ => return None,
        })
    }
}

/// All terms of a comparison.
#[derive(Debug)]
pub(crate) struct Pool {
    terms: Vec<Term>,
    index: HashMap<Term, u32>,
    links: Vec<Lit>,
    patterns: Vec<Box<str>>,
    pattern_index: HashMap<Box<str>, PatternId>,
    automata: HashMap<PatternId, Result<Arc<Dfa>, PatternProblem>>,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Self {
            terms: vec![Term::True],
            index: HashMap::from([(Term::True, 0)]),
            links: Vec::new(),
            patterns: Vec::new(),
            pattern_index: HashMap::new(),
            automata: HashMap::new(),
        }
    }

    /// The term of a literal, without its sign.
    pub(crate) fn term(&self, lit: Lit) -> &Term {
        self.terms.get(lit.index()).unwrap_or(&Term::True)
    }

    /// Number of terms, for budgets.
    pub(crate) fn len(&self) -> usize {
        self.terms.len()
    }

    /// Interns a term, in a simplified form where that is plain.
    pub(crate) fn intern(&mut self, term: Term) -> Lit {
        match &term {
            Term::Kinds(kinds) if *kinds == Kinds::EVERY => return Lit::TRUE,
            Term::Kinds(kinds) if *kinds == Kinds::default() => return Lit::FALSE,
            Term::Scalars(values) if values.is_empty() => return Lit::FALSE,
            Term::MinLength(0) | Term::MinItems(0) | Term::MinProperties(0) => return Lit::TRUE,
            Term::Item(_, Lit::TRUE)
            | Term::ItemsFrom(_, Lit::TRUE)
            | Term::Property(_, Lit::TRUE)
            | Term::Matching(_, Lit::TRUE)
            | Term::Rest { value: Lit::TRUE, .. }
            | Term::Names(Lit::TRUE)
            | Term::Contains { min: 0, max: None, .. } => return Lit::TRUE,
            _ => {}
        }
        if let Some(index) = self.index.get(&term) {
            return Lit(index << 1);
        }
        let index = u32::try_from(self.terms.len()).unwrap_or(u32::MAX >> 1);
        self.terms.push(term.clone());
        self.index.insert(term, index);
        Lit(index << 1)
    }

    /// All of these.
    pub(crate) fn all(&mut self, lits: impl IntoIterator<Item = Lit>) -> Lit {
        let mut flat = Vec::new();
        for lit in lits {
            match self.term(lit) {
                Term::All(parts) if !lit.negated() => flat.extend_from_slice(parts),
                _ => flat.push(lit),
            }
        }
        flat.sort_unstable();
        flat.dedup();
        flat.retain(|lit| *lit != Lit::TRUE);
        // Sorted, a term and its complement are neighbours.
        let clash = flat.windows(2).any(|pair| matches!(pair, &[a, b] if a == !b));
        if clash || flat.contains(&Lit::FALSE) {
            return Lit::FALSE;
        }
        match flat.as_slice() {
            [] => Lit::TRUE,
            [only] => *only,
            _ => self.intern(Term::All(flat.into_boxed_slice())),
        }
    }

    /// At least one of these.
    pub(crate) fn any(&mut self, lits: impl IntoIterator<Item = Lit>) -> Lit {
        let complements: Vec<Lit> = lits.into_iter().map(|lit| !lit).collect();
        !self.all(complements)
    }

    /// Exactly one of these. Not a set: a branch that is listed twice can never be the only one.
    pub(crate) fn one(&mut self, mut lits: Vec<Lit>) -> Lit {
        lits.sort_unstable();
        lits.retain(|lit| *lit != Lit::FALSE);
        match lits.as_slice() {
            [] => Lit::FALSE,
            [only] => *only,
            _ => self.intern(Term::One(lits.into_boxed_slice())),
        }
    }

    /// One of these values.
    pub(crate) fn scalars(&mut self, mut values: Vec<Scalar>) -> Lit {
        values.sort_unstable();
        values.dedup();
        self.intern(Term::Scalars(values.into_boxed_slice()))
    }

    /// Values of these kinds.
    pub(crate) fn kinds(&mut self, kinds: Kinds) -> Lit {
        self.intern(Term::Kinds(kinds))
    }

    /// A place for a schema that is still being read.
    pub(crate) fn reserve_link(&mut self) -> usize {
        self.links.push(Lit::TRUE);
        self.links.len() - 1
    }

    /// Says what a link leads to.
    pub(crate) fn set_link(&mut self, link: usize, target: Lit) {
        if let Some(slot) = self.links.get_mut(link) {
            *slot = target;
        }
    }

    /// What a link leads to.
    pub(crate) fn link(&self, link: usize) -> Lit {
        self.links.get(link).copied().unwrap_or(Lit::TRUE)
    }

    /// Interns the text of a pattern.
    pub(crate) fn pattern(&mut self, text: &str) -> PatternId {
        if let Some(id) = self.pattern_index.get(text) {
            return *id;
        }
        let id = PatternId::try_from(self.patterns.len()).unwrap_or(PatternId::MAX);
        self.patterns.push(text.into());
        self.pattern_index.insert(text.into(), id);
        id
    }

    /// The automaton of a pattern, made once.
    pub(crate) fn automaton(&mut self, pattern: PatternId) -> Result<Arc<Dfa>, PatternProblem> {
        if let Some(known) = self.automata.get(&pattern) {
            return known.clone();
        }
        let made = regex::compile(self.pattern_text(pattern)).map(Arc::new);
        self.automata.insert(pattern, made.clone());
        made
    }

    /// Whether a name matches a pattern; `None` if the pattern is not regular.
    pub(crate) fn matches(&mut self, pattern: PatternId, name: &str) -> Option<bool> {
        self.automaton(pattern).ok().map(|dfa| dfa.contains(name))
    }

    /// The text of a pattern.
    pub(crate) fn pattern_text(&self, id: PatternId) -> &str {
        self.patterns.get(id as usize).map_or("", AsRef::as_ref)
    }
}
