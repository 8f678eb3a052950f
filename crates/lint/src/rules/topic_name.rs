use promethean_event::limits::TOPIC_BYTES_MAX;

use super::{Context, Reach, Rule, draft, pattern};
use crate::finding::Draft;
use crate::settings::Level;

const DOC: &str = "\
# topic-name (PROM-L001)

A topic name does not match `lint.topic_pattern`, or is longer than 249 bytes. The whole name has
to match: by default lower-case letters and digits in segments between dots, with an optional
version at the end (`.v2`). Readers may also use patterns with `*` and `**` as whole segments.

## Why

Names end up in paths, metrics, access rules and file names. One spelling per topic keeps
`process.started`, `Process.Started` and `process_started` from being three streams.

## Bad

```ts
bus.publish(\"Heartbeat Received\", beat);
bus.subscribe(\"heartbeat..received\", \"ops\", handle);
```

## Good

```ts
bus.publish(\"heartbeat.received\", beat);
bus.subscribe(\"heartbeat.*\", \"ops\", handle);
```

## How to fix

Rename the topic where it is declared, or set `lint.topic_pattern` if your names follow another
rule. Events that were stored under the old name can be copied with `prom replay OLD --to NEW`.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L001",
    name: "topic-name",
    summary: "A topic name does not follow the naming rule.",
    default: Level::Error,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    // Names of the system's are the business of system-topic.
    for (site, topic) in context.named().filter(|(_, topic)| !topic.contains('$')) {
        let message = match pattern(site, topic) {
            Some(Ok(_)) => continue,
            Some(Err(error)) => error.to_string(),
            None => match fault(context, topic) {
                Some(message) => message,
                None => continue,
            },
        };
        let help = match suggestion(topic).filter(|name| fault(context, name).is_none()) {
            Some(name) => format!("rename it, e.g. to `{name}`"),
            None => format!("names must match {}", context.settings.given.topic_pattern),
        };
        drafts.push(draft(site, topic, message, help));
    }
    drafts
}

fn fault(context: &Context<'_>, topic: &str) -> Option<String> {
    if topic.len() > TOPIC_BYTES_MAX {
        let bytes = topic.len();
        return Some(format!("topic name of {bytes} bytes is longer than {TOPIC_BYTES_MAX}"));
    }
    let good = context.settings.topic.is_match(topic);
    (!good).then(|| format!("topic name {topic:?} does not match the naming rule"))
}

/// The name with what is usually meant: `HeartbeatReceived` and `heartbeat_received` as
/// `heartbeat.received`.
fn suggestion(topic: &str) -> Option<String> {
    let mut name = String::with_capacity(topic.len());
    let mut after_lower = false;
    for letter in topic.chars() {
        if letter.is_ascii_uppercase() && after_lower {
            name.push('.');
        }
        after_lower = letter.is_ascii_lowercase();
        name.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '.' });
    }
    let segments: Vec<&str> = name.split('.').filter(|segment| !segment.is_empty()).collect();
    (!segments.is_empty()).then(|| segments.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_is_usually_meant() {
        for (given, meant) in [
            ("HeartbeatReceived", "heartbeat.received"),
            ("heartbeat_received", "heartbeat.received"),
            ("Heartbeat::Received!", "heartbeat.received"),
            ("foo..bar", "foo.bar"),
        ] {
            assert_eq!(suggestion(given).as_deref(), Some(meant));
        }
        assert_eq!(suggestion("!!"), None);
    }
}
