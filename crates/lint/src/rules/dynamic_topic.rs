use super::{Context, Reach, Rule, draft};
use crate::finding::Draft;
use crate::settings::Level;

const DOC: &str = "\
# dynamic-topic (PROM-L009)

The topic of a call could not be resolved from the code: it is made of something that only running
the program tells. Literals, constants, enum members, templates and concatenations of those, and
parameters whose callers are in the linted code are resolved, also over imports.

## Why

The other rules cannot say anything about such a call. It is listed so that nobody takes silence for
a clean bill.

## Bad

```ts
await bus.publish(`${process.env.TEAM}.started`, event);
```

## Good

```ts
const STARTED = { ops: \"ops.started\", dev: \"dev.started\" } as const;
await bus.publish(STARTED[team], event);
```

## How to fix

Choose among constants. If the call is a wrapper that others call, name it, so that its callers are
checked instead: `calls = [{ name = \"myPublish\", argument = 0 }]`. If the call has nothing to do
with events, restrict the rule for its name: `calls = [{ name = \"stream\", kind = \"subscribe\",
receivers = [\"bus\"] }]`.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L009",
    name: "dynamic-topic",
    summary: "The topic of a call is known only when the program runs.",
    default: Level::Note,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let unknown = context.sites.topics.iter().filter(|site| site.topic.is_none());
    let drafts = unknown.map(|site| {
        let message = format!("the topic `{}` of `{}` cannot be resolved", site.written, site.call);
        let help = "use constants, or add a wrapper's name to lint.calls";
        draft(site, &site.written, message, help)
    });
    drafts.collect()
}
