use std::collections::HashSet;

use super::{Context, Reach, Rule, pattern};
use crate::catalogue::{is_dead_letter, without_version};
use crate::finding::Draft;
use crate::settings::{CallKind, Level};

const DOC: &str = "\
# unused-topic (PROM-L004)

A declared topic is neither published to nor read anywhere in the linted code. A definition alone is
no use. Calls with names that cannot be resolved might use it; the finding says how many there are.

## Why

A topic that nobody uses still has retention, access rules and an owner who is called at night.

## Bad

```toml
[topic.\"heartbeat.archived\"] # no code names it
```

## Good

Every topic of the manifest is used, or says that others use it:

```toml
[topic.\"heartbeat.archived\"]
external = true
```

## How to fix

Remove the topic from the manifest, set `external = true`, or lint the code that uses it as well
(`lint.paths`). The rule is left out when single paths are linted.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L004",
    name: "unused-topic",
    summary: "A declared topic is not used by any code.",
    default: Level::Warning,
    reach: Reach::WholeProject,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let mut used: HashSet<&str> = HashSet::new();
    let mut patterns = Vec::new();
    for (site, topic) in context.named().filter(|(site, _)| site.kind != CallKind::Define) {
        match pattern(site, topic) {
            Some(pattern) => patterns.extend(pattern),
            None => {
                used.insert(topic);
                used.extend(without_version(topic).map(|(base, _)| base));
            }
        }
    }
    for pattern in &patterns {
        used.extend(context.catalogue.covered(pattern));
    }
    let mut drafts = Vec::new();
    for (topic, entry) in &context.catalogue.topics {
        if entry.external || used.contains(topic.as_str()) || is_dead_letter(topic) {
            continue;
        }
        let (file, span) = context.declared(topic);
        let message =
            format!("topic {topic:?} is declared, but no code uses it{}", context.doubt());
        let help = "remove it, or declare it `external = true`".to_owned();
        drafts.push(Draft { file, span, subject: topic.clone(), message, help });
    }
    drafts
}
