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
    super::views::figures(&call.edge, &mut text).await;
    Ok(answer::bytes(200, "text/plain; version=0.0.4; charset=utf-8", text))
}
