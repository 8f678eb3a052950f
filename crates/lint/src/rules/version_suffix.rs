use super::{Context, Reach, Rule, draft};
use crate::catalogue::without_version;
use crate::finding::Draft;
use crate::settings::{CallKind, Level};

const DOC: &str = "\
# version-suffix (PROM-L007)

Code publishes to `topic.vN`. Reading from it is fine.

## Why

The versioned topic is written by the bus, in the same atomic publish as the topic itself, while an
evolution runs (`prom evolve`). Who publishes to it directly makes a second stream that the readers of
`topic` never see, and whose events are not linked to theirs.

## Bad

```ts
await bus.publish(\"heartbeat.received.v2\", beat);
```

## Good

```ts
await bus.publish(\"heartbeat.received\", beat, { headers: { \"x-schema-version\": \"2\" } });
```

## How to fix

Publish to the topic and say the version in `x-schema-version`; `prom evolve start` turns the dual
write on.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L007",
    name: "version-suffix",
    summary: "Code publishes to topic.vN directly.",
    default: Level::Warning,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let published = context.named().filter(|(site, _)| site.kind == CallKind::Publish);
    let suffixed = published.filter_map(|(site, topic)| {
        let (base, version) = without_version(topic)?;
        let message = format!("publishes to {topic:?} directly, past the readers of {base:?}");
        let help = format!("publish to `{base}` with header `x-schema-version: {version}`");
        Some(draft(site, topic, message, help))
    });
    suffixed.collect()
}
