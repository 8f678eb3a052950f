//! One random pair: what is said of it, and whether a value refutes that.

use promethean_schema::{
    CompareOptions, Dialect, Document, Extras, Formats, Sampler, Validator, Verdict, compare,
};
use serde_json::Value;

use crate::random::{Random, document, mutate, value};

/// Values of any kind tried against each compatible pair.
const VALUES: usize = 40;
/// Values drawn from the writer's schema, likewise.
const DRAWN: u64 = 40;

/// What became of the pairs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) compatible: u64,
    pub(crate) incompatible: u64,
    pub(crate) undecided: u64,
    pub(crate) refused: u64,
    /// Values of the writer that were held against the reader of a compatible pair.
    pub(crate) values: u64,
}

impl Tally {
    pub(crate) fn compared(&self) -> u64 {
        self.compatible + self.incompatible + self.undecided
    }
}

/// Compares the pair of a seed. An error is a defect of ours: it says which.
pub(crate) fn check(seed: u64, tally: &mut Tally) -> Result<Option<String>, String> {
    let mut random = Random::new(seed);
    let writer = document(&mut random);
    let reader =
        if random.chance(75) { mutate(&mut random, &writer) } else { document(&mut random) };
    let read = |schema: &Value| Document::from_value(schema, Some(Dialect::Draft2020));
    let (Ok(old), Ok(new)) = (read(&writer), read(&reader)) else {
        tally.refused += 1;
        return Ok(None);
    };
    let pair = || format!("seed {seed}\nwriter {writer}\nreader {reader}");
    let mut options = CompareOptions::strict();
    if random.chance(10) {
        options.formats = Formats::Assert;
    }
    match compare(&new, &old, &options).map_err(|error| format!("{error}\n{}", pair()))? {
        Verdict::Compatible { .. } => {
            tally.compatible += 1;
            let compile = |schema| Validator::compile(schema, Dialect::Draft2020, options.formats);
            let (Ok(old_rules), Ok(new_rules)) = (compile(&writer), compile(&reader)) else {
                return Err(format!("a schema that was read is not compiled\n{}", pair()));
            };
            let mut sampler = Sampler::new(&old, Extras::Some);
            let drawn = (0..DRAWN).filter_map(|n| sampler.draw(seed.wrapping_add(n << 32)));
            let any: Vec<Value> = (0..VALUES).map(|_| value(&mut random, 3)).collect();
            for value in drawn.chain(any).filter(|value| old_rules.is_valid(value)) {
                tally.values += 1;
                if !new_rules.is_valid(&value) {
                    return Err(format!("wrong compatible: {value}\n{}", pair()));
                }
            }
            Ok(None)
        }
        Verdict::Incompatible { findings } if findings.is_empty() => {
            Err(format!("incompatible without a finding\n{}", pair()))
        }
        Verdict::Incompatible { .. } => {
            tally.incompatible += 1;
            Ok(None)
        }
        Verdict::Undecided { construct, .. } => {
            tally.undecided += 1;
            if construct.contains("the validator decides otherwise") {
                return Err(format!("{construct}\n{}", pair()));
            }
            Ok(Some(format!("{construct}\n{}", pair())))
        }
    }
}
