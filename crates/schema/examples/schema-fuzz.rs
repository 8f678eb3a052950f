//! Random pairs of schemas, compared: `cargo run --release -p promethean-schema --example
//! schema-fuzz -- --pairs 1000000 --seed 1`.
//!
//! Values are drawn from the writer's schema of every pair that is called compatible, and held
//! against the reader's. One that is refused is a wrong *compatible*: it is printed with its seed,
//! and the exit code is 100.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "printing what was found is what it is for; the generators are those of the tests"
)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[path = "../tests/schema/pairs.rs"]
mod pairs;
#[path = "../tests/schema/random.rs"]
mod random;

use pairs::{Tally, check};

/// Pairs that a thread takes at once.
const PORTION: u64 = 200;

/// Undecided pairs that are shown.
const SHOWN: u64 = 5;

struct Wanted {
    pairs: u64,
    seed: u64,
    threads: usize,
}

fn arguments() -> Result<Wanted, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut wanted = Wanted { pairs: 10_000, seed: 1, threads };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().and_then(|text| text.parse::<u64>().ok());
        let value = value.ok_or_else(|| format!("{name} needs a number"))?;
        match name.as_str() {
            "--pairs" => wanted.pairs = value,
            "--seed" => wanted.seed = value,
            "--threads" => wanted.threads = usize::try_from(value).unwrap_or(1).max(1),
            _ => return Err(format!("unknown {name}: use --pairs, --seed, --threads")),
        }
    }
    Ok(wanted)
}

fn main() -> ExitCode {
    let wanted = match arguments() {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let next = AtomicU64::new(0);
    let sum = Mutex::new((Tally::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..wanted.threads {
            scope.spawn(|| work(&wanted, &next, &sum));
        }
    });
    let (tally, wrong) = sum.into_inner().unwrap();
    for defect in &wrong {
        println!("DEFECT {defect}");
    }
    println!(
        "{} pairs from seed {}: {} compatible, {} incompatible, {} undecided, {} refused; \
         {} values of writers held against readers; {} defects",
        wanted.pairs,
        wanted.seed,
        tally.compatible,
        tally.incompatible,
        tally.undecided,
        tally.refused,
        tally.values,
        wrong.len()
    );
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(100) }
}

fn work(wanted: &Wanted, next: &AtomicU64, sum: &Mutex<(Tally, Vec<String>)>) {
    loop {
        let first = next.fetch_add(PORTION, Ordering::Relaxed);
        if first >= wanted.pairs {
            return;
        }
        let mut tally = Tally::default();
        let mut defects = Vec::new();
        for pair in first..(first + PORTION).min(wanted.pairs) {
            match check(wanted.seed.wrapping_add(pair), &mut tally) {
                Ok(Some(doubt)) if first < SHOWN * PORTION => println!("undecided: {doubt}"),
                Ok(_) => {}
                Err(defect) => defects.push(defect),
            }
        }
        debug_assert!(tally.compared() <= PORTION, "a portion is a portion");
        let mut sum = sum.lock().unwrap();
        sum.0.compatible += tally.compatible;
        sum.0.incompatible += tally.incompatible;
        sum.0.undecided += tally.undecided;
        sum.0.refused += tally.refused;
        sum.0.values += tally.values;
        sum.1.extend(defects);
    }
}
