//! What the bus tells about itself, as OpenMetrics text.
//!
//! - **Nothing is looked up per event.** Groups count in their state machine, which has a lock
//!   already; publishing counts once per batch; times are put together per batch. What is a
//!   question to the groups (lag, holes, what is out, ages) is asked when somebody scrapes.
//! - **The number of series is bounded.** Topics, groups and pairs of them that come after the
//!   limits (`METRIC_*` in [`limits`](crate::limits)) are counted together as `other`, so that
//!   names that others choose cannot make the registry grow. Who has a series keeps it; who goes
//!   frees it at the next scrape.
//! - **Counters do not go back.** What a group counted stays when it is let go and taken up again,
//!   and what was counted as `other` stays there.
//!
//! `docs/metrics.md` lists them all; a test compares it with [`catalogue`].

mod catalogue;

mod histogram;

mod publishing;

mod pairs;

mod meters;

mod gathering;

mod families;

mod exposition;

use crate::bus::Bus;

pub(crate) use histogram::Tally;
pub(crate) use meters::{GroupMeters, Meters};
pub(crate) use pairs::{Carried, Series};

/// Where the figures of a bus can be read. A cheap handle, which keeps the bus open.
#[derive(Debug, Clone)]
pub struct Metrics {
    bus: Bus,
    naming: Naming,
}

/// Under which names metrics are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Naming {
    /// `promethean_` and the name.
    #[default]
    Prefixed,
    /// The same, and the older names without the prefix beside them, for dashboards that know
    /// only these.
    WithOlder,
}

/// Whether times are taken and publishing is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Metering {
    /// They are.
    #[default]
    On,
    /// Only what costs nothing is: what groups know of themselves.
    Off,
}

impl Bus {
    /// What the bus tells about itself.
    pub fn metrics(&self) -> Metrics {
        Metrics { bus: self.clone(), naming: Naming::default() }
    }
}

impl Metrics {
    /// What the text is, for HTTP.
    pub const CONTENT_TYPE: &'static str =
        "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// The same under other names. Default: with the prefix only.
    #[must_use]
    pub const fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// Everything, as OpenMetrics text. Asks the groups and the store how they stand; what cannot
    /// be read is left out and counted in `promethean_scrape_errors_total`.
    pub async fn encode(&self) -> String {
        let mut text = self.encode_open().await;
        text.push_str("# EOF\n");
        text
    }

    /// The same without the mark of the end, for those who have more to add.
    pub async fn encode_open(&self) -> String {
        let figures = self.bus.inner.gather().await;
        exposition::encode(figures, self.naming)
    }
}
