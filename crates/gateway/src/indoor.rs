use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ::http::{HeaderValue, header};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use promethean::Bus;
use tower::Service;

use crate::audit::{AuditSettings, Retention};
use crate::edge::Edge;
use crate::http::{self, Entrance, Peer};
use crate::listener::Doors;
use crate::rejection::{Code, Rejection};
use crate::settings::{Access, Settings};
use crate::shelf::Shelf;

/// The resources of a bus without a network, for the process that has the bus itself. What can be
/// asked, and how it is answered, is the same as over HTTP; whoever holds the store has every right.
#[derive(Debug, Clone)]
pub struct Indoor {
    edge: Arc<Edge>,
    router: Router,
    doors: Arc<Doors>,
}

impl Indoor {
    /// The resources of a bus.
    pub async fn new(bus: Bus) -> Self {
        Self::with(bus, Shelf::default()).await
    }

    /// The resources of a bus, with its views, causes and jobs.
    pub async fn with(bus: Bus, shelf: Shelf) -> Self {
        let audit = AuditSettings { retention: Retention::AsIs, ..AuditSettings::default() };
        let settings = Settings { shelf, audit, ..Settings::local(Access::Anonymous) };
        let edge = Arc::new(Edge::new(bus, settings).await);
        let router = http::router(&edge, Entrance::Whole);
        Self { edge, router, doors: Arc::default() }
    }

    /// Answers one request. Its `Host` need not be set.
    pub async fn call(&self, mut request: Request<Body>) -> Response<Body> {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let Ok(door) = self.doors.enter(&self.edge, address.ip()) else {
            return http::refusal(&self.edge, &Rejection::plain(Code::Limit));
        };
        let host = HeaderValue::from_static("localhost");
        request.headers_mut().entry(header::HOST).or_insert(host);
        request.extensions_mut().insert(Peer::new(address, door));
        match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// The bus.
    pub fn bus(&self) -> &Bus {
        &self.edge.bus
    }
}
