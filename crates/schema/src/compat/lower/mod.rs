//! From a document to terms.
//!
//! Every keyword becomes one term, every schema object all of its keywords' terms. References are
//! followed; one that leads back to a schema still being read becomes a link, and must have gone
//! into the value on the way.

mod array;
mod number;
mod object;
mod unevaluated;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::exact;
use super::term::{Kind, Kinds, Lit, Pool, Scalar, Term};
use crate::dialect::Dialect;
use crate::document::{Document, ReadError};
use crate::limits;
use crate::pointer;
use crate::reference::{RECURSIVE_ANCHOR, References, Target};
use crate::validate::Formats;

/// How a document is turned into terms.
#[derive(Debug, Clone, Default)]
pub(crate) struct LowerOptions {
    /// Whether `format` is a condition.
    pub(crate) formats: Formats,
    /// Whether a required property that has a `default` may be absent.
    pub(crate) defaults_fill_required: bool,
    /// Names that an open object is taken not to have unless it declares them.
    pub(crate) absent_unless_declared: Vec<String>,
}

/// Why a document has no meaning.
#[derive(Debug)]
pub(crate) enum LowerProblem {
    Remote { reference: String, pointer: String },
    Dangling { reference: String, pointer: String },
    Endless { pointer: String },
    TooDeep { pointer: String },
    TooMuch { pointer: String },
}

impl LowerProblem {
    /// The error for a reader of the document.
    pub(crate) fn at(self, text: &str) -> ReadError {
        let line = |pointer: &str| pointer::line_of(text, pointer);
        match self {
            Self::Remote { reference, pointer } => {
                ReadError::Remote { reference, line: line(&pointer), pointer }
            }
            Self::Dangling { reference, pointer } => {
                ReadError::Dangling { reference, line: line(&pointer), pointer }
            }
            Self::Endless { pointer } => ReadError::Endless { line: line(&pointer), pointer },
            Self::TooDeep { pointer } => ReadError::Explodes {
                what: "too long a chain of references",
                line: line(&pointer),
                pointer,
                max: limits::REFERENCE_DEPTH_MAX,
            },
            Self::TooMuch { pointer } => ReadError::Explodes {
                what: "too many schemas for one value",
                line: line(&pointer),
                pointer,
                max: usize::try_from(limits::SCHEMAS_PER_VALUE_MAX).unwrap_or(usize::MAX),
            },
        }
    }
}

/// Checks that a document has a meaning.
pub(crate) fn check(
    root: &Value,
    dialect: Dialect,
    references: &References,
) -> Result<(), LowerProblem> {
    let mut pool = Pool::new();
    let options = LowerOptions::default();
    let mut lowering = Lowering::new(root, dialect, references, &mut pool);
    lowering.options = &options;
    lowering.place("").map(drop)
}

/// What the places of a document mean.
pub(crate) type Meanings = HashMap<String, Lit>;

/// Turns a document into a term. `known` are places whose meaning is known already; all that were
/// read are returned.
pub(crate) fn lower(
    document: &Document,
    options: &LowerOptions,
    pool: &mut Pool,
    known: Meanings,
) -> Result<(Lit, Meanings), LowerProblem> {
    let mut lowering =
        Lowering::new(document.whole(), document.dialect(), document.references(), pool);
    lowering.options = options;
    lowering.done = known;
    let root = lowering.place("")?;
    Ok((lowering.closed("", root), lowering.done))
}

struct Lowering<'a> {
    root: &'a Value,
    dialect: Dialect,
    references: &'a References,
    pool: &'a mut Pool,
    options: &'a LowerOptions,
    done: Meanings,
    /// Schemas being read.
    open: HashMap<String, Entered>,
    /// Schemas being read that were taken to hold, because they need themselves to be decided.
    presumed: BTreeSet<String>,
    steps_into_value: usize,
    /// How many keywords that turn "holds" around are being read.
    turns: usize,
    depth: usize,
    visits: usize,
    /// How many schemas a value is held against, so far, by the schema being read.
    held: u64,
    /// The same for the schemas that were read, each with all that it applies to the same value.
    holds: HashMap<String, u64>,
    /// Schemas whose evaluated parts are being told.
    evaluating: Vec<String>,
    /// The dynamic anchors that are in force, as an index into `scopes`.
    scope: usize,
    scopes: Vec<Scope>,
}

