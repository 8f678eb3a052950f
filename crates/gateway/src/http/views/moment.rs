//! Moments, as an address writes them.

use promethean::Moment;
use promethean::projection::Position;
use promethean_event::{Key, Partition, Timestamp};

use super::Named;
use crate::http::call::Call;
use crate::http::time;
use crate::rejection::{Code, Rejection};

const PLACES: &str = "; of one key also a position such as orders/0/42";

fn bad(detail: String) -> Rejection {
    Rejection::new(Code::BadRequest, detail)
}

/// Whether times are those of appends, or of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Append,
    Event,
}

pub(super) fn by(call: &Call) -> Result<By, Rejection> {
    match call.query.text("by") {
        None | Some("append") => Ok(By::Append),
        Some("event") => Ok(By::Event),
        Some(_) => {
            Err(bad("by is append, what was known then, or event, what had happened".into()))
        }
    }
}

/// A time in the address.
fn time(call: &Call, name: &str, text: &str) -> Result<Timestamp, Rejection> {
    time::moment(call, text).map_err(|error| bad(format!("{name}: {error}{PLACES}")))
}

/// The moment of a parameter, for a key; `None` if it is not given.
pub(super) fn of_key(
    call: &Call,
    name: &str,
    named: &Named,
    key: &str,
) -> Result<Option<Moment>, Rejection> {
    // Looked at even where it is of no use: what is wrong is said.
    let by = by(call)?;
    let Some(text) = call.query.text(name) else {
        return Ok(None);
    };
    if !text.contains('/') {
        let time = time(call, name, text)?;
        return Ok(Some(match by {
            By::Append => Moment::Appended(time),
            By::Event => Moment::Happened(time),
        }));
    }
    let position: Position = text.parse().map_err(|error| bad(format!("{name}: {error}")))?;
    if by == By::Event {
        return Err(bad("a position is a place in the log: by=event needs a time".into()));
    }
    let topics = call.edge.bus.topics();
    let entry =
        topics.get(&position.topic).filter(|_| named.projection.topics().contains(&position.topic));
    let Some(entry) = entry else {
        let read: Vec<&str> =
            named.projection.topics().iter().map(|topic| topic.as_str()).collect();
        let detail = format!("{name}: view {} is made of {}", named.view, read.join(", "));
        return Err(bad(detail));
    };
    let key = Key::new(key).map_err(|error| bad(error.to_string()))?;
    let any = promethean_event::EventId::from_bytes([0; 16]);
    let partition: Partition = entry.definition.partitions.partition_of(Some(&key), &any);
    if named.projection.is_by_key() && partition != position.partition {
        return Err(bad(format!(
            "{name}: the key is in partition {partition} of {}",
            position.topic
        )));
    }
    Ok(Some(Moment::Offset(position.offset)))
}

/// The moment of a parameter, for a whole view: a time.
pub(super) fn of_view(call: &Call, name: &str) -> Result<Option<Moment>, Rejection> {
    // Looked at even where it is of no use: what is wrong is said.
    let by = by(call)?;
    let Some(text) = call.query.text(name) else {
        return Ok(None);
    };
    let time = time(call, name, text)?;
    Ok(Some(match by {
        By::Append => Moment::Appended(time),
        By::Event => Moment::Happened(time),
    }))
}
