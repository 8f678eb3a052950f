//! Random pairs: a *compatible* that some value refutes, or an *incompatible* without a confirmed
//! counter-example, is a defect. More of them: `cargo run --release -p promethean-schema --example
//! schema-fuzz -- --pairs 1000000`.

use crate::pairs::{Tally, check};

/// Pairs of one run of the test.
const PAIRS: u64 = 2_000;

/// Undecided pairs that are shown.
const SHOWN: u64 = 3;

#[test]
fn no_value_refutes_a_verdict_on_random_schemas() {
    let mut tally = Tally::default();
    for seed in 1..=PAIRS {
        let doubt = check(seed, &mut tally).unwrap();
        if let Some(doubt) = doubt.filter(|_| tally.undecided <= SHOWN) {
            println!("undecided: {doubt}");
        }
    }
    println!("{tally:?}");
    assert!(tally.values > 5 * tally.compatible, "too few values were tried: {tally:?}");
    assert!(tally.undecided * 100 <= tally.compared(), "too many are undecided: {tally:?}");
}
