//! Figures of several servers that took turns.

use std::collections::BTreeMap;

use serde::Serialize;

use super::seam::Hub;
use crate::command::bench::measure::median;
use crate::output::grouped;

/// Medians over the rounds, and ours divided by each of the others.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) unit: &'static str,
    pub(super) medians: BTreeMap<&'static str, f64>,
    /// Median over the rounds of ours divided by theirs in the same round.
    pub(super) ratios: BTreeMap<&'static str, f64>,
    rounds: Vec<BTreeMap<&'static str, f64>>,
}

impl Comparison {
    pub(super) fn of(unit: &'static str, rounds: Vec<BTreeMap<&'static str, f64>>) -> Self {
        let names: Vec<&'static str> = rounds.iter().flat_map(|one| one.keys().copied()).collect();
        let ours = |round: &BTreeMap<&'static str, f64>| round.get("promethean").copied();
        let (mut medians, mut ratios) = (BTreeMap::new(), BTreeMap::new());
        for name in names {
            let each = |round: &BTreeMap<&'static str, f64>| round.get(name).copied();
            medians.insert(name, median(rounds.iter().filter_map(each).collect()));
            if name != "promethean" {
                let ratio = |round| Some(ours(round)? / each(round)?);
                ratios.insert(name, median(rounds.iter().filter_map(ratio).collect()));
            }
        }
        Self { unit, medians, ratios, rounds }
    }

    /// Lines for people.
    pub(super) fn lines(&self, name: &str) -> String {
        let mut text = format!("{name}\n");
        for (who, figure) in &self.medians {
            let ratio = self.ratios.get(who).map(|ratio| format!("   ours is {ratio:.2} of it"));
            let figure =
                if *figure < 1_000.0 { format!("{figure:.2}") } else { grouped(*figure as u64) };
            let ratio = ratio.unwrap_or_default();
            text += &format!("  {who:<18} {figure:>12} {}{ratio}\n", self.unit);
        }
        text
    }
}

/// Lets each take its turn, round by round; the first round only warms up. What others have left
/// to be written goes to the disk before.
pub(super) fn take_turns(
    hubs: &[Box<dyn Hub>],
    rounds: usize,
    mut measure: impl FnMut(&dyn Hub, usize) -> anyhow::Result<Option<f64>>,
) -> anyhow::Result<Vec<BTreeMap<&'static str, f64>>> {
    let mut all = Vec::new();
    for round in 0..=rounds {
        let mut figures = BTreeMap::new();
        for hub in hubs {
            rustix::fs::sync();
            if let Some(figure) = measure(hub.as_ref(), round)? {
                figures.insert(hub.name(), figure);
            }
        }
        if round > 0 {
            all.push(figures);
        }
    }
    Ok(all)
}
