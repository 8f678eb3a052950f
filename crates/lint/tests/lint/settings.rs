//! The `[lint]` table of a manifest.

use std::path::{Path, PathBuf};

use promethean_lint::{
    Catalogue, LintError, Request, Settings, SettingsError, TOPIC_PATTERN, lint,
};

use crate::project::{Project, corpus};

fn parse(text: &str) -> Result<Settings, toml::de::Error> {
    toml::from_str(text)
}

fn refused(text: &str) -> SettingsError {
    let (settings, catalogue) = (parse(text).unwrap(), Catalogue::default());
    let root = Path::new("nowhere");
    match lint(&Request { root, settings: &settings, catalogue: &catalogue, paths: None }) {
        Err(LintError::Settings(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_table_of_the_manifest_is_read() {
    let settings = parse(
        r#"
        topic_pattern = '^[a-z0-9]+(\.[a-z0-9]+)*(\.v\d+)?$'
        header_prefix = "x-"
        header_allow = ["content-type"]
        paths = ["services", "shared/js"]
        unregistered = "error"
        calls = [{ name = "myPublish", argument = 1, receivers = ["bus"] }]
        severity = { dynamic-topic = "warn", "PROM-L004" = "off" }
        "#,
    )
    .unwrap();
    assert_eq!(settings.paths, ["services", "shared/js"]);
    assert_eq!(parse("").unwrap().topic_pattern, TOPIC_PATTERN);
}

#[test]
fn what_is_not_known_is_refused() {
    assert!(parse("topic_patern = 'a'").unwrap_err().to_string().contains("unknown field"));
    assert!(parse("calls = [{ name = 'a', index = 1 }]").is_err());
    assert!(parse("severity = { topic-name = 'fatal' }").is_err());
    let error = refused("severity = { topic-names = 'error' }");
    assert_eq!(
        error.to_string(),
        "lint.severity.\"topic-names\" is no rule; did you mean \"topic-name\"?"
    );
    assert!(matches!(refused("topic_pattern = '('"), SettingsError::TopicPattern(_)));
    assert!(matches!(refused("exclude = ['{']"), SettingsError::Glob { .. }));
    assert!(matches!(refused("unregistered_allow = ['a*']"), SettingsError::AllowPattern(_)));
}

#[test]
fn paths_and_globs() {
    let bad = "bus.publish('Bad', 1)";
    let mut project = Project::default()
        .file("services/a.ts", bad)
        .file("services/a.test.ts", bad)
        .file("services/gen/b.ts", bad)
        .file("services/c.py", bad)
        .file("other/a.ts", bad);
    project.settings = parse(
        "paths = ['services']\ninclude = ['*.ts']\nexclude = ['*.test.ts', 'services/gen/**']",
    )
    .unwrap();
    assert_eq!(project.found(), ["services/a.ts:1 topic-name Bad"]);
}

#[test]
fn paths_of_the_caller_leave_out_what_needs_all_code() {
    let (settings, root) = (Settings::default(), corpus());
    let mut catalogue = Catalogue::default();
    catalogue.topics.insert("never.used".to_owned(), promethean_lint::TopicEntry::default());
    let paths = [PathBuf::from("javascript/calls.cjs")];
    let request =
        Request { root: &root, settings: &settings, catalogue: &catalogue, paths: Some(&paths) };
    let report = lint(&request).unwrap();
    assert_eq!(report.files, 1);
    assert!(report.findings.iter().all(|finding| finding.name != "unused-topic"));
    assert!(report.findings.iter().all(|finding| finding.path == "javascript/calls.cjs"));
}

#[test]
fn a_path_that_is_not_there_is_reported() {
    let mut project = Project::default().file("a.ts", "");
    project.settings.paths = vec!["missing".to_owned()];
    assert_eq!(project.found(), ["missing:1 parse-error missing"]);
}

#[test]
fn calls_by_receiver_and_argument() {
    let code = "bus.stream('Bad.One', 1);\nfile.stream(path);\nlog('x', 'Bad.Two');\n";
    let mut project = Project::default().file("a.ts", code);
    project.settings = parse(
        "calls = [{ name = 'stream', kind = 'subscribe', receivers = ['bus'] },\n\
         { name = 'log', argument = 1 }]",
    )
    .unwrap();
    assert_eq!(project.found(), ["a.ts:1 topic-name Bad.One", "a.ts:3 topic-name Bad.Two"]);
}
