//! Times in addresses and bodies: as a command takes them, with what holds for machines. Those
//! without a zone are UTC, since the server's own is none of a client's business, and a number is
//! epoch milliseconds unless its digits are those of another unit.

use jiff::Zoned;
use jiff::tz::TimeZone;
use promethean_event::Timestamp;
use serde_json::Value;

use super::call::Call;
use crate::rejection::{Code, Rejection};
use crate::times::{self, When};

/// How much of what was written is looked at, and shown again.
const TEXT_CHARS_MAX: usize = 80;

fn bad(detail: String) -> Rejection {
    Rejection::new(Code::BadRequest, detail)
}

/// Now, by the server's clock.
fn now(call: &Call) -> Zoned {
    let millis = i64::try_from(call.edge.clock.now_ms()).unwrap_or(i64::MAX);
    let now = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    now.to_zoned(TimeZone::UTC)
}

/// What a text means, as it is meant `now`.
fn when(text: &str, now: &Zoned) -> Result<When, times::TimeError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // Seconds, micro- and nanoseconds have so many digits in our days.
    if is_number && !matches!(text.len(), 10 | 16 | 19) {
        let millis = text.parse().ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        if let Some(at) = millis {
            return Ok(When::At(at));
        }
    }
    let text = text.trim();
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => times::parse(text, now),
        // The mark at the end makes it no time, whatever its beginning says.
        Some((end, _)) => times::parse(&format!("{}…", &text[..end]), now),
    }
}

/// A time as events carry it; all that was before the epoch is at its beginning.
pub(super) fn timestamp(at: jiff::Timestamp) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

/// What the text of a parameter means.
pub(super) fn read(call: &Call, name: &str, text: &str) -> Result<When, Rejection> {
    when(text, &now(call)).map_err(|error| bad(format!("{name}: {error}")))
}

/// What it means where only a time will do; otherwise what is wrong with it.
pub(super) fn moment(call: &Call, text: &str) -> Result<Timestamp, String> {
    let now = now(call);
    let when = when(text, &now).map_err(|error| error.to_string())?;
    let moment = when.moment(&now).map_err(|error| error.to_string())?;
    Ok(Timestamp::from_millis(moment.millis))
}

/// The time of a parameter; `None` if it is not given.
pub(super) fn parameter(call: &Call, name: &str) -> Result<Option<Timestamp>, Rejection> {
    let moment = call.query.text(name).map(|text| moment(call, text));
    moment.transpose().map_err(|error| bad(format!("{name}: {error}")))
}

/// The time in a body: a number of milliseconds, or a text.
pub(super) fn value(call: &Call, name: &str, value: &Value) -> Result<Timestamp, Rejection> {
    let moment = match (value.as_u64(), value.as_str()) {
        (Some(millis), _) => Ok(Timestamp::from_millis(millis)),
        (None, Some(text)) => moment(call, text),
        (None, None) => Err("a time is epoch milliseconds or a text".to_owned()),
    };
    moment.map_err(|error| bad(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Monday, by whose clock is UTC.
    fn millis(text: &str) -> Option<u64> {
        let now: Zoned = "2026-11-16T11:30:00+00:00[UTC]".parse().unwrap();
        Some(when(text, &now).ok()?.moment(&now).ok()?.millis)
    }

    #[test]
    fn what_programs_and_people_write() {
        let noon = 1_794_828_600_000;
        for (text, meant) in [
            ("0", 0),
            ("5000", 5_000),
            ("1794828600000", noon),
            ("1794828600", noon),
            ("1794828600000000", noon),
            ("1794828600000000000", noon),
            ("2026-11-16T12:30:00+01:00", noon),
            ("now", noon),
            ("15m ago", noon - 900_000),
            ("2026-11-16 11:15", noon - 900_000),
            ("11:15", noon - 900_000),
            ("yesterday 11:30", noon - 86_400_000),
            ("last sunday 11:30", noon - 86_400_000),
        ] {
            assert_eq!(millis(text), Some(meant), "{text}");
        }
        for text in ["", "soon", "-", "99999999999999999999", "2026-11-16T25:00:00Z"] {
            assert_eq!(millis(text), None, "{text}");
        }
        let long = format!("1m ago{}", " ".repeat(100));
        assert_eq!(millis(&long), Some(noon - 60_000), "white space at the end says nothing");
        assert_eq!(
            millis(&format!("now{}x", " ".repeat(100))),
            None,
            "what is cut off is not lost"
        );
    }
}