/// The outermost place of each dynamic anchor.
type Scope = BTreeMap<String, String>;

/// How a schema was come to.
struct Entered {
    steps_into_value: usize,
    turns: usize,
    /// Its link, if it was referred to from within.
    link: Option<usize>,
}

static PLAIN: LowerOptions = LowerOptions {
    formats: Formats::Annotate,
    defaults_fill_required: false,
    absent_unless_declared: Vec::new(),
};

type Lowered = Result<Lit, LowerProblem>;

impl<'a> Lowering<'a> {
    fn new(
        root: &'a Value,
        dialect: Dialect,
        references: &'a References,
        pool: &'a mut Pool,
    ) -> Self {
        Self {
            root,
            dialect,
            references,
            pool,
            options: &PLAIN,
            done: HashMap::new(),
            open: HashMap::new(),
            presumed: BTreeSet::new(),
            steps_into_value: 0,
            turns: 0,
            depth: 0,
            visits: 0,
            held: 0,
            holds: HashMap::new(),
            evaluating: Vec::new(),
            scope: 0,
            scopes: vec![Scope::new()],
        }
    }

    /// The schema at a place that applies to the same value.
    fn place(&mut self, place: &str) -> Lowered {
        let outer = self.enter(place);
        let lit = self.place_in_scope(place);
        self.scope = outer;
        lit
    }

    /// Comes to a place: the dynamic anchors of its resource are in force unless others of the
    /// same name are already. Returns what was in force, to be put back.
    fn enter(&mut self, place: &str) -> usize {
        let outer = self.scope;
        let anchors = self.references.dynamic_anchors(place);
        let known = self.scopes.get(outer).filter(|_| !anchors.is_empty());
        if let Some(mut scope) = known.cloned() {
            for (name, at) in anchors {
                scope.entry(name.clone()).or_insert_with(|| at.clone());
            }
            self.scope = match self.scopes.iter().position(|known| *known == scope) {
                Some(index) => index,
                None => {
                    self.scopes.push(scope);
                    self.scopes.len() - 1
                }
            };
        }
        outer
    }

    /// What a place is remembered by: it may mean something else in another scope.
    fn key(&self, place: &str) -> String {
        match self.scope {
            0 => place.to_owned(),
            scope => format!("{place}\n{scope}"),
        }
    }

    fn place_in_scope(&mut self, place: &str) -> Lowered {
        let key = self.key(place);
        if let Some(lit) = self.done.get(&key) {
            let again = self.holds.get(&key).copied().unwrap_or(1);
            self.held = self.held.saturating_add(again);
            return Ok(*lit);
        }
        if let Some(entered) = self.open.get_mut(&key) {
            if entered.steps_into_value != self.steps_into_value {
                let link = *entered.link.get_or_insert_with(|| self.pool.reserve_link());
                return Ok(self.pool.intern(Term::Link(link)));
            }
            // A schema that only needs itself holds, as validators have it that break the circle;
            // one that must fail to hold has no meaning.
            if entered.turns != self.turns {
                return Err(LowerProblem::Endless { pointer: place.to_owned() });
            }
            self.presumed.insert(key);
            return Ok(Lit::TRUE);
        }
        if self.depth >= limits::REFERENCE_DEPTH_MAX {
            return Err(LowerProblem::TooDeep { pointer: place.to_owned() });
        }
        self.visit(place)?;
        self.depth += 1;
        let entered =
            Entered { steps_into_value: self.steps_into_value, turns: self.turns, link: None };
        self.open.insert(key.clone(), entered);
        let outer = std::mem::replace(&mut self.held, 1);
        let lit = match self.root.pointer(place) {
            Some(Value::Bool(false)) => Lit::FALSE,
            Some(Value::Object(map)) => self.object(place, map)?,
            _ => Lit::TRUE,
        };
        self.holds.insert(key.clone(), self.held);
        self.held = self.held.saturating_add(outer);
        if self.held > limits::SCHEMAS_PER_VALUE_MAX {
            return Err(LowerProblem::TooMuch { pointer: place.to_owned() });
        }
        self.depth -= 1;
        if let Some(Entered { link: Some(link), .. }) = self.open.remove(&key) {
            self.pool.set_link(link, lit);
        }
        self.presumed.remove(&key);
        // What was read under a presumption means something else when entered from elsewhere.
        if self.presumed.is_empty() {
            self.done.insert(key, lit);
        }
        Ok(lit)
    }

