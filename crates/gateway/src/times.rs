//! Times as people write them, and what was understood: one grammar for the shell and for
//! addresses.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{Span, Timestamp, Zoned};
use promethean_event::EventId;

/// A moment that a user has named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The oldest event that is kept.
    Earliest,
    /// What comes from now on.
    Latest,
    /// A time.
    At(Timestamp),
    /// After an event.
    After(EventId),
}

/// A text that names no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time; write it like 15m, 2h ago, 14:00, yesterday 14:00, last tuesday, \
     2026-11-10 14:00, 2026-11-10T14:00:00Z, epoch seconds or milliseconds, earliest, latest, or \
     the id of an event"
)]
pub struct TimeError(String);

/// A text that names no span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a span of time; write it like 500ms, 30s, 15m, 2h, 7d or 1d12h")]
pub struct DurationError(String);

impl When {
    /// What it means, in words for a person.
    pub fn echo(self, now: &Zoned) -> String {
        match self {
            Self::Earliest => "the oldest event that is kept".to_owned(),
            Self::Latest => "now".to_owned(),
            Self::After(id) => format!("after event {id}"),
            Self::At(at) => {
                let local = at.to_zoned(now.time_zone().clone());
                // Milliseconds that were written are said; those of `15m` are chance.
                let nanos = at.subsec_nanosecond();
                let (shown, utc) = if nanos != 0 && nanos % 1_000_000 == 0 {
                    ("%a %Y-%m-%d %H:%M:%S%.3f %Z", "%Y-%m-%dT%H:%M:%S%.3fZ")
                } else {
                    ("%a %Y-%m-%d %H:%M:%S %Z", "%Y-%m-%dT%H:%M:%SZ")
                };
                let (shown, utc) = (local.strftime(shown), at.strftime(utc).to_string());
                if now.offset().is_zero() { utc } else { format!("{shown} = {utc}") }
            }
        }
    }

    /// The moment that it stands for where only a time will do. An id of version 7 says when it was
    /// made; one that says nothing of time stands for none.
    pub fn moment(self, now: &Zoned) -> Result<Moment, TimelessId> {
        let millis = |at: Timestamp| u64::try_from(at.as_millisecond()).unwrap_or(0);
        let (millis, said) = match self {
            Self::Earliest => (0, self.echo(now)),
            Self::Latest => (millis(now.timestamp()), self.echo(now)),
            Self::At(at) => (millis(at), self.echo(now)),
            Self::After(id) => {
                let made = id.millis().ok_or(TimelessId(id))?;
                let at = i64::try_from(made).ok();
                let at = at.and_then(|at| Timestamp::from_millisecond(at).ok());
                let at = at.ok_or(TimelessId(id))?;
                (made, format!("event {id}, made {}", Self::At(at).echo(now)))
            }
        };
        Ok(Moment { millis, said })
    }
}

/// A moment, and what was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// Of the epoch; 0 for all that was before it.
    pub millis: u64,
    /// What was understood, for a person.
    pub said: String,
}

/// An id was given for a time, and holds none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event id {0} holds no time, unlike those of version 7; give a time instead")]
pub struct TimelessId(EventId);

/// Reads a time, as it is meant `now`.
pub fn parse(text: &str, now: &Zoned) -> Result<When, TimeError> {
    let wrong = || TimeError(text.to_owned());
    let plain = text.trim().to_lowercase();
    match plain.as_str() {
        "earliest" => return Ok(When::Earliest),
        "latest" => return Ok(When::Latest),
        "now" => return Ok(When::At(now.timestamp())),
        _ => {}
    }
    if let Ok(id) = plain.parse::<EventId>() {
        return Ok(When::After(id));
    }
    if plain.bytes().all(|byte| byte.is_ascii_digit()) {
        return epoch(&plain).map(When::At).ok_or_else(wrong);
    }
    if let Some(ago) = ago(&plain) {
        let ago = i64::try_from(ago.as_millis()).map_err(|_| wrong())?;
        let at =
            now.timestamp().checked_sub(Span::new().try_milliseconds(ago).map_err(|_| wrong())?);
        return at.map(When::At).map_err(|_| wrong());
    }
    if let Ok(at) = text.trim().parse::<Timestamp>() {
        return Ok(When::At(at));
    }
    local(&plain, now).ok_or_else(wrong)
}

/// Seconds, milliseconds, micro- or nanoseconds, by how many digits there are.
fn epoch(digits: &str) -> Option<Timestamp> {
    let number: i128 = digits.parse().ok()?;
    let nanos = match digits.len() {
        10 => number * 1_000_000_000,
        13 => number * 1_000_000,
        16 => number * 1_000,
        19 => number,
        _ => return None,
    };
    Timestamp::from_nanosecond(nanos).ok()
}

/// `15m`, `-15m`, `15m ago`.
fn ago(text: &str) -> Option<Duration> {
    let text = text.strip_suffix(" ago").unwrap_or(text).trim();
    duration(text.strip_prefix('-').unwrap_or(text)).ok()
}

/// A span of time: numbers with units, together.
pub fn duration(text: &str) -> Result<Duration, DurationError> {
    let wrong = || DurationError(text.to_owned());
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(end);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let tail = tail.trim_start();
        let end = tail.find(|c: char| c.is_ascii_digit() || c == ' ').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let unit = match unit {
            "ms" => 1,
            "s" | "sec" | "second" | "seconds" => 1_000,
            "m" | "min" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            "w" | "week" | "weeks" => 604_800_000,
            _ => return Err(wrong()),
        };
        millis = number.checked_mul(unit).and_then(|n| millis.checked_add(n)).ok_or_else(wrong)?;
        rest = tail.trim_start();
    }
    Ok(Duration::from_millis(millis))
}

