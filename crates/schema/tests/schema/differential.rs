//! Random pairs: a *compatible* that some value refutes, or an *incompatible* without a confirmed
//! counter-example, is a defect. `PROM_CASES` sets how many pairs are tried, `PROM_SEED` where to
//! begin.

use promethean_schema::{CompareOptions, Dialect, Document, Formats, Verdict, compare};
use serde_json::Value;

use crate::random::{Random, document, mutate, value};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Values tried against each compatible pair.
const VALUES: usize = 60;

#[derive(Default)]
struct Tally {
    compatible: u64,
    incompatible: u64,
    undecided: u64,
    refused: u64,
    shown: u64,
}

fn check(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let writer = document(&mut random);
    let reader =
        if random.chance(75) { mutate(&mut random, &writer) } else { document(&mut random) };
    let read = |schema: &Value| Document::from_value(schema, Some(Dialect::Draft2020));
    let (Ok(old), Ok(new)) = (read(&writer), read(&reader)) else {
        tally.refused += 1;
        return;
    };
    let mut options = CompareOptions::strict();
    if random.chance(10) {
        options.formats = Formats::Assert;
    }
    match compare(&new, &old, &options).unwrap() {
        Verdict::Compatible { .. } => {
            tally.compatible += 1;
            for _ in 0..VALUES {
                let value = value(&mut random, 3);
                let asserts = options.formats == Formats::Assert;
                let refuted = !asserts
                    && old.validator().is_valid(&value)
                    && !new.validator().is_valid(&value);
                assert!(
                    !refuted,
                    "seed {seed}: wrong compatible\nwriter {writer}\nreader {reader}\nvalue {value}"
                );
            }
        }
        Verdict::Incompatible { findings } => {
            tally.incompatible += 1;
            assert!(
                !findings.is_empty(),
                "seed {seed}: no finding\nwriter {writer}\nreader {reader}"
            );
        }
        Verdict::Undecided { construct, .. } => {
            tally.undecided += 1;
            let disagrees = construct.contains("the validator decides otherwise");
            assert!(!disagrees, "seed {seed}: {construct}\nwriter {writer}\nreader {reader}");
            if tally.shown < setting("PROM_SHOW", 3) {
                tally.shown += 1;
                println!("seed {seed}: {construct}\n  writer {writer}\n  reader {reader}");
            }
        }
    }
}

#[test]
fn no_value_refutes_a_verdict_on_random_schemas() {
    let (first, cases) = (setting("PROM_SEED", 1), setting("PROM_CASES", 2_000));
    let mut tally = Tally::default();
    for seed in first..first + cases {
        check(seed, &mut tally);
    }
    println!(
        "{cases} pairs: {} compatible, {} incompatible, {} undecided, {} refused",
        tally.compatible, tally.incompatible, tally.undecided, tally.refused
    );
    let compared = tally.compatible + tally.incompatible + tally.undecided;
    assert!(tally.undecided * 100 <= compared, "{} of {compared} undecided", tally.undecided);
}