    /// Counts what is read: schemas that need themselves are read more than once.
    fn visit(&mut self, place: &str) -> Result<(), LowerProblem> {
        self.visits += 1;
        if self.visits > limits::LOWER_VISITS_MAX {
            return Err(LowerProblem::TooDeep { pointer: place.to_owned() });
        }
        Ok(())
    }

    /// The schema at a place that applies to a part of the value.
    fn part(&mut self, place: &str) -> Lowered {
        self.steps_into_value += 1;
        let outer = self.held;
        let lit = self.place(place);
        self.held = outer;
        self.steps_into_value -= 1;
        lit.map(|lit| self.closed(place, lit))
    }

    fn object(&mut self, place: &str, map: &Map<String, Value>) -> Lowered {
        if let Some(reference) = map.get("$ref").and_then(Value::as_str)
            && !self.dialect.reads_beside_ref()
        {
            let target = self.target(place, "$ref", reference)?;
            return self.place(&target);
        }
        let mut lits = Vec::new();
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(Value::String(reference)) = self.keyword(map, keyword) {
                let target = self.target(place, keyword, reference)?;
                lits.push(self.place(&target)?);
            }
        }
        self.values(map, &mut lits);
        self.logic(place, map, &mut lits)?;
        self.numbers(map, &mut lits);
        self.strings(map, &mut lits);
        self.arrays(place, map, &mut lits)?;
        self.objects(place, map, &mut lits)?;
        self.unevaluated(place, map, &mut lits)?;
        Ok(self.pool.all(lits))
    }

    /// A keyword, if the dialect knows it.
    fn keyword<'v>(&self, map: &'v Map<String, Value>, keyword: &str) -> Option<&'v Value> {
        map.get(keyword).filter(|_| self.dialect.knows(keyword))
    }

    /// Where a reference leads.
    fn target(&self, place: &str, keyword: &str, reference: &str) -> Result<String, LowerProblem> {
        let pointer = || pointer::child(place, keyword);
        // There is only one thing that `$recursiveRef` may say.
        let reference = if keyword == "$recursiveRef" { "#" } else { reference }.to_owned();
        let fixed = match self.references.resolve(self.root, place, &reference) {
            Target::Here(target) => target,
            Target::Remote => return Err(LowerProblem::Remote { reference, pointer: pointer() }),
            Target::Nowhere => {
                return Err(LowerProblem::Dangling { reference, pointer: pointer() });
            }
        };
        let anchor = match keyword {
            "$dynamicRef" => reference.split_once('#').map(|(_, anchor)| anchor),
            "$recursiveRef" => Some(RECURSIVE_ANCHOR),
            _ => None,
        };
        // Such a reference is bound late only if what it leads to by itself has such an anchor.
        let late =
            anchor.filter(|name| self.references.is_dynamic(&fixed, name)).and_then(|name| {
                self.scopes.get(self.scope).and_then(|scope| scope.get(name)).cloned()
            });
        Ok(late.unwrap_or(fixed))
    }

    /// `type`, `enum`, `const`.
    fn values(&mut self, map: &Map<String, Value>, lits: &mut Vec<Lit>) {
        match map.get("type") {
            Some(Value::String(name)) => lits.push(self.pool.kinds(kinds_named(name))),
            Some(Value::Array(names)) => {
                let kinds = names.iter().filter_map(Value::as_str).map(kinds_named);
                let kinds = kinds.fold(Kinds::default(), Kinds::with);
                lits.push(self.pool.kinds(kinds));
            }
            _ => {}
        }
        if let Some(Value::Array(values)) = map.get("enum") {
            lits.push(one_of_values(self.pool, values));
        }
        if let Some(value) = self.keyword(map, "const") {
            lits.push(one_of_values(self.pool, std::slice::from_ref(value)));
        }
    }

    /// `allOf`, `anyOf`, `oneOf`, `not`, `if`.
    fn logic(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        if map.contains_key("allOf") {
            lits.extend(self.list(place, map, "allOf")?);
        }
        if map.contains_key("anyOf") {
            let branches = self.list(place, map, "anyOf")?;
            lits.push(self.pool.any(branches));
        }
        if map.contains_key("oneOf") {
            self.turns += 1;
            let branches = self.list(place, map, "oneOf")?;
            self.turns -= 1;
            lits.push(self.pool.one(branches));
        }
        if map.contains_key("not") {
            self.turns += 1;
            lits.push(!self.place(&pointer::child(place, "not"))?);
            self.turns -= 1;
        }
        if self.keyword(map, "if").is_some() {
            self.turns += 1;
            let condition = self.place(&pointer::child(place, "if"))?;
            self.turns -= 1;
            for (keyword, when) in [("then", condition), ("else", !condition)] {
                if map.contains_key(keyword) {
                    let consequence = self.place(&pointer::child(place, keyword))?;
                    lits.push(self.pool.any([!when, consequence]));
                }
            }
        }
        Ok(())
    }

    fn list(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        keyword: &str,
    ) -> Result<Vec<Lit>, LowerProblem> {
        let count = map.get(keyword).and_then(Value::as_array).map_or(0, Vec::len);
        let at = pointer::child(place, keyword);
        (0..count).map(|index| self.place(&format!("{at}/{index}"))).collect()
    }
}

