//! Every bound of the linter, unit last.

/// A source file above this is reported, not read: it is generated or a bundle.
pub const SOURCE_BYTES_MAX: u64 = 1024 * 1024;

/// How deep a syntax tree is followed. What lies deeper is reported as not read.
pub const SYNTAX_DEPTH_MAX: usize = 600;

/// How deep one expression is lowered; deeper parts count as not resolvable.
pub const EXPRESSION_DEPTH_MAX: usize = 12;

/// How many steps (names, members, calls) one topic argument may take to its text.
pub const RESOLVE_STEPS_MAX: usize = 32;

/// How many texts one argument may stand for before it counts as dynamic.
pub const ALTERNATIVES_MAX: usize = 64;

/// How many values one name may have in a file before it counts as unknown.
pub const BINDINGS_MAX: usize = 1024;

/// How far back the receivers of a chain of calls are followed.
pub const CHAIN_CALLS_MAX: usize = 64;

/// How many characters of an expression a finding shows.
pub const SHOWN_CHARS_MAX: usize = 80;

/// The stack of a thread that reads syntax trees: room for `SYNTAX_DEPTH_MAX` frames.
pub const STACK_BYTES: usize = 32 * 1024 * 1024;

const _: () = assert!(EXPRESSION_DEPTH_MAX < SYNTAX_DEPTH_MAX);
const _: () = assert!(STACK_BYTES / SYNTAX_DEPTH_MAX > 32 * 1024);

/// How many expressions may be looked at to resolve one argument, over all alternatives.
pub const RESOLVE_VISITS_MAX: usize = 1024;
