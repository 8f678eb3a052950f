use std::sync::Arc;

use futures_util::FutureExt;
use promethean_event::frame::{Corr, Place, Publish};
use promethean_event::{EventId, NewEvent, Topic};

use crate::access::{Action, Principal, Resource, authorize};
use crate::edge::limited;
use crate::intake::check_headers;
use crate::rejection::{Code, Rejection};
use crate::session::{Dialect, Done, Session, Success};

/// Stores events. The answer follows when they are durable; until then more may be sent.
pub(super) async fn run(
    session: &mut Session,
    principal: &Principal,
    corr: Option<Corr>,
    events: Vec<Publish>,
    batch: bool,
) -> Result<(), Rejection> {
    if session.drain {
        return Err(Rejection::plain(Code::GoingAway).after_ms(1_000));
    }
    let now = session.edge.clock.now();
    let mut ready = Vec::with_capacity(events.len());
    for Publish { topic, payload, opts } in events {
        authorize(principal, Action::Publish, Resource::Topic(&topic, None))?;
        check_headers(&opts.headers)?;
        let id = opts.id.unwrap_or_else(EventId::generate);
        let mut event = NewEvent::new(id, opts.ts.unwrap_or(now), topic, payload);
        event.key = opts.key;
        event.headers = opts.headers;
        event.tags = opts.tags;
        event.caused_by = opts.caused_by;
        event.sid = opts.sid;
        event.check().map_err(|error| Rejection::new(Code::InvalidEvent, error.to_string()))?;
        ready.push(event);
    }
    if let Err(refusal) = admit(session, principal, &ready) {
        // Who goes on regardless is closed after a while; who waits is let through in between.
        let now = session.edge.clock.elapsed();
        session.abused = session.abused.or(Some(now));
        return Err(refusal);
    }
    session.abused = None;
    let known = session.edge.bus.topics();
    let all_known = ready.iter().all(|event| known.get(&event.topic).is_some());
    let with_places = batch || session.dialect == Dialect::V1;
    let mut storing = store(session, corr, ready, with_places).boxed();
    // The first poll hands the events to the store, so that publishes stand there in the order in
    // which they came. A topic that has to be made first is waited for: later ones must not pass.
    match (&mut storing).now_or_never() {
        Some(done) => session.publishes.push(std::future::ready(done).boxed()),
        None if all_known => session.publishes.push(storing),
        None => {
            let done = storing.await;
            session.publishes.push(std::future::ready(done).boxed());
        }
    }
    Ok(())
}

fn admit(
    session: &mut Session,
    principal: &Principal,
    events: &[NewEvent],
) -> Result<(), Rejection> {
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let rate = session.edge.settings.rates.connection;
    if let Some(rate) = rate {
        let taken = session.bucket.take(rate, session.edge.clock.elapsed(), count);
        taken.map_err(|refusal| limited("this connection", refusal))?;
    }
    let topics = events.iter().map(|event| &event.topic);
    let admitted = session.edge.admit(principal, topics, count);
    if let (Err(_), Some(rate)) = (&admitted, rate) {
        session.bucket.put_back(rate, count);
    }
    admitted
}

fn store(
    session: &Session,
    corr: Option<Corr>,
    events: Vec<NewEvent>,
    with_places: bool,
) -> impl Future<Output = Done> + Send + 'static {
    let edge = Arc::clone(&session.edge);
    let begun = edge.clock.elapsed();
    let topics: Vec<Topic> = events.iter().map(|event| event.topic.clone()).collect();
    let options = edge.publish_options(topics.iter());
    async move {
        let result = edge.bus.publish_with(events, options).await;
        edge.metrics.publishing.record(edge.clock.elapsed().saturating_sub(begun));
        let result = result.map_err(Rejection::from).map(|published| {
            edge.count_published(topics.iter());
            let place = |one: &promethean::Published| Place {
                id: one.id,
                partition: one.partition,
                offset: one.offset,
                duplicate: one.duplicate,
            };
            let first = published.first().map(|one| one.id);
            Success {
                id: first.filter(|_| published.len() == 1),
                places: if with_places { published.iter().map(place).collect() } else { vec![] },
                ..Success::default()
            }
        });
        Done::new(corr, result)
    }
}
