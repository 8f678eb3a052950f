use std::sync::{Arc, Mutex};

use axum::RequestPartsExt;
use axum::extract::{RawPathParams, Request};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, header};
use tracing::Instrument;

use super::Peer;
use super::answer;
use super::call::{Call, Query, request_id};
use crate::access::{Action, Principal, Resource, authorize};
use crate::audit::{About, Outcome, Record};
use crate::edge::Edge;
use crate::limits::URI_BYTES_MAX;
use crate::rejection::{Code, Rejection};

/// Who may use a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Anybody: it says nothing about anybody's events.
    Open,
    /// Who has this right over the server.
    Server(Action),
    /// Who has this right over the topics that the request names; the resource asks.
    Topics(Action),
    /// Who has a credential that allows anything at all.
    Known,
    /// Anybody may begin; every frame is asked for its own right.
    Frames,
}

/// Where requests come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// The only one there is.
    Whole,
    /// That of the clients, where administration has one of its own.
    Data,
    /// That of administration.
    Administration,
}

impl Entrance {
    /// Whether a resource is there for those who come in here. Decided by what it declares of
    /// itself: what only administrators may do is administration.
    pub(crate) const fn serves(self, guard: Guard) -> bool {
        let is_admin = match guard.action() {
            _ if matches!(guard, Guard::Open) => return true,
            Some(action) => action.area().is_some(),
            None => false,
        };
        match self {
            Self::Whole => true,
            Self::Data => !is_admin,
            Self::Administration => is_admin,
        }
    }
}

impl Guard {
    /// The right that it asks for.
    const fn action(self) -> Option<Action> {
        match self {
            Self::Open | Self::Known | Self::Frames => None,
            Self::Server(action) | Self::Topics(action) => Some(action),
        }
    }
}

/// A request whose sender is known.
struct Admitted {
    edge: Arc<Edge>,
    entrance: Entrance,
    principal: Principal,
    peer: Peer,
    query: Query,
    /// As the logs and the client know it.
    id: String,
}

/// What a resource does.
pub(super) type Act = fn(Call) -> BoxFuture<'static, Result<Response, Rejection>>;

/// A method of a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint {
    pub(crate) method: Verb,
    pub(crate) path: &'static str,
    pub(crate) guard: Guard,
    /// What it does, in a sentence, for the description of the interface.
    pub(crate) summary: &'static str,
    /// Its query parameters.
    pub(crate) query: &'static [&'static str],
    pub(super) act: Act,
}

/// What is done to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

impl Endpoint {
    /// Its place in the router.
    pub(super) fn route(self, edge: &Arc<Edge>, entrance: Entrance) -> MethodRouter {
        let edge = Arc::clone(edge);
        on(self.method.filter(), move |request: Request| {
            self.run(Arc::clone(&edge), entrance, request)
        })
    }

    /// Its place in the router of an entrance where it is not, and something else has its address.
    pub(super) fn absent(self, edge: &Arc<Edge>) -> MethodRouter {
        let edge = Arc::clone(edge);
        on(self.method.filter(), move |request: Request| {
            super::refuse(Arc::clone(&edge), request, Code::NotFound)
        })
    }

