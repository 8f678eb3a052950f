//! The reference, made from the code: `docs/reference/`. These tests compare what is there with
//! what the code says; `PROM_UPDATE_DOCS=1 cargo test -p prom reference` writes it anew.

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use promethean_gateway::rejection::Code;

use crate::arguments::Arguments;
use crate::command::Status;

/// Compares a page with its file, or writes it.
fn hold(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("PROM_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differing = there.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        there == text,
        "docs/reference/{name} is not what the code says: {differing:?}; \
         PROM_UPDATE_DOCS=1 cargo test -p prom reference"
    );
}

const MADE: &str =
    "<!-- Made from the code by crates/prom/src/reference.rs; changes here are lost. -->";

#[test]
fn commands() {
    let mut root = Arguments::command();
    root.build();
    let mut text = format!(
        "# Commands\n\n{MADE}\n\n\
         People get text on a terminal; a pipe gets one JSON object on each line; `--json` gets one\n\
         document, and failures as a problem document on standard error. Progress and plans go to\n\
         standard error. What `schema`, `evolve`, `lint`, `doctor` and `bench` report is text in a pipe,\n\
         too.\n\n## Every command takes\n\n"
    );
    options(&mut text, root.get_arguments().filter(|one| one.is_global_set()));
    let _ = writeln!(text, "\n## Sets of arguments\n\nCommands that take one of these say so.");
    for (heading, about) in SETS {
        let _ = writeln!(text, "\n### {heading}\n\n{about}\n");
        let with = commands_below(&root).into_iter().find(|one| !of_set(one, heading).is_empty());
        options(&mut text, of_set(with.unwrap(), heading).into_iter());
    }
    exit_codes(&mut text);
    for command in root.get_subcommands().filter(|command| command.get_name() != "help") {
        describe(&mut text, command, "prom", 2);
    }
    hold("cli.md", &text);
}

/// Arguments that many commands share, by their heading in the help.
const SETS: [(&str, &str); 2] = [
    (
        "Where the bus is",
        "A server, or a directory. Flags win over the environment, that over the context.",
    ),
    ("Consent", "What changes or deletes something says first what it would do, and asks."),
];

/// The arguments of a command under one heading.
fn of_set<'a>(command: &'a Command, heading: &str) -> Vec<&'a Arg> {
    command.get_arguments().filter(|one| one.get_help_heading() == Some(heading)).collect()
}

fn commands_below(command: &Command) -> Vec<&Command> {
    command.get_subcommands().flat_map(|one| [vec![one], commands_below(one)].concat()).collect()
}

fn exit_codes(text: &mut String) {
    text.push_str("\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n");
    for status in Status::ALL {
        let _ = writeln!(text, "| {} | {} |", status.code(), status.words().1);
    }
    text.push_str(
        "\n`prom check` follows monitoring plugins instead: 0 good, 1 warnings, 2 errors, 3 not known. A\n\
         reader that has seen enough (`prom tail … | head`) is no failure.\n",
    );
}

fn describe(text: &mut String, command: &Command, parent: &str, level: usize) {
    let name = format!("{parent} {}", command.get_name());
    let _ = write!(text, "\n{} {name}\n\n", "#".repeat(level));
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        let _ = writeln!(text, "{}\n", escaped(&about.to_string()));
    }
    let children: Vec<&Command> =
        command.get_subcommands().filter(|child| child.get_name() != "help").collect();
    if children.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        let _ = writeln!(text, "```text\n{usage}\n```\n");
        let is_own = |one: &&Arg| {
            let heading = one.get_help_heading();
            !one.is_global_set() && !SETS.iter().any(|(name, _)| heading == Some(*name))
        };
        options(text, command.get_arguments().filter(is_own));
        let sets = SETS.iter().filter(|(heading, _)| !of_set(command, heading).is_empty());
        let link = |(heading, _): &(&str, &str)| {
            format!("[{heading}](#{})", heading.to_lowercase().replace(' ', "-"))
        };
        let sets: Vec<String> = sets.map(link).collect();
        if !sets.is_empty() {
            let _ = writeln!(text, "\nAnd: {}.", sets.join(", "));
        }
        if let Some(more) = command.get_after_help() {
            let _ = write!(text, "\n```text\n{more}\n```\n");
        }
    }
    for child in children {
        describe(text, child, &name, level + 1);
    }
}

