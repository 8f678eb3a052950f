//! What a server has besides events: views, the index of causes, and jobs.

use std::collections::HashMap;

use http::HeaderValue;
use promethean::Bus;
use promethean::causality::Causes;
use promethean::jobs::{EventFilter, Jobs};
use promethean::projection::Views;

use crate::filter::{Expression, Verdict};
use crate::undecided::Undecided;

/// Snapshots may be kept by their readers for so long, unless told otherwise.
pub const CACHE_CONTROL: &str = "private, max-age=5";

/// What a server shows of views, causes and jobs. Nothing by default.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    /// The views.
    pub views: Option<Views>,
    /// The view that `/snap/{key}` means.
    pub default_view: Option<String>,
    /// `Cache-Control` of a view's snapshots, where it is not the usual one.
    pub cache_control: HashMap<String, HeaderValue>,
    /// The index of causes.
    pub causes: Option<Causes>,
    /// The jobs.
    pub jobs: Option<Jobs>,
}

impl Shelf {
    /// What is said about caching a view's snapshots.
    pub(crate) fn caching(&self, view: &str) -> HeaderValue {
        let said = self.cache_control.get(view).cloned();
        said.unwrap_or_else(|| HeaderValue::from_static(CACHE_CONTROL))
    }

    /// The jobs of a bus, with the filters of this edge. As a group does, a job takes what a filter cannot
    /// decide about: one event too many is noticed, one too few is not.
    pub fn jobs_of(bus: &Bus) -> Jobs {
        Jobs::new(bus, |source| {
            let expression = Expression::compile(source).map_err(|error| error.to_string())?;
            let undecided = Undecided::of_all();
            let filter: EventFilter = Box::new(move |event| match expression.verdict(event) {
                Verdict::Pass => true,
                Verdict::Skip | Verdict::Fault => false,
                Verdict::Undecided => {
                    undecided.note(event, None);
                    true
                }
            });
            Ok(filter)
        })
    }
}
