use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt;
use promethean::PublishOptions;
use promethean::store::{Appended, Run};
use promethean_event::frame::{Corr, Place, Publish, write_ok};
use promethean_event::{EventId, NewEvent};
use tokio::time::Instant;

use crate::access::{Action, Principal, Resource, authorize};
use crate::edge::weaker;
use crate::intake::check_headers;
use crate::limits::GATHERED_BYTES;
use crate::rejection::{Code, Rejection};
use crate::session::{Dialect, Session};

/// Publishes that were taken and not yet handed over: others may have come with them.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    run: Run,
    /// One for each part of the run.
    asked: Vec<Asked>,
    bytes: usize,
}

/// Who asked for a publish, and what for.
#[derive(Debug)]
struct Asked {
    corr: Option<Corr>,
    events: usize,
    /// Whether the client wants to know where they stand.
    with_places: bool,
}

/// What became of publishes that were handed over together.
#[derive(Debug)]
pub(crate) struct Stored {
    asked: Vec<Asked>,
    /// Of all events.
    ids: Vec<EventId>,
    outcomes: Vec<Result<Appended, Rejection>>,
}

/// Takes events to be stored. The answer follows when they are durable; until then more may be sent.
pub(super) fn run(
    session: &mut Session,
    principal: &Principal,
    corr: Option<&Corr>,
    events: Vec<Publish>,
    batch: bool,
) -> Result<(), Rejection> {
    if session.drain {
        return Err(Rejection::plain(Code::GoingAway).after_ms(1_000));
    }
    if let Err(refusal) = take(session, principal, events) {
        drop(session.gathered.run.take_back());
        return Err(refusal);
    }
    let added = session.gathered.run.added();
    let with_places = batch || session.dialect == Dialect::V1;
    let asked = Asked { corr: corr.cloned(), events: added.len(), with_places };
    if !are_known(session, added) {
        // A topic that has to be made first is waited for: later ones must not pass, and are not read.
        let mut alone = Gathered::default();
        let events: Vec<NewEvent> = session.gathered.run.take_back().collect();
        hand_over(session);
        events.into_iter().for_each(|event| alone.run.add(event));
        alone.part(session, asked);
        session.gathered = alone;
        hand_over(session);
        session.publishes.close();
        return Ok(());
    }
    let mut gathered = mem::take(&mut session.gathered);
    gathered.part(session, asked);
    let much = gathered.bytes >= GATHERED_BYTES;
    session.gathered = gathered;
    if much {
        hand_over(session);
    }
    Ok(())
}

/// Hands to the store what was gathered, in the order in which it came.
pub(crate) fn hand_over(session: &mut Session) {
    if session.gathered.asked.is_empty() {
        return;
    }
    let gathered = mem::take(&mut session.gathered);
    let (requests, bytes) = (gathered.asked.len(), gathered.bytes);
    let (until, storing) = store(session, gathered);
    let mut storing = storing.boxed();
    // The first poll hands the events to the store, so that publishes stand there in the order in
    // which they came.
    let storing = match (&mut storing).now_or_never() {
        Some(stored) => std::future::ready(stored).boxed(),
        None => storing,
    };
    session.publishes.push((requests, bytes), until, storing);
}

/// Answers publishes, in the order in which they came.
pub(crate) fn answer(session: &Session, stored: Stored) {
    let Stored { asked, ids, outcomes } = stored;
    let mut rest = ids.as_slice();
    // What is said of many is written in one go.
    let (mut frames, mut ends) = (Vec::new(), Vec::with_capacity(asked.len()));
    let mut places = Vec::new();
    for (asked, outcome) in asked.into_iter().zip(outcomes) {
        let (ids, after) = rest.split_at(asked.events.min(rest.len()));
        rest = after;
        match outcome {
            Ok(appended) => {
                places.clear();
                if asked.with_places {
                    places.extend(ids.iter().zip(&appended.receipts).map(|(id, receipt)| Place {
                        id: *id,
                        partition: receipt.lane.partition,
                        offset: receipt.offset,
                        duplicate: receipt.duplicate,
                    }));
                }
                let id = ids.first().copied().filter(|_| ids.len() == 1);
                let durability = weaker(appended.durability);
                write_ok(&mut frames, asked.corr.as_ref(), id, &places, durability);
                ends.push(frames.len());
            }
            Err(refusal) => {
                session.outbox.push_all(mem::take(&mut frames), &ends);
                ends.clear();
                session.refuse_publish(asked.corr.as_ref(), &refusal, ids);
            }
        }
    }
    session.outbox.push_all(frames, &ends);
}

/// Adds events to those that are gathered, if they are good and the client may publish them now.
fn take(
    session: &mut Session,
    principal: &Principal,
    events: Vec<Publish>,
) -> Result<(), Rejection> {
    for publish in events {
        let event = event(session, principal, publish)?;
        session.gathered.run.add(event);
    }
    let topics = session.gathered.run.added().iter().map(|event| &event.topic);
    if let Err(refusal) = session.edge.admit(principal, &mut session.bucket, topics) {
        // Who goes on regardless is closed after a while; who waits is let through in between.
        let now = session.edge.clock.elapsed();
        session.abused = session.abused.or(Some(now));
        return Err(refusal);
    }
    session.abused = None;
    Ok(())
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

/// Whether the topics of these events are there. Those of a client are mostly of one topic, which is
/// looked up once for all that were gathered.
fn are_known(session: &Session, events: &[NewEvent]) -> bool {
    let mut known = session.gathered.run.events().last().map(|event| &event.topic);
    events.iter().all(|event| {
        let is_known =
            known == Some(&event.topic) || session.edge.bus.topics().get(&event.topic).is_some();
        known = Some(&event.topic);
        is_known
    })
}

impl Gathered {
    /// Makes one publish of the events that were added.
    fn part(&mut self, session: &Session, asked: Asked) {
        let added = self.run.added();
        // About what they take while they wait.
        self.bytes += session.frame_bytes + size_of_val(added);
        let options = session.edge.publish_options(added.iter().map(|event| &event.topic));
        let PublishOptions { durability, expect } = options;
        self.run.part(durability, expect);
        self.asked.push(asked);
    }
}

/// Stores what was gathered, and says until when that is waited for. Polled after that, it gives an
/// answer in any case.
fn store(
    session: &Session,
    gathered: Gathered,
) -> (Instant, impl Future<Output = Stored> + Send + 'static) {
    let edge = Arc::clone(&session.edge);
    let begun = edge.clock.elapsed();
    let longest = edge.settings.bounds.publish;
    let until = edge.clock.instant() + longest;
    let Gathered { run, asked, .. } = gathered;
    let ids = run.events().iter().map(|event| event.id).collect();
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
            let outcomes = asked.iter().map(|_| Err(Rejection::indeterminate())).collect();
            return Stored { asked, ids, outcomes };
        };
        let took = edge.clock.elapsed().saturating_sub(begun);
        edge.count_stored(outcomes.iter().flatten());
        edge.metrics.publishing.record_many(took, asked.len() as u64);
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(Into::into)).collect();
        Stored { asked, ids, outcomes }
    };
    (until, storing)
}
