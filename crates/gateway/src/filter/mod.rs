//! Filters: CEL expressions over events, such as `payload.cpu_pct > 90 && key.startsWith("dev:")`.
//!
//! Names: `id`, `sid`, `ts`, `topic`, `key`, `partition`, `offset`, `tags`, `caused_by`,
//! `headers["x-name"]`, `payload.some.member`, `tombstone`, each also after `event.`.
//!
//! An expression is checked when it is given: it must parse, name only what there is, use only
//! functions that are cheap, and stay within the limits. Then every member of payload and headers
//! that it names becomes a slot. For an event, one pass over the payload fills the slots and
//! passes over the rest: the payload is never built as a value.
//!
//! The cost is bounded before an expression runs: parts inside loops count as often as the event
//! has values for them, and long texts count for more. What is named of an event may be more than
//! that, or than a filter takes: then nobody knows, [`Verdict::Undecided`]. An event of which the
//! expression makes no sense (a text compared with a number, a member that is not there) is not
//! wanted: [`Verdict::Fault`]. `has(payload.member)` and `"name" in headers` ask
//! whether something is there.

mod path;

mod plan;

mod rewrite;

mod extract;

mod values;

use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::parser::Parser;
use cel::{Context, Env, Value};
use promethean_event::Event;

use crate::limits::{FILTER_BYTES_MAX, FILTER_COST_MAX, FILTER_DEPTH_MAX, FILTER_NODES_MAX};
use plan::Plan;
use values::EventValues;

/// The environment of every expression: the standard library without regular expressions, which
/// it would compile anew for every event.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// What an expression says of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Wanted.
    Pass,
    /// Not wanted.
    Skip,
    /// Not wanted, because the expression makes no sense of it.
    Fault,
    /// Not known: what the expression names of it is more than a filter takes, or would cost too
    /// much. It depends on nothing but the event, so that it stays so.
    Undecided,
}

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Too long.
    #[error("the filter has {0} bytes; {FILTER_BYTES_MAX} at most")]
    TooLong(usize),
    /// Not CEL.
    #[error("the filter is not an expression: {0}")]
    Syntax(String),
    /// Too many parts, or too deep.
    #[error("the filter has more than {FILTER_NODES_MAX} parts or is too deep")]
    TooLarge,
    /// Too many members named.
    #[error("the filter names more than {0} members of payload and headers")]
    TooManyMembers(usize),
    /// A name that events do not have.
    #[error(
        "there is no {0:?}; names are id, sid, ts, topic, key, partition, offset, tags, caused_by, headers, payload and tombstone"
    )]
    UnknownName(String),
    /// A function that filters do not have.
    #[error("there is no function {0:?} in filters")]
    UnknownFunction(String),
    /// The payload or the headers as a whole.
    #[error(
        "name a member, as in payload.cpu_pct or headers[\"x-source\"]; for null payloads use tombstone"
    )]
    WholePayload,
    /// A member of something that has none.
    #[error("{0} has no members")]
    NoMembers(&'static str),
    /// Something of CEL that filters do without.
    #[error("{0} is not used in filters")]
    Unsupported(&'static str),
    /// A loop inside a loop over something else than its element.
    #[error("a loop inside a loop may only go over a member of the outer one's element")]
    NestedLoop,
    /// A regular expression that is none, or not written down.
    #[error("matches() needs a regular expression as a literal: {0}")]
    Regex(String),
}

/// A checked expression. Cheap to clone, and to evaluate on many threads.
#[derive(Clone)]
pub struct Expression {
    inner: Arc<Compiled>,
}

struct Compiled {
    source: String,
    plan: Plan,
    root: Context<'static, 'static>,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Expression").field(&self.inner.source).finish()
    }
}

impl Expression {
    /// Checks an expression.
    pub fn compile(source: &str) -> Result<Self, FilterError> {
        if source.len() > FILTER_BYTES_MAX {
            return Err(FilterError::TooLong(source.len()));
        }
        if path::depth(source) > usize::from(FILTER_DEPTH_MAX) {
            return Err(FilterError::TooLarge);
        }
        let parsed = Parser::new().max_recursion_depth(4 * FILTER_DEPTH_MAX).parse(source);
        let tree = parsed.map_err(|errors| FilterError::Syntax(first_line(&errors)))?;
        let plan = rewrite::plan(&tree)?;
        let mut root = Context::with_env(Arc::clone(&ENVIRONMENT));
        let regexes = Arc::clone(&plan.regexes);
        // The name is free: the environment has no regular expressions.
        let _ = root.add_function(
            "matches",
            move |This(text): This<Arc<String>>, name: Arc<String>| {
                regexes.get(&**name).is_some_and(|regex| regex.is_match(&text))
            },
        );
        let source = source.to_owned();
        Ok(Self { inner: Arc::new(Compiled { source, plan, root }) })
    }

    /// The expression as it was written.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Whether the event is wanted.
    pub fn verdict(&self, event: &Event) -> Verdict {
        let plan = &self.inner.plan;
        let Some(values) = EventValues::take(plan, event) else {
            return Verdict::Undecided;
        };
        if values.cost(plan) > FILTER_COST_MAX {
            return Verdict::Undecided;
        }
        let mut context = self.inner.root.new_inner_scope();
        context.set_variable_resolver(&values);
        match Value::resolve(&plan.tree, &context) {
            Ok(Value::Bool(true)) => Verdict::Pass,
            Ok(Value::Bool(false)) => Verdict::Skip,
            Ok(_) | Err(_) => Verdict::Fault,
        }
    }
}

fn first_line(errors: &cel::ParseErrors) -> String {
    let text = errors.to_string();
    text.lines().next().unwrap_or("it does not parse").chars().take(200).collect()
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