/// A table of arguments.
fn options<'a>(text: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let is_shown =
        |one: &&Arg| !matches!(one.get_id().as_str(), "help" | "version") && !one.is_hide_set();
    let rows: Vec<String> = arguments
        .filter(is_shown)
        .map(|one| {
            let values = one.get_value_names().unwrap_or_default().join(" ");
            let takes = one.get_num_args().is_some_and(|range| range.takes_values());
            let mut name = match (one.get_short(), one.get_long()) {
                (Some(short), Some(long)) => format!("-{short}, --{long}"),
                (None, Some(long)) => format!("--{long}"),
                _ => String::new(),
            };
            if takes || name.is_empty() {
                name = format!("{name} {values}").trim().to_owned();
            }
            let help = one.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name} of a command says nothing about itself");
            let help = format!("{}.", help.trim_end_matches('.'));
            let defaults: Vec<_> =
                one.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
            let default = if takes && !defaults.is_empty() {
                format!(" Default: `{}`.", defaults.join(" "))
            } else {
                String::new()
            };
            let env =
                one.get_env().map(|name| format!(" Environment: `{}`.", name.to_string_lossy()));
            let env = env.unwrap_or_default();
            format!("| `{}` | {}{default}{env} |", name.replace('|', "\\|"), escaped(&help))
        })
        .collect();
    if !rows.is_empty() {
        let _ = writeln!(text, "| argument | what it does |\n| --- | --- |\n{}", rows.join("\n"));
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// The tables of a manifest with their keys, from the source that reads them.
#[test]
fn config() {
    let source = include_str!("manifest/document.rs");
    let mut text = format!(
        "# prom.toml\n\n{MADE}\n\n\
         One manifest for a server and for what is on it. `prom check config` checks it, `prom plan`\n\
         says what would change, `prom apply` changes it; `prom dev` and `prom serve` read the one of\n\
         their directory, or that of `--config`. A flag wins over the environment, the environment over\n\
         the file: `PROM__SERVER__LISTEN` is `listen` of `[server]`. Keys that are not known are\n\
         refused. Relative paths are from where the manifest lies.\n\n\
         Times are `500ms`, `30s`, `15m`, `2h`, `7d`; sizes `500MB`, `2GiB`.\n"
    );
    let tables = [
        ("ServerTable", "[server]"),
        ("StoreTable", "[store]"),
        ("RatesTable", "[server.rates]"),
        ("AuthTable", "[auth]"),
        ("JwtTable", "[auth.jwt]"),
        ("TopicTable", "[topic.\"NAME\"] and [defaults.topic]"),
        ("GroupTable", "[group.NAME]"),
        ("ViewTable", "[views.NAME]"),
        ("ChangefeedTable", "[changefeeds.NAME]"),
    ];
    for (table, title) in tables {
        let _ = write!(text, "\n## {title}\n\n| key | what it is |\n| --- | --- |\n");
        let rows = keys(source, table);
        assert!(rows.len() > 1, "{table}");
        for (key, what) in rows {
            let _ = writeln!(text, "| `{key}` | {what} |");
        }
    }
    let _ = write!(
        text,
        "\n## Others\n\n`version = 1` is the version of this format. `[lint]` is read by `prom lint`.\n\n\
         ## An example\n\n```toml\n{}```\n",
        include_str!("../tests/example.toml")
    );
    hold("config.md", &text);
}

/// The fields of a struct with their doc comments.
fn keys(source: &str, table: &str) -> Vec<(String, String)> {
    let begin = source.find(&format!("struct {table} {{")).unwrap();
    let body = source.get(begin..).unwrap();
    let mut found = Vec::new();
    let mut documented = Vec::new();
    for line in body.lines().skip(1).take_while(|line| *line != "}").map(str::trim) {
        if let Some(comment) = line.strip_prefix("/// ") {
            documented.push(comment);
        } else if let Some((name, _)) = line.split_once(": ") {
            let name = name.trim_start_matches("pub(crate) ");
            if !documented.is_empty() {
                found.push((name.to_owned(), documented.join(" ")));
            }
            documented.clear();
        }
    }
    found
}

/// The example of the page is a good manifest.
#[test]
fn the_example_is_good() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/example.toml");
    assert_eq!(crate::manifest::Manifest::read(&file).unwrap().check(), []);
}

#[test]
fn problems() {
    let mut text = format!(
        "# Problems\n\n{MADE}\n\n\
         A refusal is a problem document (RFC 9457): `type`, `title`, `status`, `code`, `detail`,\n\
         `instance`, `retryable` and sometimes `retry_ms`. The `code` is stable: programs go by it.\n\
         The `type` is a name and not the address of a page: there is nothing to be fetched from it.\n\n\
         | code | status | try again | what it means |\n| --- | --- | --- | --- |\n"
    );
    for code in Code::ALL {
        let again = if code.retryable() { "yes" } else { "no" };
        let _ = writeln!(
            text,
            "| `{}` | {} | {again} | {} |",
            code.as_str(),
            code.status(),
            code.title()
        );
    }
    text.push_str("\nThe command line adds these, for what it finds itself:\n\n| code | exit code | what it means |\n| --- | --- | --- |\n");
    for status in Status::ALL.into_iter().filter(|status| *status != Status::Done) {
        let (code, title) = status.words();
        let _ = writeln!(text, "| `{code}` | {} | {title} |", status.code());
    }
    hold("problems.md", &text);
}