fn kinds_named(name: &str) -> Kinds {
    match name {
        "null" => Kinds::of(&[Kind::Null]),
        "boolean" => Kinds::of(&[Kind::Boolean]),
        "integer" => Kinds::of(&[Kind::Integer]),
        "number" => Kinds::of(&[Kind::Integer, Kind::Fraction]),
        "string" => Kinds::of(&[Kind::String]),
        "array" => Kinds::of(&[Kind::Array]),
        "object" => Kinds::of(&[Kind::Object]),
        _ => Kinds::default(),
    }
}

/// One of these values; those with parts are spelled out as schemas.
pub(crate) fn one_of_values(pool: &mut Pool, values: &[Value]) -> Lit {
    let mut scalars = Vec::new();
    let mut branches = Vec::new();
    for value in values {
        match scalar(value) {
            Some(scalar) => scalars.push(scalar),
            None => branches.push(exactly(pool, value)),
        }
    }
    if !scalars.is_empty() {
        branches.push(pool.scalars(scalars));
    }
    pool.any(branches)
}

/// A value without parts; `None` for the others, and for numbers no double has.
pub(crate) fn scalar(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Null => Scalar::Null,
        Value::Bool(flag) => Scalar::Boolean(*flag),
        Value::Number(number) => Scalar::Number(exact::from_number(number)?),
        Value::String(text) => Scalar::Text(text.as_str().into()),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// Exactly this value.
pub(crate) fn exactly(pool: &mut Pool, value: &Value) -> Lit {
    if let Some(scalar) = scalar(value) {
        return pool.scalars(vec![scalar]);
    }
    let mut lits = Vec::new();
    match value {
        Value::Array(items) => {
            let length = items.len() as u64;
            lits.push(pool.kinds(Kinds::of(&[Kind::Array])));
            lits.push(pool.intern(Term::MinItems(length)));
            lits.push(pool.intern(Term::MaxItems(length)));
            for (index, item) in items.iter().enumerate() {
                let item = exactly(pool, item);
                lits.push(pool.intern(Term::Item(index as u64, item)));
            }
        }
        Value::Object(map) => {
            lits.push(pool.kinds(Kinds::of(&[Kind::Object])));
            let mut names: Vec<Box<str>> = Vec::with_capacity(map.len());
            for (name, item) in map {
                names.push(name.as_str().into());
                let item = exactly(pool, item);
                lits.push(pool.intern(Term::Required(name.as_str().into())));
                lits.push(pool.intern(Term::Property(name.as_str().into(), item)));
            }
            names.sort_unstable();
            lits.push(pool.intern(Term::Rest {
                names: names.into_boxed_slice(),
                patterns: Box::default(),
                value: Lit::FALSE,
            }));
        }
        _ => lits.push(pool.intern(Term::Opaque(format!("const {value}").into()))),
    }
    pool.all(lits)
}
