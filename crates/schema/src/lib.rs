//! JSON Schemas of topics: reading them, checking events against them, and telling whether a new
//! version breaks anyone.
//!
//! [`Document`] reads and bounds a schema, [`Validator`] checks values, [`compare`] decides whether
//! one schema accepts everything that another allows: by proof, or by a counter-example that the
//! validator has confirmed. [`Chain`] carries payloads from version to version. No I/O, no clock.

mod pointer;

mod dialect;

mod meta;

mod multiple;

mod reference;

mod document;

mod respell;

mod validate;

mod compat;

mod draw;

mod infer;

mod annotation;

mod upcast;

pub mod limits;

pub use annotation::Personal;
pub use compat::{
    CompareError, CompareOptions, Finding, HistoryReport, Mode, OpenObjects, PairReport,
    RequiredDefaults, Rule, UnknownMode, Verdict, check_history, compare,
};
pub use dialect::Dialect;
pub use document::{Document, ReadError};
pub use draw::{Extras, Sampler};
pub use infer::Inference;
pub use upcast::{CastError, Caster, Chain, Convert, Operation};
pub use validate::{CompileError, Formats, Mismatch, Validator};
