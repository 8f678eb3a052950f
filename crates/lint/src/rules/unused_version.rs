use std::collections::{BTreeMap, BTreeSet};

use super::{Context, Reach, Rule};
use crate::catalogue::without_version;
use crate::finding::Draft;
use crate::settings::Level;

const DOC: &str = "\
# unused-version (PROM-L005)

The newest registered version of a topic is named by no code, while the topic is: by `version: N` in
a definition, by an `x-schema-version` header, or by the topic `name.vN`. A call that names the topic
without a version means the newest. Old versions are not judged here: stored events may still need
them, and what leads away from them is the business of missing-upcaster.

## Why

A newest version that no writer names was registered and then forgotten: the evolution stopped half
way, and readers wait for events that do not come.

## Bad

```ts
topic(\"heartbeat.received\", { version: 1, schema }); // v2 is registered, nobody writes it
```

## Good

```ts
topic(\"heartbeat.received\", { version: 2, schema });
```

## How to fix

Move the writers to the new version (`prom evolve plan` shows the steps), or remove the version from
the schema directory if no stored event has it.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L005",
    name: "unused-version",
    summary: "The newest schema version is not used by any code.",
    default: Level::Warning,
    reach: Reach::WholeProject,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let mut named: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for (site, topic) in context.named() {
        if let Some(entry) = context.catalogue.topics.get(topic) {
            let version = site.version.or_else(|| entry.latest());
            named.entry(topic).or_default().extend(version);
        } else if let Some((base, version)) = without_version(topic) {
            named.entry(base).or_default().insert(version);
        }
    }
    let mut drafts = Vec::new();
    for (topic, used) in named {
        let Some(entry) = context.catalogue.topics.get(topic) else {
            continue;
        };
        let Some(newest) = entry.latest().filter(|newest| !used.contains(newest)) else {
            continue;
        };
        let (file, span) = context.declared(topic);
        let subject = format!("{topic}@{newest}");
        let message = format!("version {newest} of {topic:?} is registered, but used by no code");
        let help = "move the writers to it, or remove it".to_owned();
        drafts.push(Draft { file, span, subject, message, help });
    }
    drafts
}
