//! The published cases. They are not ours to copy: they are read from `PROM_SUITES`, or from
//! `../shared/suites` beside the repository, and a notice is printed if they are not there. What
//! always runs: `verdicts` (cases of our own, keyword by keyword) and `differential` (random pairs).

use std::path::{Path, PathBuf};

use promethean_schema::{CompareOptions, Dialect, Document, ReadError, Verdict, compare};
use serde_json::Value;

/// All suites of a folder: whoever has others of the same form puts them beside these.
fn files(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_suite = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("compat-") && name.ends_with(".jsonl")
    };
    let mut files: Vec<PathBuf> = all.filter(is_suite).collect();
    files.sort();
    assert!(!files.is_empty(), "no compat-….jsonl in {folder:?}");
    files
}

fn folder() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/suites");
    match std::env::var_os("PROM_SUITES").map(PathBuf::from) {
        Some(named) => {
            assert!(named.is_dir(), "PROM_SUITES names {named:?}, which is not there");
            Some(named)
        }
        None => beside.is_dir().then_some(beside),
    }
}

fn document(row: &Value, key: &str) -> Result<Document, ReadError> {
    let dialect = match row["dialect"].as_str() {
        Some("draft7") => Dialect::Draft7,
        _ => Dialect::Draft2020,
    };
    Document::from_value(&row[key], Some(dialect))
}

#[derive(Default)]
struct Tally {
    agreed: usize,
    right: usize,
    false_compatible: usize,
    undecided: usize,
    refused: usize,
    checks: usize,
    wrong: Vec<String>,
}

fn judge(row: &Value, direction: &str, tally: &mut Tally) {
    let (published, semantic) = (&row[direction], &row[format!("semantic_{direction}")]);
    let (old, new) = match (document(row, "old"), document(row, "new")) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(error), _) | (_, Err(error)) => {
            assert!(semantic.is_null(), "{}: {error}", row["id"]);
            tally.refused += 1;
            return;
        }
    };
    let (reader, writer) = if direction == "backward" { (&new, &old) } else { (&old, &new) };
    let verdict = compare(reader, writer, &CompareOptions::strict()).unwrap();
    tally.checks += 1;
    let said = match &verdict {
        Verdict::Compatible { .. } => Some(true),
        Verdict::Incompatible { findings } => {
            assert!(!findings.is_empty(), "{}: no finding", row["id"]);
            for finding in findings {
                let example = &finding.counter_example;
                assert!(
                    writer.validator().is_valid(example) && !reader.validator().is_valid(example)
                );
            }
            Some(false)
        }
        Verdict::Undecided { .. } => None,
    };
    tally.undecided += usize::from(said.is_none());
    let truth = semantic.as_bool();
    if said == Some(true) && truth == Some(false) {
        tally.false_compatible += 1;
    }
    let agreed = truth.is_some() && published.as_bool() == truth;
    // A confirmed counter-example is evidence; where the suite does not agree with itself, it may
    // be the suite's verdict that is wrong.
    if said != truth && (agreed || (truth.is_some() && said != Some(false))) {
        tally.wrong.push(format!("{} {direction}: {verdict} but it is {truth:?}", row["id"]));
    }
    if agreed {
        tally.agreed += 1;
        tally.right += usize::from(said == truth);
    }
}

#[test]
fn the_published_cases_come_out_right() {
    let Some(folder) = folder() else {
        println!("notice: no published cases found (set PROM_SUITES); only built-in cases ran");
        return;
    };
    let mut tally = Tally::default();
    for file in files(&folder) {
        let text = std::fs::read_to_string(file).unwrap();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let row: Value = serde_json::from_str(line).unwrap();
            judge(&row, "backward", &mut tally);
            judge(&row, "forward", &mut tally);
        }
    }
    println!(
        "{} of {} agreed checks right, {} false compatible, {} undecided of {} checks, {} refused",
        tally.right,
        tally.agreed,
        tally.false_compatible,
        tally.undecided,
        tally.checks,
        tally.refused
    );
    assert_eq!(tally.false_compatible, 0, "{:#?}", tally.wrong);
    assert!(tally.wrong.is_empty(), "{:#?}", tally.wrong);
    assert!(tally.undecided * 100 < tally.checks, "{} undecided", tally.undecided);
}
