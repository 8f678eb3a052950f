//! Which crate may use which. Cargo then keeps what is pure pure.

use super::manifest::{Entry, entries};
use super::tree::{Finding, SourceFile};

/// What one crate of ours may use of ours, by folders under `crates/`.
struct Allowed {
    folder: &'static str,
    uses: &'static [&'static str],
    uses_in_tests: &'static [&'static str],
}

const fn allowed(folder: &'static str, uses: &'static [&'static str]) -> Allowed {
    Allowed { folder, uses, uses_in_tests: &[] }
}

/// In the order of `ARCHITECTURE.md`, which gives the reasons.
const ALLOWED: &[Allowed] = &[
    allowed("event", &[]),
    allowed("schema", &["event"]),
    allowed("log", &["event"]),
    allowed("delivery", &["event"]),
    Allowed { uses_in_tests: &["promethean", "testing"], ..allowed("client", &["event"]) },
    allowed("lint", &["event"]),
    allowed("promethean", &["event", "schema", "log", "delivery"]),
    allowed("testing", &["event", "promethean"]),
    Allowed { uses_in_tests: &["harness"], ..allowed("mongo", &["event", "promethean"]) },
    Allowed {
        uses_in_tests: &["harness"],
        ..allowed("gateway", &["event", "schema", "promethean"])
    },
    allowed("harness", &["event", "log", "delivery", "promethean"]),
    Allowed {
        uses_in_tests: &["harness"],
        ..allowed(
            "prom",
            &["event", "schema", "log", "client", "lint", "promethean", "gateway", "mongo"],
        )
    },
];

/// Crates of others that only some of ours may use, and why.
const RESERVED: &[(&str, &[&str], &str)] = &[
    (
        "tokio",
        &["promethean", "testing", "gateway", "client", "mongo", "prom", "harness"],
        "event, log, delivery and schema are synchronous: time and input are parameters.",
    ),
    ("anyhow", &["prom"], "Libraries name their errors by operation, with thiserror."),
    ("axum", &["gateway"], "HTTP ends at the gateway."),
    ("mongodb", &["mongo"], "The driver costs more to build than all the rest."),
];

pub(super) fn check(file: &SourceFile) -> Vec<Finding> {
    let Some(folder) = file.manifest_of() else {
        return Vec::new();
    };
    let Some(allowed) = by_folder(folder) else {
        return vec![file.finding(
            1,
            format!("crate `{folder}` is not in the table of allowed edges"),
            "A crate keeps out a dependency, keeps a purity, or has readers of its own; \
             otherwise it is a module. Add it to tidy/edges.rs and ARCHITECTURE.md.",
        )];
    };
    entries(file).filter_map(|entry| judge(file, allowed, &entry)).collect()
}

fn by_folder(folder: &str) -> Option<&'static Allowed> {
    ALLOWED.iter().find(|allowed| allowed.folder == folder)
}

/// The package of `crates/log` is `promethean-log`; `promethean` and `prom` stand for themselves.
fn by_package(package: &str) -> Option<&'static Allowed> {
    match package {
        "promethean" | "prom" => by_folder(package),
        _ => by_folder(package.strip_prefix("promethean-")?),
    }
}

fn judge(file: &SourceFile, allowed: &Allowed, entry: &Entry<'_>) -> Option<Finding> {
    let (name, in_tests) = dependency(entry)?;
    let folder = allowed.folder;
    if let Some(used) = by_package(name) {
        let may = allowed.uses.contains(&used.folder)
            || in_tests && allowed.uses_in_tests.contains(&used.folder);
        return (!may).then(|| {
            let what = format!("`{folder}` may not use `{}`", used.folder);
            file.finding(entry.line, what, "See the allowed edges in ARCHITECTURE.md.")
        });
    }
    let (_, users, reason) = RESERVED.iter().find(|(reserved, ..)| *reserved == name)?;
    (!in_tests && !users.contains(&folder))
        .then(|| file.finding(entry.line, format!("`{folder}` may not use `{name}`"), reason))
}

/// The package that an entry depends on, and whether only tests do.
fn dependency<'a>(entry: &Entry<'a>) -> Option<(&'a str, bool)> {
    // `dependencies`, `target.'cfg(unix)'.dependencies`, `dependencies.promethean-log`
    let at = entry.table.rfind("dependencies")?;
    let in_tests = entry.table[..at].ends_with("dev-");
    let named_by_table = entry.table[at..].strip_prefix("dependencies.");
    let renamed = if named_by_table.is_some() && entry.key == "package" {
        Some(entry.value)
    } else {
        entry.value.split_once("package = ").map(|(_, name)| name)
    };
    let quoted = |text: &'a str| text.trim_start_matches('"').split('"').next();
    let name = match renamed {
        Some(name) => quoted(name)?,
        // `promethean-log.workspace = true`, `promethean-log = { … }`
        None => named_by_table.or_else(|| quoted(entry.key)?.split('.').next())?,
    };
    Some((name, in_tests))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(folder: &str, text: &str) -> Vec<String> {
        let file = SourceFile::example(&format!("crates/{folder}/Cargo.toml"), text);
        check(&file).iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn finds_forbidden_edges_however_they_are_written() {
        for text in [
            "[dependencies]\npromethean-delivery.workspace = true\n",
            "[dependencies]\npromethean-delivery = { path = \"../delivery\" }\n",
            "[dependencies]\n\"promethean-delivery\" = \"0.1\"\n",
            "[dependencies]\ngroups = { package = \"promethean-delivery\", version = \"0.1\" }\n",
            "[dev-dependencies]\npromethean-delivery.workspace = true\n",
            "[build-dependencies]\npromethean-delivery.workspace = true\n",
            "[target.'cfg(unix)'.dependencies]\npromethean-delivery.workspace = true\n",
            "[dependencies.promethean-delivery]\nworkspace = true\n",
            "[dependencies.groups]\npackage = \"promethean-delivery\"\n",
        ] {
            assert_eq!(found("log", text), ["2: `log` may not use `delivery`"], "{text}");
        }
    }

    #[test]
    fn allowed_edges_pass() {
        assert!(found("log", "[dependencies]\npromethean-event.workspace = true\n").is_empty());
        let test_edge = "[dev-dependencies]\npromethean-harness.workspace = true\n";
        assert!(found("mongo", test_edge).is_empty());
        assert_eq!(found("mongo", &test_edge.replace("dev-", "")).len(), 1);
        assert_eq!(found("log", test_edge).len(), 1);
        assert!(found("log", "[package]\npromethean-delivery = 1\n").is_empty());
    }

    #[test]
    fn finds_reserved_crates_of_others() {
        let text = "[dependencies]\ntokio = { workspace = true, features = [\"rt\"] }\n";
        assert_eq!(found("log", text), ["2: `log` may not use `tokio`"]);
        assert!(found("promethean", text).is_empty());
        assert!(found("log", &text.replace("[dep", "[dev-dep")).is_empty());
        assert_eq!(found("event", "[dependencies]\nanyhow.workspace = true\n").len(), 1);
    }

    #[test]
    fn finds_an_unknown_crate() {
        assert_eq!(found("queue", "").len(), 1);
    }

    #[test]
    fn the_table_is_sound() {
        for allowed in ALLOWED {
            for used in allowed.uses.iter().chain(allowed.uses_in_tests) {
                assert!(by_folder(used).is_some(), "unknown {used}");
            }
        }
    }
}
