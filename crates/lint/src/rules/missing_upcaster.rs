use super::{Context, Reach, Rule};
use crate::finding::Draft;
use crate::settings::Level;

const DOC: &str = "\
# missing-upcaster (PROM-L006)

A topic has a version that is not the newest, and no upcaster from it to the next one. Also reported:
an upcaster from a version that is not registered.

## Why

Stored events keep the version they were written with. A reader of the newest version can read them
only through a whole chain of upcasters; one missing hop makes every older event unreadable, in
replays first.

## Bad

```text
schemas/heartbeat.received/v1.json
schemas/heartbeat.received/v2.json
```

## Good

```text
schemas/heartbeat.received/v1.json
schemas/heartbeat.received/v1.upcast.json
schemas/heartbeat.received/v2.json
```

## How to fix

`prom schema upcaster TOPIC FROM TO` writes a stub; fill in what the new version renames, removes or adds.
An old version that no stored event has may be removed instead.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L006",
    name: "missing-upcaster",
    summary: "An old schema version has no upcaster to the next one.",
    default: Level::Error,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (topic, entry) in &context.catalogue.topics {
        let mut versions = entry.versions.clone();
        versions.sort_unstable();
        versions.dedup();
        let (file, span) = context.declared(topic);
        let mut add = |version: u32, message: String, help: String| {
            let subject = format!("{topic}@{version}");
            drafts.push(Draft { file, span: span.clone(), subject, message, help });
        };
        for pair in versions.windows(2) {
            if let &[old, new] = pair
                && !entry.upcasters.contains(&old)
            {
                let message = format!("{topic:?} has no upcaster from version {old} to {new}");
                add(old, message, format!("prom schema upcaster {topic} {old} {new}"));
            }
        }
        for from in entry.upcasters.iter().filter(|from| !versions.contains(from)) {
            let message =
                format!("{topic:?} has an upcaster from version {from}, which is not registered");
            add(*from, message, "register the version, or remove the upcaster".to_owned());
        }
    }
    drafts
}
