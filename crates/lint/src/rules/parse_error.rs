use super::{Context, Reach, Rule};
use crate::finding::Draft;
use crate::settings::Level;

const DOC: &str = "\
# parse-error (PROM-L010)

A file could not be read, or not all of it could be parsed. What could be parsed is still checked. One
finding per file, at the first place. Files that cannot name a topic, since they have none of the
names of calls and nothing that such a call needs, are not parsed.

## Why

Calls in the part that was not understood are not checked, and a file that is passed over in silence
looks like a clean one.

## Bad

```ts
bus.publish(\"heartbeat.received\", { pid: };
```

## Good

```ts
bus.publish(\"heartbeat.received\", { pid: 1 });
```

## How to fix

Mend the syntax. Leave out files that are generated, larger than 1 MiB, or in a dialect that the
grammar does not know: `lint.exclude`.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L010",
    name: "parse-error",
    summary: "A file could not be read or parsed in full.",
    default: Level::Warning,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for (file, source) in context.files.iter().enumerate() {
        if let Some(failure) = source.known().and_then(|facts| facts.failures.first()) {
            drafts.push(Draft {
                file,
                span: failure.span.clone(),
                subject: source.path.clone(),
                message: format!("{}: {}", source.path, failure.what),
                help: "calls in this part are not checked".to_owned(),
            });
        }
    }
    drafts
}
