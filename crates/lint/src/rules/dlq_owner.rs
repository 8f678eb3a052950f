use super::{Context, Reach, Rule, draft};
use crate::catalogue::is_dead_letter;
use crate::finding::Draft;
use crate::settings::{CallKind, Level};

const DOC: &str = "\
# dlq-owner (PROM-L008)

A dead-letter topic (`dlq.NAME` or `NAME.dlq`) is declared without an owner, or code publishes to or
subscribes to one that is not declared with an owner.

## Why

Dead letters are work that somebody has to do. Without an owner nobody does it, and a reader that
nobody knows of hides them from those who would. The bus parks dead letters per group and keeps them
redeliverable (`prom dlq`); a topic of one's own loses that.

## Bad

```ts
bus.subscribe(\"dlq.heartbeat.received\", \"janitor\", drop);
```

## Good

```toml
[topic.\"dlq.heartbeat.received\"]
owner = \"team-ops\"
```

## How to fix

Declare the topic with an `owner`, or use `prom dlq ls|show|replay|drop` instead of a topic.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L008",
    name: "dlq-owner",
    summary: "A dead-letter topic has no owner.",
    default: Level::Warning,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    let topics = &context.catalogue.topics;
    let owned = |topic: &str| {
        let owner = topics.get(topic).and_then(|entry| entry.owner.as_deref());
        owner.is_some_and(|owner| !owner.trim().is_empty())
    };
    for topic in topics.keys().filter(|topic| is_dead_letter(topic) && !owned(topic)) {
        let (file, span) = context.declared(topic);
        let message = format!("dead-letter topic {topic:?} has no owner");
        let help = "add `owner = \"…\"`".to_owned();
        drafts.push(Draft { file, span, subject: topic.clone(), message, help });
    }
    for (site, topic) in context.named() {
        // One that is declared is reported at its declaration.
        if !is_dead_letter(topic) || topics.contains_key(topic) || site.kind == CallKind::Define {
            continue;
        }
        let does = if site.kind == CallKind::Publish { "publishes to" } else { "subscribes to" };
        let message = format!("{does} dead-letter topic {topic:?}, which has no owner");
        let help = format!("declare [topic.\"{topic}\"] with an owner, or use `prom dlq`");
        drafts.push(draft(site, topic, message, help));
    }
    drafts
}
