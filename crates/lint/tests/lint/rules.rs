//! Each rule, at its edges.

use promethean_lint::{Level, Manifest, Severity, TopicEntry, explain, rules};

use crate::project::Project;

fn owned(owner: &str) -> TopicEntry {
    TopicEntry { owner: Some(owner.to_owned()), versions: vec![1], ..TopicEntry::default() }
}

#[test]
fn patterns_are_for_readers() {
    let code = "bus.subscribe('a.*', 'g', f); bus.subscribe('a.**', 'g', f);\n\
                bus.publish('a.*', {});\nbus.subscribe('a.b*', 'g', f);\n";
    let found = Project::default().file("a.ts", code).found();
    assert_eq!(found, ["a.ts:2 topic-name a.*", "a.ts:3 topic-name a.b*"]);
}

#[test]
fn unregistered_topics_and_the_nearest_name() {
    let project = Project::default()
        .file("a.ts", "bus.publish('heartbeat.recieved', {});\nbus.subscribe('x.*', 'g', f);")
        .versions("heartbeat.received", &[1]);
    let report = project.lint();
    let finding = &report.findings[0];
    assert_eq!((finding.name, finding.line), ("unregistered-topic", 1));
    assert_eq!(finding.help, "did you mean `heartbeat.received`?");
    assert_eq!(report.findings[1].message, "pattern \"x.*\" covers no registered topic");
}

#[test]
fn a_topic_without_schema_is_not_covered() {
    let schemaless = TopicEntry { schemaless: true, ..TopicEntry::default() };
    let mut project = Project::default()
        .file("a.ts", "bus.publish('bare', 1); bus.publish('free', 1); bus.publish('in.a', 1);")
        .topic("bare", TopicEntry::default())
        .topic("free", schemaless);
    project.settings.unregistered_allow = vec!["in.**".to_owned()];
    assert_eq!(project.found(), ["a.ts:1 unregistered-topic bare"]);
    project.settings.unregistered = Some(Level::Off);
    assert!(project.found().is_empty());
}

#[test]
fn without_a_manifest_nothing_is_said_about_registration() {
    assert!(Project::default().file("a.ts", "bus.publish('any.name', {});").found().is_empty());
}

#[test]
fn unused_topics_stand_in_the_manifest() {
    let text = "version = 1\n\n[topic.\"never.used\"]\n[topic.read]\n[topic.\"by.pattern\"]\n";
    let mut project = Project::default()
        .file("a.ts", "bus.subscribe('read', 'g', f); bus.tail('by.*'); topic('only.defined');")
        .versions("never.used", &[1])
        .versions("read", &[1])
        .versions("by.pattern", &[1])
        .versions("only.defined", &[1])
        .topic("others", TopicEntry { external: true, ..TopicEntry::default() });
    project.catalogue.manifest =
        Some(Manifest { path: "prom.toml".to_owned(), text: text.to_owned() });
    let report = project.lint();
    let places: Vec<_> = report.findings.iter().map(|of| (of.line, of.subject.as_str())).collect();
    assert_eq!(places, [(1, "only.defined"), (3, "never.used")]);
    assert_eq!(report.findings[1].excerpt.as_ref().unwrap().line, "[topic.\"never.used\"]");
}

#[test]
fn unused_topics_say_what_is_not_known() {
    let project = Project::default().file("a.ts", "bus.publish(x, 1)").versions("never.used", &[1]);
    let report = project.lint();
    let unused = report.findings.iter().find(|of| of.name == "unused-topic").unwrap();
    assert!(unused.message.ends_with("(but 1 call names a topic that is not known)"));
}