    async fn run(self, edge: Arc<Edge>, entrance: Entrance, request: Request) -> Response {
        let id = request_id();
        let span = tracing::info_span!("request", id, path = self.path);
        let answered = self.answered((Arc::clone(&edge), entrance, id.clone()), request);
        let answered = answered.instrument(span.clone()).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(refusal) => {
                let _entered = span.enter();
                let (code, status) = (refusal.code.as_str(), refusal.code.status());
                if status >= 500 {
                    tracing::warn!(code, status, "a request could not be done");
                } else {
                    tracing::debug!(code, status, "a request was refused");
                }
                answer::problem(&edge, &refusal, &id)
            }
        };
        let status = response.status().as_u16();
        tracing::debug!(parent: &span, status, "a request was answered");
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }

    async fn answered(
        self,
        (edge, entrance, id): (Arc<Edge>, Entrance, String),
        request: Request,
    ) -> Result<Response, Rejection> {
        admit_request(&edge, &request)?;
        let query = Query::read(request.uri().query());
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or(Rejection::plain(Code::Internal))?;
        let principal = self.principal(&edge, request.headers(), &peer).await?;
        let subject = principal.subject().to_owned();
        let admitted = Admitted { edge: Arc::clone(&edge), entrance, principal, peer, query, id };
        let answered = self.admitted(admitted, request).await;
        if matches!(&answered, Err(refusal) if refusal.code == Code::Forbidden) {
            let action = self.guard.action().map_or("connect", Action::name);
            edge.audit.refusals.forbidden(&subject, action, edge.clock.now_ms());
        }
        answered
    }

    async fn admitted(self, who: Admitted, request: Request) -> Result<Response, Rejection> {
        let Admitted { edge, entrance, principal, peer, query, id } = who;
        if let Guard::Server(action) = self.guard {
            authorize(&principal, action, Resource::Server)?;
        }
        query.only(self.query)?;
        let (mut head, body) = request.into_parts();
        let params = head.extract::<RawPathParams>().await;
        let params =
            params.map_err(|_| Rejection::new(Code::BadRequest, "the address is not UTF-8"))?;
        let params =
            params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = Mutex::new(body);
        let act = self.is_audited().then(|| Record {
            at: edge.clock.now_ms(),
            request: Some(id),
            subject: Some(principal.subject().to_owned()),
            peer: Some(peer.address.ip().to_string()),
            action: self.guard.action().map_or("connect", Action::name).to_owned(),
            resource: Some(format!("{} {}", head.method, head.uri)),
            outcome: Outcome::Begun,
            status: None,
            code: None,
            about: None,
        });
        let call = Call { edge, entrance, principal, peer, params, query, head, body, room: None };
        match act {
            Some(act) => self.audited(call, act).await,
            None => (self.act)(call).await,
        }
    }

    /// Whether it goes into the audit log: it changes what only administrators may.
    fn is_audited(self) -> bool {
        let is_admin = self.guard.action().is_some_and(|action| action.area().is_some());
        self.method != Verb::Get && (is_admin || self.path == super::jobs::BEGIN)
    }

    /// Notes it before and after. What cannot be noted is not done; what cannot be noted any more
    /// when it was done is not answered as done.
    async fn audited(self, call: Call, act: Record) -> Result<Response, Rejection> {
        let edge = Arc::clone(&call.edge);
        edge.audit.write(act.clone()).await?;
        let mut answered = (self.act)(call).await;
        let (outcome, status, code) = match &answered {
            Ok(response) if response.status().as_u16() < 400 => {
                (Outcome::Done, response.status().as_u16(), None)
            }
            Ok(response) => (Outcome::Refused, response.status().as_u16(), None),
            Err(refusal) => {
                let code = Some(refusal.code.as_str().to_owned());
                (Outcome::Refused, refusal.code.status(), code)
            }
        };
        let about = answered.as_mut().ok().and_then(|done| done.extensions_mut().remove::<About>());
        let ended = Record {
            at: edge.clock.now_ms(),
            outcome,
            status: Some(status),
            code,
            about: about.map(|About(about)| about),
            ..act
        };
        if let Err(error) = edge.audit.write(ended).await {
            tracing::warn!(%error, "the end of an administrative act is not in the audit log");
            let detail = "it was done, but the audit log could not be told how it ended";
            answered = answered.and(Err(Rejection::new(Code::Indeterminate, detail)));
        }
        answered
    }

    /// Who asks. A credential that is there is looked at even where none is needed.
    async fn principal(
        self,
        edge: &Edge,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Principal, Rejection> {
        if let Some(credential) = bearer(headers)? {
            return edge.authenticate(credential, peer.address.ip()).await;
        }
        if let Some(anonymous) = edge.anonymous() {
            return Ok(anonymous);
        }
        match self.guard {
            Guard::Open | Guard::Frames => {
                Ok(Principal::new("", crate::access::Policy::default(), Some(0)))
            }
            Guard::Known | Guard::Server(_) | Guard::Topics(_) => {
                Err(Rejection::plain(Code::Unauthorized))
            }
        }
    }
}

/// The credential of a request.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Rejection> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    let refused = || Rejection::plain(Code::Unauthorized);
    if given.next().is_some() {
        return Err(refused());
    }
    let value = value.to_str().map_err(|_| refused())?;
    let (scheme, token) = value.split_once(' ').ok_or_else(refused)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(refused());
    }
    Ok(Some(token.trim()))
}

/// What every request has to pass, also those to nowhere: its address, whom it thinks it talks
/// to, and which page sent it.
pub(super) fn admit_request(edge: &Edge, request: &Request) -> Result<(), Rejection> {
    let uri = request.uri();
    let length = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if length > URI_BYTES_MAX {
        return Err(Rejection::plain(Code::UriTooLong));
    }
    let query = Query::read(uri.query());
    if ["token", "access_token", "auth", "jwt", "api_key"].iter().any(|name| query.has(name)) {
        return Err(Rejection::new(
            Code::TokenInQuery,
            "send it as Authorization: Bearer, or in an AUTH frame",
        ));
    }
    let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    // An address with a host in it counts more than the header (RFC 9112, 3.2.2).
    let named = uri.authority().map(|authority| authority.as_str());
    let is_ours = |host: &str| edge.settings.is_host(host);
    if !host.is_some_and(is_ours) || !named.is_none_or(is_ours) {
        return Err(Rejection::plain(Code::HostRefused));
    }
    let foreign = |origin: &HeaderValue| {
        !origin.to_str().is_ok_and(|origin| edge.settings.is_origin(origin, host))
    };
    if request.headers().get_all(header::ORIGIN).iter().any(foreign) {
        return Err(Rejection::plain(Code::OriginRefused));
    }
    if edge.is_draining() && request.method() != Method::GET {
        return Err(Rejection::plain(Code::GoingAway).after_ms(1_000));
    }
    Ok(())
}
