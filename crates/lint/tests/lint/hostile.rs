//! Input that is made to hurt: answers come in bounded time and memory.

use crate::project::Project;

#[test]
fn names_that_mean_themselves() {
    let code = "const a = b; const b = a;\nbus.publish(a, 1);\nconst o = { x: o }; \
                bus.publish(o.x.x.x, 1);\nconst f = (t) => f(t); bus.publish(f('a'), 1);\n";
    let found = Project::default().file("a.ts", code).found();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|finding| finding.contains("dynamic-topic")));
}

#[test]
fn alternatives_that_multiply() {
    let mut code = String::from("let x0 = c ? 'a' : 'b';\n");
    for n in 1..200 {
        let before = n - 1;
        code.push_str(&format!("const x{n} = `${{x{before}}}${{x{before}}}`;\n"));
    }
    code.push_str("bus.publish(x199, 1);\n");
    code.push_str("const y = c ? y : (d ? y : y); bus.publish(y, 1);\n");
    let found = Project::default().file("a.ts", &code).found();
    assert!(found.iter().all(|finding| finding.contains("dynamic-topic")), "{found:?}");
    assert!(!found.is_empty());
}

#[test]
fn trees_that_are_too_deep() {
    let deep =
        format!("bus.publish('Bad', 1);\nx = {}1{};\n", "(".repeat(20_000), ")".repeat(20_000));
    for name in ["a.ts", "a.js", "a.py"] {
        let found = Project::default().file(name, &deep).found();
        assert!(found.contains(&format!("{name}:1 topic-name Bad")), "{name} {found:?}");
        assert!(found.contains(&format!("{name}:2 parse-error {name}")), "{name} {found:?}");
    }
    let deep = format!("fn f() {{ publish!{}{}; }}\n", "(".repeat(20_000), ")".repeat(20_000));
    let found = Project::default().file("a.rs", &deep).found();
    assert_eq!(found.last().map(String::as_str), Some("a.rs:1 parse-error a.rs"));
}

#[test]
fn files_that_are_no_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.ts"), [0xff, 0xfe, 0x00]).unwrap();
    let large = "//\n".repeat(400_000);
    std::fs::write(folder.path().join("b.ts"), large).unwrap();
    std::fs::write(folder.path().join("c.ts"), "").unwrap();
    let (settings, catalogue) = Default::default();
    let report = promethean_lint::lint(&promethean_lint::Request {
        root: folder.path(),
        settings: &settings,
        catalogue: &catalogue,
        paths: None,
    })
    .unwrap();
    let messages: Vec<_> = report.findings.iter().map(|of| of.message.as_str()).collect();
    assert_eq!(messages[0], "a.ts: is not UTF-8");
    assert!(messages[1].starts_with("b.ts: has 1200000 bytes"), "{messages:?}");
    assert_eq!(messages.len(), 2);
}

#[test]
fn line_ends_and_tabs_of_others() {
    let code = "\u{feff}const a = 1;\r\n\tbus.publish('Bad', 1);\r\n";
    let report = Project::default().file("a.ts", code).lint();
    assert_eq!((report.findings[0].line, report.findings[0].column), (2, 14));
    assert_eq!(report.findings[0].excerpt.as_ref().unwrap().line, "\tbus.publish('Bad', 1);");
}