#[test]
fn versions_that_nobody_uses() {
    let entry = TopicEntry { versions: vec![1, 2, 3], upcasters: vec![2], ..TopicEntry::default() };
    let mut project = Project::default()
        .file("a.ts", "topic('a.b', { version: 1 });")
        .topic("a.b", entry)
        .versions("latest.only", &[1]);
    project.settings.severity.insert("unused-topic".to_owned(), Level::Off);
    project.settings.severity.insert("PROM-L006".to_owned(), Level::Off);
    // 1 is named, 2 is lifted, 3 was registered and forgotten.
    assert_eq!(project.found(), ["prom.toml:1 unused-version a.b@3"]);
    project.files[0].1.push_str("bus.publish('a.b', {});");
    assert!(project.found().is_empty(), "a call without version means the newest");
    project.files[0].1 =
        "bus.publish('a.b', {version: 3}, {headers: {'x-schema-version': '2'}})".into();
    assert_eq!(
        project.found(),
        ["prom.toml:1 unused-version a.b@3"],
        "the version of a payload is none of ours"
    );
}

#[test]
fn missing_upcasters() {
    let entry =
        TopicEntry { versions: vec![3, 1, 2], upcasters: vec![1, 7], ..TopicEntry::default() };
    let project = Project::default().file("a.ts", "bus.publish('a.b', 1)").topic("a.b", entry);
    assert_eq!(
        project.found(),
        ["prom.toml:1 missing-upcaster a.b@2", "prom.toml:1 missing-upcaster a.b@7"]
    );
}

#[test]
fn versions_are_read_from_directories() {
    let entry = TopicEntry { schema: Some("schemas/a.b".into()), ..TopicEntry::default() };
    let project = Project::default()
        .file("a.ts", "bus.publish('a.b', 1)")
        .file("schemas/a.b/v1.json", "{}")
        .file("schemas/a.b/v1.upcast.json", "{}")
        .file("schemas/a.b/v2.json", "{}")
        .file("schemas/a.b/v10.json", "{}")
        .file("schemas/a.b/README.md", "")
        .topic("a.b", entry);
    assert_eq!(project.found(), ["prom.toml:1 missing-upcaster a.b@2"]);
}

#[test]
fn version_suffixes_are_for_readers() {
    let code = "bus.publish('a.b.v2', {});\nbus.subscribe('a.b.v2', 'g', f);\n";
    assert_eq!(Project::default().file("a.ts", code).found(), ["a.ts:1 version-suffix a.b.v2"]);
}

#[test]
fn dead_letters_have_an_owner() {
    let project = Project::default()
        .file("a.ts", "bus.subscribe('dlq.a', 'g', f); bus.subscribe('b.dlq', 'g', f);")
        .topic("b.dlq", owned("team-ops"))
        .topic("c.dlq", owned(" "));
    assert_eq!(project.found(), ["a.ts:1 dlq-owner dlq.a", "prom.toml:1 dlq-owner c.dlq"]);
}

#[test]
fn system_topics() {
    let code = "bus.publish('$groups', 1);\nbus.publish('a.${name}', 1);\n";
    let found = Project::default().file("a.js", code).found();
    assert_eq!(found, ["a.js:1 system-topic $groups", "a.js:2 system-topic a.${name}"]);
}

#[test]
fn files_that_do_not_parse_are_reported_and_still_read() {
    let project = Project::default()
        .file("a.ts", "bus.publish('Bad', 1);\nconst = ;\n")
        .file("b.py", "def f(:\n    bus.publish('lost', 1)\n")
        .file("c.rs", "fn f( { bus.publish()")
        .file("e.ts", "not a call at all (((")
        .file("d.js", "bus.publish('fine', 1);");
    assert_eq!(
        project.found(),
        [
            "a.ts:1 topic-name Bad",
            "a.ts:2 parse-error a.ts",
            "b.py:1 parse-error b.py",
            "c.rs:1 parse-error c.rs",
        ]
    );
}

#[test]
fn severities_and_the_end_of_a_run() {
    let mut project = Project::default().file("a.ts", "bus.publish(unknown, 1)");
    let report = project.lint();
    assert_eq!((report.counts().note, report.fails(Severity::Warning)), (1, false));
    assert!(report.fails(Severity::Note));
    project.settings.severity.insert("dynamic-topic".to_owned(), Level::Error);
    assert!(project.lint().fails(Severity::Error));
}

#[test]
fn every_rule_explains_itself() {
    assert_eq!(rules().len(), 11);
    for rule in rules() {
        assert_eq!(explain(rule.id).unwrap().doc, rule.doc);
    }
}
