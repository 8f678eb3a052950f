use std::collections::HashSet;
use std::fmt::Write;

use axum::response::Response;
use futures_util::FutureExt;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::rejection::Rejection;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/metrics",
    guard: Guard::Server(Action::OpsRead),
    summary: "Counters in Prometheus text.",
    query: &[],
    act: |call| metrics(call).boxed(),
};

async fn metrics(call: Call) -> Result<Response, Rejection> {
    let bus = &call.edge.bus;
    let mut lags = Vec::new();
    for group in bus.groups().await? {
        // A group that is removed just now is not worth failing for.
        lags.extend(bus.lag(&group).await.ok());
    }
    let mut text = call.edge.metrics.text(&lags);
    let damaged = bus.store().damage().len();
    let _ = writeln!(
        text,
        "# HELP store_damaged_ranges Stored ranges that are not as they were written.\n\
         # TYPE store_damaged_ranges gauge\nstore_damaged_ranges {damaged}"
    );
    super::views::figures(&call.edge, &mut text).await;
    in_prometheus_text(&bus.metrics().encode_open().await, &mut text);
    Ok(answer::bytes(200, "text/plain; version=0.0.4; charset=utf-8", text))
}

/// What a bus tells about itself is OpenMetrics, in which counters are described without `_total`
/// and units have lines of their own. Prometheus' older text has the whole name everywhere.
fn in_prometheus_text(open_metrics: &str, out: &mut String) {
    let counters: HashSet<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    for line in open_metrics.lines().filter(|line| !line.starts_with("# UNIT ")) {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|mark| {
            let (name, rest) = line.strip_prefix(mark)?.split_once(' ')?;
            counters.contains(name).then_some((mark, name, rest))
        });
        match described {
            Some((mark, name, rest)) => out.extend([mark, name, "_total ", rest, "\n"]),
            None => out.extend([line, "\n"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_their_whole_name() {
        let mut out = String::new();
        in_prometheus_text(
            "# HELP a Counts.\n# TYPE a counter\na_total{t=\"x\"} 1\n# HELP b_seconds Time.\n\
             # TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 2\n",
            &mut out,
        );
        assert_eq!(
            out,
            "# HELP a_total Counts.\n# TYPE a_total counter\na_total{t=\"x\"} 1\n\
             # HELP b_seconds Time.\n# TYPE b_seconds gauge\nb_seconds 2\n"
        );
    }
}
