//! A baseline knows findings again after lines were moved.

use promethean_lint::{Baseline, BaselineError};

use crate::project::{Project, shown};

const CODE: &str =
    "bus.publish('Bad.One', 1);\nbus.publish('Bad.Two', 1);\nbus.publish('Bad.Two', 1);\n";

#[test]
fn moved_and_indented_lines_are_known_again() {
    let before = Project::default().file("a.ts", CODE).lint();
    let text = Baseline::of(&before).to_text();
    let baseline = Baseline::parse(&text).unwrap();
    assert_eq!(baseline, Baseline::of(&before));
    assert_eq!(text.lines().count(), 8, "one finding per line:\n{text}");

    let moved = format!("// new\n\nfunction f() {{\n  {}}}\n", CODE.replace('\n', "\n  "));
    let mut after = Project::default().file("a.ts", &moved).lint();
    assert_eq!(baseline.apply(&mut after), 0);
    assert_eq!((after.findings.len(), after.known), (0, 3));
}

#[test]
fn new_findings_stay_and_mended_ones_are_counted() {
    let baseline = Baseline::of(&Project::default().file("a.ts", CODE).lint());
    let code = "bus.publish('Bad.Two', 1);\nbus.publish('Bad.New', 1);\n";
    let mut after = Project::default().file("a.ts", code).lint();
    assert_eq!(baseline.apply(&mut after), 2, "Bad.One and one Bad.Two were mended");
    assert_eq!(shown(&after), ["a.ts:2 topic-name Bad.New"]);
}

#[test]
fn a_third_equal_finding_is_new() {
    let baseline = Baseline::of(&Project::default().file("a.ts", CODE).lint());
    let code = format!("{CODE}bus.publish('Bad.Two', 1);\n");
    let mut after = Project::default().file("a.ts", &code).lint();
    baseline.apply(&mut after);
    assert_eq!(shown(&after), ["a.ts:4 topic-name Bad.Two"]);
}

#[test]
fn what_is_no_baseline_is_refused() {
    assert!(matches!(Baseline::parse("[]"), Err(BaselineError::Form(_))));
    let newer = Baseline::parse("{\"version\": 2, \"findings\": {}}");
    assert!(matches!(newer, Err(BaselineError::Version(2))));
    assert_eq!(Baseline::parse(&Baseline::default().to_text()).unwrap(), Baseline::default());
}
