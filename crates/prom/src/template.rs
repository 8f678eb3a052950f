//! What `--format` prints of an event: text with members of the event in braces.

use promethean_event::Event;
use serde_json::Value;

use crate::failure::Failure;

/// A text with places for members of an event, such as `{ts} {key} {payload.cpu_pct}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The names on the way to a member.
    Member(Vec<String>),
}

/// What an event has, besides what is in its payload and headers.
const MEMBERS: &[&str] = &[
    "id",
    "sid",
    "ts",
    "time",
    "topic",
    "key",
    "partition",
    "offset",
    "headers",
    "payload",
    "caused_by",
    "tags",
];

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |why: String| {
            Failure::usage(format!("--format {text:?}: {why}"))
                .hint("write it like '{time} {key} {payload.cpu_pct}'; {{ and }} are braces")
        };
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '{' | '}' if rest.peek() == Some(&c) => {
                    rest.next();
                    plain.push(c);
                }
                '}' => return Err(wrong("a } that closes nothing".to_owned())),
                '{' => {
                    let path: String = rest.by_ref().take_while(|c| *c != '}').collect();
                    let names: Vec<String> = path.split('.').map(str::to_owned).collect();
                    let first = names.first().map_or("", String::as_str);
                    if !MEMBERS.contains(&first) {
                        let known = MEMBERS.join(", ");
                        return Err(wrong(format!("an event has no {first:?}, but {known}")));
                    }
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                    parts.push(Part::Member(names));
                }
                // As they are written in shells that do not know them.
                '\\' => match rest.next() {
                    Some('n') => plain.push('\n'),
                    Some('t') => plain.push('\t'),
                    Some(other) => plain.push(other),
                    None => plain.push('\\'),
                },
                other => plain.push(other),
            }
        }
        parts.push(Part::Text(plain));
        Ok(Self { parts })
    }

    pub(crate) fn fill(&self, event: &Event) -> String {
        let whole = serde_json::to_value(event).unwrap_or_default();
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Member(names) => match names.first().map(String::as_str) {
                Some("time") => time_of(event),
                _ => shown(find(&whole, names)),
            },
        };
        self.parts.iter().map(part).collect()
    }
}

fn time_of(event: &Event) -> String {
    let ms = i64::try_from(event.ts.millis()).ok();
    let at = ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| event.ts.to_string(), |at| format!("{at:.3}"))
}

fn find<'a>(value: &'a Value, names: &[String]) -> Option<&'a Value> {
    names.iter().try_fold(value, |value, name| match value {
        Value::Object(members) => members.get(name),
        Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
        _ => None,
    })
}

/// Texts as they are, so that they can be used; everything else as JSON; nothing as nothing.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => crate::output::plain(text),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        serde_json::from_value(serde_json::json!({
            "id": "00000000-0000-0000-0000-000000000000", "ts": 1_700_000_000_123_u64,
            "topic": "a.b", "key": "k", "partition": 1, "offset": 7, "tags": ["#x", "#y"],
            "headers": { "x-source": "shop" },
            "payload": { "cpu": { "pct": 91.5 }, "name": "stt\u{1b}[31m", "gone": null },
        }))
        .unwrap()
    }

    #[test]
    fn members_are_filled_in() {
        for (template, expected) in [
            ("{key}", "k"),
            ("{topic}/{partition}@{offset}", "a.b/1@7"),
            ("{time} {ts}", "2023-11-14T22:13:20.123Z 1700000000123"),
            ("{payload.cpu.pct}|{payload.gone}|{payload.nothing}|", "91.5|null||"),
            ("{tags.1} {headers.x-source}", "#y shop"),
            ("{{{key}}} \\t.", "{k} \t."),
            ("plain", "plain"),
        ] {
            assert_eq!(Template::parse(template).unwrap().fill(&event()), expected, "{template}");
        }
        let name = Template::parse("{payload.name}").unwrap().fill(&event());
        assert!(!name.contains('\u{1b}'), "a terminal is not at the mercy of events");
    }

    #[test]
    fn what_an_event_does_not_have_is_refused() {
        for wrong in ["{cpu}", "{", "}", "{}", "{ key}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
