use super::{Context, Reach, Rule, draft, pattern};
use crate::catalogue::{is_dead_letter, without_version};
use crate::finding::Draft;
use crate::settings::Level;
use crate::sites::TopicUse;

const DOC: &str = "\
# unregistered-topic (PROM-L003)

Code uses a topic that the manifest and the registry do not know, or that has no schema although it
is not declared `schemaless`. A name with a version (`heartbeat.received.v2`) is known only if that
version is registered; the suffix alone proves nothing.

## Why

What is not registered is not validated, has no owner and no retention, and is refused by
`prom serve`. Most often the name is a typing error.

## Bad

```ts
bus.publish(\"heartbeat.recieved\", beat); // not in prom.toml
```

## Good

```toml
[topic.\"heartbeat.received\"]
schema = \"schemas/heartbeat.received\"
owner = \"team-ops\"
```

## How to fix

Mend the name, or declare the topic and add a schema (`prom schema infer` writes a first one). Topics
that need none are listed as patterns in `lint.unregistered_allow`. `lint.unregistered` sets the
level of this rule.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L003",
    name: "unregistered-topic",
    summary: "A topic in code is not registered, or has no schema.",
    default: Level::Error,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    if !context.catalogue.is_given() {
        return Vec::new();
    }
    let names = context.named().filter(|(_, topic)| !topic.contains('$'));
    names.filter_map(|(site, topic)| judge(context, site, topic)).collect()
}

fn judge(context: &Context<'_>, site: &TopicUse, topic: &str) -> Option<Draft> {
    if let Some(pattern) = pattern(site, topic) {
        let pattern = pattern.ok()?;
        let none = context.catalogue.covered(&pattern).next().is_none();
        let message = format!("pattern {topic:?} covers no registered topic");
        return none.then(|| draft(site, topic, message, "mend the pattern or declare its topics"));
    }
    let name = promethean_event::Topic::new(topic).ok()?;
    // A bad name is one finding, not two.
    let misnamed = !context.settings.topic.is_match(topic);
    if misnamed && context.settings.level(super::topic_name::RULE.name) != Level::Off {
        return None;
    }
    let allowed = context.settings.unregistered_allow.iter().any(|of| of.matches(&name));
    // Dead letters are made by the bus; who answers for them is the business of dlq-owner.
    if allowed || is_dead_letter(topic) {
        return None;
    }
    let catalogue = context.catalogue;
    match catalogue.find(topic) {
        Some((_, Some(_))) => None,
        Some((entry, None)) if entry.schemaless || !entry.versions.is_empty() => None,
        Some((_, None)) => {
            let message = format!("topic {topic:?} is declared, but has no schema");
            let help = format!("add schemas/{topic}/v1.json, or declare it `schemaless = true`");
            Some(draft(site, topic, message, help))
        }
        None => Some(unknown(context, site, topic)),
    }
}

fn unknown(context: &Context<'_>, site: &TopicUse, topic: &str) -> Draft {
    let topics = &context.catalogue.topics;
    if let Some((base, version)) = without_version(topic)
        && topics.contains_key(base)
    {
        let message = format!("version {version} of topic {base:?} is not registered");
        return draft(site, topic, message, "register the version, or use one that is");
    }
    let message = format!("topic {topic:?} is not registered");
    let near = topics.keys().map(|known| (super::distance(known, topic), known)).min();
    let help = match near.filter(|(distance, _)| *distance <= 2 + topic.len() / 10) {
        Some((_, known)) => format!("did you mean `{known}`?"),
        None => format!("declare it as [topic.\"{topic}\"] with a schema, or mend the name"),
    };
    draft(site, topic, message, help)
}