/// Dates and times of day, in the time zone of whoever writes them.
fn local(text: &str, now: &Zoned) -> Option<When> {
    let zoned = |at: DateTime| {
        let at = at.to_zoned(now.time_zone().clone()).ok()?;
        Some(When::At(at.timestamp()))
    };
    if let Ok(at) = text.replacen(' ', "t", 1).parse::<DateTime>() {
        return zoned(at);
    }
    if let Ok(date) = text.parse::<Date>() {
        return zoned(date.to_datetime(Time::midnight()));
    }
    if let Some(time) = time_of_day(text) {
        // The last time that a clock showed it.
        let today = now.date().to_datetime(time);
        let is_past = today <= now.datetime();
        return zoned(if is_past { today } else { now.yesterday().ok()?.date().to_datetime(time) });
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let (day, time) = match words.as_slice() {
        ["last", day] => (*day, Time::midnight()),
        ["last", day, time] => (*day, time_of_day(time)?),
        [day] => (*day, Time::midnight()),
        [day, time] => (*day, time_of_day(time)?),
        _ => return None,
    };
    let date = match day {
        "today" => now.date(),
        "yesterday" => now.date().yesterday().ok()?,
        name => now.date().nth_weekday(-1, weekday(name)?).ok()?,
    };
    zoned(date.to_datetime(time))
}

fn time_of_day(text: &str) -> Option<Time> {
    text.contains(':').then(|| text.parse().ok()).flatten()
}

fn weekday(name: &str) -> Option<Weekday> {
    Some(match name.get(..3)? {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Monday.
    fn now() -> Zoned {
        "2026-11-16T12:30:00+01:00[+01:00]".parse().unwrap()
    }

    fn read(text: &str) -> String {
        match parse(text, &now()).unwrap() {
            When::At(at) => at.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_people_write() {
        for (text, meant) in [
            ("now", "2026-11-16T11:30:00Z"),
            ("15m", "2026-11-16T11:15:00Z"),
            ("-15m", "2026-11-16T11:15:00Z"),
            ("2h ago", "2026-11-16T09:30:00Z"),
            ("1 minute ago", "2026-11-16T11:29:00Z"),
            ("2 hours 30 minutes ago", "2026-11-16T09:00:00Z"),
            ("1d3h5m", "2026-11-15T08:25:00Z"),
            ("1d 30s", "2026-11-15T11:29:30Z"),
            ("2026-11-10T14:00:00Z", "2026-11-10T14:00:00Z"),
            ("2026-11-10T14:00:00.250+02:00", "2026-11-10T12:00:00.25Z"),
            ("2026-11-10 14:00", "2026-11-10T13:00:00Z"),
            ("2026-11-10 14:00:05.123", "2026-11-10T13:00:05.123Z"),
            ("2026-11-10", "2026-11-09T23:00:00Z"),
            ("1794000000", "2026-11-06T21:20:00Z"),
            ("1794000000000", "2026-11-06T21:20:00Z"),
            ("1794000000000000", "2026-11-06T21:20:00Z"),
            ("1794000000000000000", "2026-11-06T21:20:00Z"),
            ("12:00", "2026-11-16T11:00:00Z"),
            ("13:00", "2026-11-15T12:00:00Z"),
            ("today", "2026-11-15T23:00:00Z"),
            ("Yesterday 14:00", "2026-11-15T13:00:00Z"),
            ("last tuesday", "2026-11-09T23:00:00Z"),
            ("last tuesday 14:00", "2026-11-10T13:00:00Z"),
            ("monday", "2026-11-08T23:00:00Z"),
            ("sun 08:15", "2026-11-15T07:15:00Z"),
        ] {
            assert_eq!(read(text), meant, "{text}");
        }
        assert_eq!(read("earliest"), "Earliest");
        let id = EventId::generate();
        assert_eq!(parse(&id.to_string(), &now()), Ok(When::After(id)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "soon", "15", "123456789", "5y", "25:00", "last", "last 14:00", "m", "-"] {
            assert!(parse(text, &now()).is_err(), "{text}");
        }
        for text in ["", "5", "m", "5x", "s5", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    /// Where only a time will do, every way to write one is one: none of them means "all".
    #[test]
    fn everything_is_a_moment_but_an_id_without_time() {
        let moment = |text: &str| parse(text, &now()).unwrap().moment(&now());
        let noon = 1_794_828_600_000;
        assert_eq!(moment("now").unwrap().millis, noon);
        assert_eq!(moment("latest").unwrap().millis, noon);
        assert_eq!(moment("15m").unwrap().millis, noon - 900_000);
        assert_eq!(moment("earliest").unwrap().millis, 0);
        assert_eq!(moment("1960-01-01").unwrap().millis, 0);
        let made = moment(&EventId::v7(noon, [0; 10]).to_string()).unwrap();
        assert_eq!(made.millis, noon);
        assert!(made.said.ends_with("made Mon 2026-11-16 12:30:00 +01 = 2026-11-16T11:30:00Z"));
        let timeless = EventId::derived("test", b"id");
        assert_eq!(moment(&timeless.to_string()), Err(TimelessId(timeless)));
    }

    #[test]
    fn the_reading_is_echoed() {
        let at = parse("last tuesday 14:00", &now()).unwrap();
        assert_eq!(at.echo(&now()), "Tue 2026-11-10 14:00:00 +01 = 2026-11-10T13:00:00Z");
        let at = parse("2026-11-10 14:00:05.120", &now()).unwrap();
        assert_eq!(at.echo(&now()), "Tue 2026-11-10 14:00:05.120 +01 = 2026-11-10T13:00:05.120Z");
    }
}
