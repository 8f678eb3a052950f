//! Every bound of this crate. A schema comes from outside: whatever it asks for ends within these.

/// Largest schema document, in bytes.
pub const SCHEMA_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Deepest nesting of JSON in a schema document (the JSON reader's own bound is 128).
pub const SCHEMA_DEPTH_MAX: usize = 100;

/// Most subschemas in one document.
pub const SUBSCHEMAS_MAX: usize = 20_000;

/// Most values in one `enum`.
pub const ENUM_VALUES_MAX: usize = 10_000;

/// Longest `pattern`, in bytes.
pub const PATTERN_BYTES_MAX: usize = 4_096;

/// Longest chain of schemas that refer to one another without a branch back.
pub const REFERENCE_DEPTH_MAX: usize = 400;

/// Most schemas read on the way from a document to its meaning; each is read once unless it needs
/// itself.
pub const LOWER_VISITS_MAX: usize = 200_000;

/// Most schemas that one value is held against, itself and not its parts: definitions that refer to
/// one another twice double with each step, and whoever validates would never end.
pub const SCHEMAS_PER_VALUE_MAX: u64 = 100_000;

/// Most errors that a validation reports; the rest are counted out, not listed.
pub const VALIDATION_ERRORS_MAX: usize = 64;

/// Most findings that a comparison reports.
pub const FINDINGS_MAX: usize = 32;

/// Steps that one search of a comparison may take before it is in doubt. A step is one literal looked
/// at; ten million take about a second on one core. A lenient comparison may take three searches.
pub const COMPARE_STEPS_MAX: u64 = 10_000_000;

/// Most terms a comparison may make.
pub const COMPARE_TERMS_MAX: usize = 400_000;

/// Deepest nesting of subproblems in a comparison.
pub const COMPARE_DEPTH_MAX: usize = 300;

/// Stack of the thread that compares; touched only as far as the nesting goes.
pub const COMPARE_STACK_BYTES: usize = 512 * 1024 * 1024;

/// Most ways in which the branches beside an `unevaluated…` keyword can succeed together.
pub const UNEVALUATED_CASES_MAX: usize = 256;

/// Most values that are enumerated to tell whether enough distinct ones exist.
pub const DISTINCT_VALUES_MAX: usize = 512;

/// Most strings that are listed for the same reason: names of properties, mostly.
pub const DISTINCT_TEXTS_MAX: usize = 200_000;
