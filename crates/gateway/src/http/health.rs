use axum::response::Response;
use futures_util::FutureExt;
use serde::Serialize;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Entrance, Guard, Verb};
use crate::access::{Action, Resource, authorize};
use crate::rejection::{Code, Rejection};

pub(super) const LIVE: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/livez",
    guard: Guard::Open,
    summary: "Whether the process runs. Depends on nothing.",
    query: &[],
    act: |_| async { Ok(answer::bytes(200, "text/plain", "ok\n")) }.boxed(),
};

/// The same, by the name that many probes have from elsewhere.
pub(super) const HEALTH: Endpoint = Endpoint { path: "/healthz", ..LIVE };

pub(super) const READY: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/readyz",
    guard: Guard::Open,
    summary: "Whether requests are taken: 200, or 503 while stopping or after a failed write.",
    query: &["verbose"],
    act: |call| ready(call).boxed(),
};

#[derive(Serialize)]
struct Readiness {
    status: &'static str,
    draining: bool,
    store: &'static str,
    topics: usize,
    /// What is stored and not as it was written. The rest is served: it makes nothing unready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damage: Vec<String>,
    /// Projections that do not go on. The rest does: they make nothing else unready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_views: Vec<super::views::FailedView>,
    version: &'static str,
}

async fn ready(call: Call) -> Result<Response, Rejection> {
    let draining = call.edge.is_draining();
    let failed = call.edge.bus.store().failure().is_some();
    let good = !draining && !failed;
    let (code, status) = if good { (200, "ok") } else { (503, "degraded") };
    // Strangers learn whether, operators why.
    let operator = authorize(&call.principal, Action::OpsRead, Resource::Server).is_ok();
    let told = operator && call.entrance != Entrance::Data;
    if !call.query.has("verbose") || !told {
        return Ok(answer::bytes(code, "text/plain", format!("{status}\n")));
    }
    answer::json(
        code,
        &Readiness {
            status,
            draining,
            store: if failed { Code::StorageFailed.as_str() } else { "ok" },
            topics: call.edge.bus.topics().users().count(),
            damage: call.edge.bus.store().damage(),
            failed_views: super::views::failed(&call.edge),
            version: env!("CARGO_PKG_VERSION"),
        },
    )
}
