use promethean_event::Headers;

use super::{Context, Reach, Rule};
use crate::finding::Draft;
use crate::settings::Level;

const DOC: &str = "\
# header-name (PROM-L002)

A header that a publisher sets is neither prefixed (`lint.header_prefix`, by default `x-`) nor in
`lint.header_allow` (by default content-type, traceparent, tracestate, correlation-id), or it has
characters that the bus refuses: header names are `[a-z0-9-]`.

## Why

Unprefixed names are kept for standards and for the bus. Upper case is refused at publish time,
which is late to learn of it.

## Bad

```ts
await bus.publish(\"a.b\", p, { headers: { correlationId: id, \"x-change-clusterTime\": t } });
```

## Good

```ts
await bus.publish(\"a.b\", p, { headers: { \"correlation-id\": id, \"x-change-cluster-time\": t } });
```

## How to fix

Rename the header in writers and readers, or add a standard name to `lint.header_allow`.
";

pub(super) const RULE: Rule = Rule {
    id: "PROM-L002",
    name: "header-name",
    summary: "A header name has no prefix, or characters that the bus refuses.",
    default: Level::Error,
    reach: Reach::Place,
    doc: DOC,
    check,
};

fn check(context: &Context<'_>) -> Vec<Draft> {
    let given = context.settings.given;
    let mut drafts = Vec::new();
    for header in &context.sites.headers {
        let name = header.name.as_str();
        let refused = Headers::new().insert(name, "").err();
        let own = name.strip_prefix(given.header_prefix.as_str());
        let known = own.is_some_and(|rest| !rest.is_empty())
            || given.header_allow.iter().any(|allowed| allowed == name);
        let message = match (refused, known) {
            (Some(error), _) => error.to_string(),
            (None, false) => {
                format!("header {name:?} does not begin with {:?}", given.header_prefix)
            }
            (None, true) => continue,
        };
        let help = format!("rename it, e.g. to `{}`", suggestion(name, given));
        let (file, span) = (header.file, header.span.clone());
        drafts.push(Draft { file, span, subject: name.to_owned(), message, help });
    }
    drafts
}

/// `correlationId` as `correlation-id`, `Tenant_Name` as `x-tenant-name`.
fn suggestion(name: &str, settings: &crate::settings::Settings) -> String {
    let mut words = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && words.ends_with(|last: char| last.is_ascii_lowercase()) {
            words.push('-');
        }
        let kept = letter.is_ascii_alphanumeric();
        words.push(if kept { letter.to_ascii_lowercase() } else { '-' });
    }
    let words = words.trim_matches('-');
    let allowed = settings.header_allow.iter().any(|allowed| allowed == words);
    if allowed || words.starts_with(&settings.header_prefix) {
        words.to_owned()
    } else {
        format!("{}{words}", settings.header_prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_a_good_name() {
        let settings = crate::settings::Settings::default();
        assert_eq!(suggestion("correlationId", &settings), "correlation-id");
        assert_eq!(suggestion("Tenant_Name", &settings), "x-tenant-name");
        assert_eq!(suggestion("x-change-clusterTime", &settings), "x-change-cluster-time");
    }
}
