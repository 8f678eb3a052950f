//! Pitfalls 125 to 128: each test fails on what the linter of the notes does.

use promethean_lint::TopicEntry;

use crate::project::Project;

/// Pitfall 125: the patterns of the notes have no end anchor, so that all of these passed.
#[test]
fn names_match_as_a_whole() {
    for name in ["a BAD!! Topic", "foo..bar", "x/../../etc", "a.b.", "a.b\\n", "Heartbeat", ""] {
        let code = format!("bus.publish('{name}', {{}});");
        let project = Project::default().file("a.ts", &code);
        assert_eq!(project.lint().findings[0].name, "topic-name", "{name}");
    }
    let long = "a".repeat(250);
    let project = Project::default().file("a.ts", &format!("bus.publish('{long}', {{}});"));
    assert!(project.lint().findings[0].message.contains("250 bytes"));
    for name in ["x-ok but not really", "x-Upper", "x-"] {
        let code = format!("bus.publish('a.b', {{}}, {{ headers: {{ '{name}': 1 }} }});");
        let found = Project::default().file("a.ts", &code).found();
        assert_eq!(found, [format!("a.ts:1 header-name {name}")]);
    }
}

/// Pitfall 125 again: a pattern of the user's without anchors is anchored.
#[test]
fn patterns_of_users_match_as_a_whole() {
    let mut project = Project::default().file("a.py", "bus.publish('ab.cd.ef!', {})\n");
    project.settings.topic_pattern = r"[a-z]+\.[a-z]+|x".to_owned();
    assert_eq!(project.found(), ["a.py:1 topic-name ab.cd.ef!"]);
}

/// Pitfall 126: constants, generics, templates and underscores were missed, comments reported,
/// headers after nested braces and without quotes ignored, `subscribe` not looked at.
#[test]
fn syntax_is_read_as_syntax() {
    let code = "\
const NAME = 'Bad.Constant';
bus.publish(NAME, {});
bus.publish<Beat>('Bad.Generic', {});
bus.publish(`Bad.${'Template'}`, {});
bus.publish('bad_underscore', {});
// bus.publish('Bad.Comment', {});
const s = \"bus.publish('Bad.String', {})\";
bus.publish('good', {}, { headers: { 'x-a': f({ b: 1 }), after: 1 } });
bus.subscribe('Bad.Subscribe', 'g', () => {});
";
    assert_eq!(
        Project::default().file("a.ts", code).found(),
        [
            "a.ts:2 topic-name Bad.Constant",
            "a.ts:3 topic-name Bad.Generic",
            "a.ts:4 topic-name Bad.Template",
            "a.ts:5 topic-name bad_underscore",
            "a.ts:8 header-name after",
            "a.ts:9 topic-name Bad.Subscribe",
        ]
    );
}

/// Pitfall 127: whatever had `.v1` in its name counted as covered by a schema.
#[test]
fn coverage_is_by_registry_not_by_suffix() {
    let code = "\
bus.subscribe('made.up.v1', 'g', f);
bus.subscribe('heartbeat.received.v1', 'g', f);
bus.subscribe('heartbeat.received.v9', 'g', f);
bus.subscribe('made.v1.up', 'g', f);
bus.publish('heartbeat.received', {});
";
    let entry = TopicEntry { versions: vec![1, 2], upcasters: vec![1], ..TopicEntry::default() };
    let project = Project::default().file("a.js", code).topic("heartbeat.received", entry);
    assert_eq!(
        project.found(),
        [
            "a.js:1 unregistered-topic made.up.v1",
            "a.js:3 unregistered-topic heartbeat.received.v9",
            "a.js:4 unregistered-topic made.v1.up",
        ]
    );
}

/// Pitfall 128: `package.json` and `.ts.map` were read, and `node_modules` was not skipped.
#[test]
fn only_source_files_are_read() {
    let bad = "bus.publish('Bad Name', {});";
    let project = Project::default()
        .file("package.json", &format!("{{\"scripts\": {{\"x\": \"{bad}\"}}}}"))
        .file("src/a.ts.map", bad)
        .file("src/a.js.map", bad)
        .file("src/a.d.ts", bad)
        .file("src/a.json", bad)
        .file("src/a.ts.txt", bad)
        .file("node_modules/x/index.js", bad)
        .file("deep/node_modules/x/index.ts", bad)
        .file("target/debug/a.rs", "fn f() { bus.publish(\"Bad Name\", ()); }")
        .file("dist/a.js", bad)
        .file(".gitignore", "generated/\n")
        .file("generated/a.ts", bad)
        .file("src/a.ts", "bus.publish('good.name', {});");
    let report = project.lint();
    assert_eq!((report.files, report.sites.len(), report.findings.len()), (1, 1, 0));
}
