use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use promethean::{PublishError, Published};
use promethean_event::frame::{Corr, Place, Publish};
use promethean_event::{EventId, NewEvent, Topic};
use tokio::time::{Instant, timeout_at};

use crate::access::{Action, Principal, Resource, authorize};
use crate::edge::weaker;
use crate::intake::check_headers;
use crate::limits::GATHERED_BYTES;
use crate::rejection::{Code, Rejection};
use crate::session::{Dialect, Done, Gathered, Session, Success};

/// Takes events to be stored. The answer follows when they are durable; until then more may be sent.
pub(super) async fn run(
    session: &mut Session,
    principal: &Principal,
    corr: Option<&Corr>,
    events: Vec<Publish>,
    batch: bool,
) -> Result<(), Rejection> {
    if session.drain {
        return Err(Rejection::plain(Code::GoingAway).after_ms(1_000));
    }
    let mut ready = Vec::with_capacity(events.len());
    for publish in events {
        ready.push(event(session, principal, publish)?);
    }
    let topics = ready.iter().map(|event| &event.topic);
    if let Err(refusal) = session.edge.admit(principal, &mut session.bucket, topics) {
        // Who goes on regardless is closed after a while; who waits is let through in between.
        let now = session.edge.clock.elapsed();
        session.abused = session.abused.or(Some(now));
        return Err(refusal);
    }
    session.abused = None;
    let with_places = batch || session.dialect == Dialect::V1;
    let known = session.edge.bus.topics();
    let all_known = ready.iter().all(|event| known.get(&event.topic).is_some());
    let gathered = Gathered { corr: corr.cloned(), events: ready, with_places };
    if !all_known {
        // A topic that has to be made first is waited for: later ones must not pass.
        hand_over(session);
        let (until, storing) = store(session, vec![gathered]);
        let mut storing = storing.boxed();
        let done = match timeout_at(until, &mut storing).await {
            Ok(done) => done,
            // It is too late, and it knows.
            Err(_) => storing.await,
        };
        session.publishes.push((done.len(), 0), until, std::future::ready(done).boxed());
        return Ok(());
    }
    // About what it takes while it waits.
    session.gathered_bytes += session.frame_bytes + size_of_val(&*gathered.events);
    session.gathered.push(gathered);
    if session.gathered_bytes >= GATHERED_BYTES {
        hand_over(session);
    }
    Ok(())
}

/// Hands to the store what was gathered, in the order in which it came.
pub(crate) fn hand_over(session: &mut Session) {
    if session.gathered.is_empty() {
        return;
    }
    let bytes = mem::take(&mut session.gathered_bytes);
    let gathered = mem::take(&mut session.gathered);
    let requests = gathered.len();
    let (until, storing) = store(session, gathered);
    let mut storing = storing.boxed();
    // The first poll hands the events to the store, so that publishes stand there in the order in
    // which they came.
    let storing = match (&mut storing).now_or_never() {
        Some(done) => std::future::ready(done).boxed(),
        None => storing,
    };
    session.publishes.push((requests, bytes), until, storing);
}

fn event(
    session: &mut Session,
    principal: &Principal,
    publish: Publish,
) -> Result<NewEvent, Rejection> {
    let Publish { topic, payload, opts } = publish;
    if session.publishable.as_ref() != Some(&topic) {
        authorize(principal, Action::Publish, Resource::Topic(&topic, None))?;
        session.publishable = Some(topic.clone());
    }
    check_headers(&opts.headers)?;
    let id = opts.id.unwrap_or_else(EventId::generate);
    let ts = opts.ts.unwrap_or_else(|| session.edge.clock.now());
    let mut event = NewEvent::new(id, ts, topic, payload);
    event.key = opts.key;
    event.headers = opts.headers;
    event.tags = opts.tags;
    event.caused_by = opts.caused_by;
    event.sid = opts.sid;
    event.check().map_err(|error| Rejection::new(Code::InvalidEvent, error.to_string()))?;
    Ok(event)
}

/// Who asked, and what for.
struct Asked {
    corr: Option<Corr>,
    topics: Vec<Topic>,
    with_places: bool,
}

/// Stores events, and says until when that is waited for. Polled after that, it gives an answer in
/// any case.
fn store(
    session: &Session,
    gathered: Vec<Gathered>,
) -> (Instant, impl Future<Output = Vec<Done>> + Send + 'static) {
    let edge = Arc::clone(&session.edge);
    let begun = edge.clock.elapsed();
    let longest = edge.settings.bounds.publish;
    let until = edge.clock.instant() + longest;
    let mut asked = Vec::with_capacity(gathered.len());
    let mut run = Vec::with_capacity(gathered.len());
    for Gathered { corr, events, with_places } in gathered {
        let topics: Vec<Topic> = events.iter().map(|event| event.topic.clone()).collect();
        run.push((events, edge.publish_options(topics.iter())));
        asked.push(Asked { corr, topics, with_places });
    }
    let publishing = edge.bus.publish_run(run);
    let storing = async move {
        let mut publishing = pin!(publishing);
        let outcomes = poll_fn(|context| match publishing.as_mut().poll(context) {
            Poll::Ready(outcomes) => Poll::Ready(Some(outcomes)),
            Poll::Pending if edge.clock.elapsed() - begun >= longest => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let Some(outcomes) = outcomes.await else {
            // What the store has goes on there: it may happen yet.
            let late = |asked: Asked| Done::new(asked.corr, Err(Rejection::indeterminate()));
            return asked.into_iter().map(late).collect();
        };
        let took = edge.clock.elapsed().saturating_sub(begun);
        let stored = asked.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
        edge.count_published(stored.flat_map(|(asked, _)| &asked.topics));
        let done = |(asked, outcome): (Asked, Result<Vec<Published>, PublishError>)| {
            edge.metrics.publishing.record(took);
            let success = outcome.map(|published| success(&published, asked.with_places));
            Done::new(asked.corr, success.map_err(Rejection::from))
        };
        asked.into_iter().zip(outcomes).map(done).collect()
    };
    (until, storing)
}

fn success(published: &[Published], with_places: bool) -> Success {
    let place = |one: &Published| Place {
        id: one.id,
        partition: one.partition,
        offset: one.offset,
        duplicate: one.duplicate,
    };
    Success {
        id: published.first().map(|one| one.id).filter(|_| published.len() == 1),
        durability: published.iter().map(|one| one.durability).min().and_then(weaker),
        places: if with_places { published.iter().map(place).collect() } else { vec![] },
        ..Success::default()
    }
}
