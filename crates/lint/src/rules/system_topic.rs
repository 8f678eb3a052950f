use super::{Context, Reach, Rule, draft};
use crate::finding::Draft;
use crate::settings::Level;

const DOC: &str = "\
# system-topic (PROM-L011)

A topic name has a `$`. Names that begin with it are the system's own; anywhere else it is not
allowed.

## Why

The bus refuses events for `$` topics from users, and may change what they hold at any time. A `$` in
the middle is nearly always a template that lost its quotes.

## Bad

```ts
bus.publish(\"$groups\", {});
bus.publish(\"process.${name}\", {}); // not a template: wrong quotes
```

## Good

```ts
bus.publish(`process.${NAME}`, {});
```

## How to fix

Use a topic of your own, or a template literal. To watch the system use `prom status` and the
metrics.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L011",
    name: "system-topic",
    summary: "A topic name has a `$`, which is kept for the system.",
    default: Level::Error,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let names = context.named().filter(|(_, topic)| topic.contains('$'));
    let drafts = names.map(|(site, topic)| {
        let (message, help) = if topic.starts_with('$') {
            (format!("topic {topic:?} is the system's own"), "use a topic of your own")
        } else {
            (format!("topic {topic:?} has a `$`"), "use a template literal, or leave out the `$`")
        };
        draft(site, topic, message, help)
    });
    drafts.collect()
}
