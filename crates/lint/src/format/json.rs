//! For programs: one JSON document.

use serde::Serialize;

use crate::finding::Finding;
use crate::report::{Counts, Report, Site};

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    findings: &'a [Finding],
    counts: Counts,
    files: usize,
    known: usize,
    sites: &'a [Site],
}

/// `{"version": 1, "findings": […], "counts": {"error", "warning", "note"}, "files", "known",
/// "sites": […]}`. Fields are only ever added.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    let Report { findings, sites, files, known, .. } = report;
    let counts = report.counts();
    let document = Document { version: 1, findings, counts, files: *files, known: *known, sites };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}
