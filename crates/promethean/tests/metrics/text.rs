//! A small reader of OpenMetrics text that knows nothing of the writer, and panics at everything
//! that the format does not allow.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Scrape {
    pub(super) families: BTreeMap<String, Family>,
    /// By name and labels as in the text, sorted.
    samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) kind: String,
    pub(super) unit: Option<String>,
    pub(super) help: String,
    pub(super) labels: BTreeSet<String>,
}

const SUFFIXES: [&str; 6] = ["_total", "_bucket", "_sum", "_count", "_created", "_info"];

impl Scrape {
    pub(super) fn parse(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("the end is marked");
        let mut scrape = Self::default();
        let mut current = String::new();
        for line in body.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => scrape.describe(comment, &mut current),
                None => scrape.sample(line, &current),
            }
        }
        for (name, family) in &scrape.families {
            scrape.check(name, family);
        }
        scrape
    }

    fn describe(&mut self, comment: &str, current: &mut String) {
        let (what, rest) = comment.split_once(' ').expect("a keyword");
        let (name, text) = rest.split_once(' ').expect("a name");
        if what == "HELP" {
            *current = name.to_owned();
            let family = Family { help: text.to_owned(), ..Family::default() };
            let before = self.families.insert(name.to_owned(), family);
            assert!(before.is_none(), "{name} is described twice");
            return;
        }
        assert_eq!(name, current, "one family after the other");
        let family = self.families.get_mut(name).unwrap();
        match what {
            "TYPE" => family.kind = text.to_owned(),
            "UNIT" => family.unit = Some(text.to_owned()),
            _ => panic!("unknown comment {comment}"),
        }
    }

    fn sample(&mut self, line: &str, current: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().expect("a number");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, read_labels(labels.strip_suffix('}').unwrap())),
            None => (series, BTreeMap::new()),
        };
        let family = self.families.get_mut(current).expect("described first");
        let suffix = name.strip_prefix(current).expect("a sample of its family");
        let allowed: &[&str] = match &*family.kind {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("unknown type {kind}"),
        };
        assert!(allowed.contains(&suffix), "{name} in a {}", family.kind);
        assert_eq!(suffix == "_bucket", labels.contains_key("le"));
        assert!(value >= 0.0 && value.is_finite(), "{line}");
        family.labels.extend(labels.keys().filter(|label| *label != "le").cloned());
        let before = self.samples.insert((name.to_owned(), labels), value);
        assert!(before.is_none(), "{series} stands there twice");
    }

    fn check(&self, name: &str, family: &Family) {
        assert!(!family.kind.is_empty(), "{name} has no type");
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(good), "{name}");
        assert!(!SUFFIXES.iter().any(|suffix| name.ends_with(suffix)), "{name} is reserved");
        assert!(!name.contains("_ms") && !name.contains("milli"), "{name} is not in base units");
        if let Some(unit) = &family.unit {
            assert!(name.ends_with(&format!("_{unit}")), "{name} does not end with its unit");
        }
        if family.kind == "histogram" {
            assert_eq!(family.unit.as_deref(), Some("seconds"), "{name}");
            self.check_buckets(name);
        }
    }

    fn check_buckets(&self, name: &str) {
        let mut spread: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
        for ((sample, labels), count) in &self.samples {
            if *sample == format!("{name}_bucket") {
                let mut labels = labels.clone();
                let bound = labels.remove("le").unwrap().parse().unwrap();
                spread.entry(labels).or_default().push((bound, *count));
            }
        }
        for (labels, mut buckets) in spread {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} adds up");
            let (last, count) = buckets.last().unwrap();
            assert!(last.is_infinite());
            assert_eq!(self.samples[&(format!("{name}_count"), labels.clone())], *count);
            assert!(self.samples.contains_key(&(format!("{name}_sum"), labels)));
        }
    }

    /// The value of a series; `None` if it is not there.
    pub(super) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.samples.get(&(format!("promethean_{name}"), labels)).copied()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.samples.keys().any(|(sample, _)| sample == name)
    }

    /// How many series a metric has, and what they add up to.
    pub(super) fn sum(&self, name: &str) -> (usize, f64) {
        let name = format!("promethean_{name}");
        let all = self.samples.iter().filter(|((sample, _), _)| *sample == name);
        all.fold((0, 0.0), |(count, sum), (_, value)| (count + 1, sum + value))
    }
}

fn read_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, next) = after.split_once('"').expect("a closing quote");
        assert!(!value.contains('\\'), "no name needs escaping");
        assert!(labels.insert(name.to_owned(), value.to_owned()).is_none(), "{name} twice");
        rest = next.strip_prefix(',').unwrap_or(next);
    }
    assert!(rest.is_empty(), "{rest} after the labels");
    labels
}

mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "reserved")]
    fn a_reserved_suffix_is_refused() {
        Scrape::parse("# HELP a_bucket x\n# TYPE a_bucket gauge\n# EOF\n");
    }

    #[test]
    #[should_panic(expected = "base units")]
    fn milliseconds_are_refused() {
        Scrape::parse("# HELP a_ms x\n# TYPE a_ms gauge\na_ms 1\n# EOF\n");
    }

    #[test]
    #[should_panic(expected = "in a counter")]
    fn a_counter_without_total_is_refused() {
        Scrape::parse("# HELP a x\n# TYPE a counter\na 1\n# EOF\n");
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn the_same_series_twice_is_refused() {
        let twice = "a{b=\"1\"} 1\na{b=\"1\"} 2\n";
        Scrape::parse(&format!("# HELP a x\n# TYPE a gauge\n{twice}# EOF\n"));
    }
}
