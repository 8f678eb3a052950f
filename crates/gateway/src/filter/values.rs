use cel::common::types::{CelBool, CelInt, CelNull, CelString};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{ExecutionError, Value};
use promethean_event::Event;

use super::extract::{self, Taken};
use super::plan::Plan;

/// A field of an event that is not payload or headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Id,
    Sid,
    Ts,
    Topic,
    Key,
    Partition,
    Offset,
    Tags,
    CausedBy,
    Tombstone,
}

impl Field {
    const ALL: [(&'static str, Self); 10] = [
        ("id", Self::Id),
        ("sid", Self::Sid),
        ("ts", Self::Ts),
        ("topic", Self::Topic),
        ("key", Self::Key),
        ("partition", Self::Partition),
        ("offset", Self::Offset),
        ("tags", Self::Tags),
        ("caused_by", Self::CausedBy),
        ("tombstone", Self::Tombstone),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, field)| *field)
    }

    fn numbered(number: usize) -> Option<Self> {
        Self::ALL.get(number).map(|(_, field)| *field)
    }

    fn of(self, event: &Event) -> CowVal<'_, '_> {
        match self {
            Self::Id => CowVal::owned(CelString::from(event.id.to_string())),
            Self::Sid => optional(event.sid.map(|sid| CelString::from(sid.to_string()))),
            Self::Ts => int(event.ts.millis()),
            Self::Topic => CowVal::owned(CelString::from(event.topic.as_str())),
            Self::Key => optional(event.key.as_ref().map(|key| CelString::from(key.as_str()))),
            Self::Partition => int(u64::from(event.partition.get())),
            Self::Offset => int(event.offset.get()),
            Self::Tags => list(event.tags.iter().map(|tag| tag.as_str().to_owned())),
            Self::CausedBy => list(event.caused_by.iter().map(ToString::to_string)),
            Self::Tombstone => CowVal::owned(CelBool::from(event.payload.is_tombstone())),
        }
    }
}

fn int<'a>(number: u64) -> CowVal<'a, 'a> {
    CowVal::owned(CelInt::from(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn optional(text: Option<CelString<'_>>) -> CowVal<'_, '_> {
    match text {
        Some(text) => CowVal::owned(text),
        None => CowVal::owned(CelNull),
    }
}

fn list<'a>(texts: impl Iterator<Item = String>) -> CowVal<'a, 'a> {
    let list: Vec<Value> = texts.map(Value::from).collect();
    let value: Result<Box<dyn Val>, ExecutionError> = Value::from(list).try_into();
    value.map_or_else(|_| CowVal::owned(CelNull), CowVal::Owned)
}

/// What an expression sees of one event.
pub(super) struct EventValues<'a> {
    event: &'a Event,
    headers: &'a [String],
    values: Vec<Option<Box<dyn Val>>>,
    present: Vec<bool>,
    taken: Taken,
}

impl<'a> EventValues<'a> {
    /// Takes out what the plan names; `None` beyond the limits.
    pub(super) fn take(plan: &'a Plan, event: &'a Event) -> Option<Self> {
        let found = extract::extract(&plan.members, plan.slots, event.payload.as_bytes())?;
        let boxed = |value: Option<Value>| value.and_then(|value| value.try_into().ok());
        Some(Self {
            event,
            headers: &plan.headers,
            values: found.values.into_iter().map(boxed).collect(),
            present: found.present,
            taken: found.taken,
        })
    }

    /// The most that the expression can cost on these values: see `FILTER_COST_MAX`.
    pub(super) fn cost(&self, plan: &Plan) -> u64 {
        // Texts of the event itself are bounded by their own limits; key and headers may be long.
        let key = self.event.key.as_ref().map_or(0, |key| key.as_str().len());
        let headers: usize = if self.headers.is_empty() {
            0
        } else {
            self.event.headers.iter().map(|(_, value)| value.len()).sum()
        };
        let bytes = (self.taken.bytes + key + headers) as u64;
        let lists = (self.event.tags.len() + self.event.caused_by.len()) as u64;
        let elements = (self.taken.values as u64 + lists).max(plan.weight.literal_elements);
        (plan.weight.once + plan.weight.looped * elements) * (1 + bytes / 256)
    }
}

impl VariableResolver for EventValues<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let (kind, number) = variable.split_at_checked(1)?;
        // Called also for names of loop variables and members, which are no numbers.
        let number: usize = number.parse().ok()?;
        match kind {
            "$" => self.values.get(number)?.as_deref().map(CowVal::Borrowed),
            "?" => Some(CowVal::owned(CelBool::from(*self.present.get(number)?))),
            "#" => {
                let value = self.event.headers.get(self.headers.get(number)?)?;
                Some(CowVal::owned(CelString::from(value)))
            }
            "~" => {
                let value = self.event.headers.get(self.headers.get(number)?);
                Some(CowVal::owned(CelBool::from(value.is_some())))
            }
            "%" => Some(Field::numbered(number)?.of(self.event)),
            _ => None,
        }
    }
}
