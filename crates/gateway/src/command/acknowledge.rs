//! ACK, ACKS, NACK and MODACK: what a consumer says about what is out to it. A token names one
//! delivery; plain clients name the event, and mean its newest delivery to this connection.

use std::sync::Arc;

use futures_util::FutureExt;
use promethean::member::{AckTarget, Answer, LaneId, Seat, Span, Token, Verdict, fingerprint};
use promethean::store::TopicId;
use promethean_event::EventId;
use promethean_event::frame::{Ack, AckRange, Acks, Corr, DeliveryToken, Nack, RefusedToken};

use crate::edge::Edge;
use crate::limits::LEASE_MS_MAX;
use crate::rejection::{Code, Rejection};
use crate::session::{Dialect, Done, Feed, Session, Success};

/// What an answer is for.
struct Asked {
    corr: Option<Corr>,
    id: Option<EventId>,
    what: What,
    topic: String,
    group: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Ack,
    Nack,
    Extend,
}

fn token(wire: &DeliveryToken) -> Token {
    let lane = u64::from(wire.lane) << 32 | u64::from(wire.partition.get());
    Token {
        lane: LaneId::new(lane),
        offset: wire.offset.get(),
        epoch: wire.epoch,
        attempt: wire.attempt,
        round: wire.round,
    }
}

fn seat(session: &Session, sub: u32) -> Result<Seat, Rejection> {
    match session.subscriptions.get(&sub).map(|one| &one.feed) {
        Some(Feed::Member(member)) => Ok(member.seat().clone()),
        _ => Err(Rejection::plain(Code::UnknownId)),
    }
}

/// The delivery that is meant, and who answers for it. An answer by id is the last one.
fn find(session: &mut Session, target: &Ack, last: bool) -> Result<(Seat, Token), Rejection> {
    let (topic, group, id) = match target {
        Ack::Token(wire) => return Ok((seat(session, wire.sub)?, token(wire))),
        Ack::Id { topic, group, id } => (topic, group, id),
    };
    let key = (topic.clone(), *id);
    let mut subscriptions = session.subscriptions.iter_mut();
    let found = subscriptions.find_map(|(number, one)| {
        if one.group.as_ref() != Some(group) {
            return None;
        }
        let out = if last { one.out.remove(&key) } else { one.out.get(&key).copied() };
        out.map(|out| (*number, out.token))
    });
    let (number, token) = found.ok_or(Rejection::plain(Code::UnknownId))?;
    Ok((seat(session, number)?, token))
}

pub(super) fn ack(
    session: &mut Session,
    corr: Option<Corr>,
    target: &Ack,
) -> Result<(), Rejection> {
    let (seat, token) = find(session, target, true)?;
    let answer = seat.ack(&[AckTarget::Token(token)]);
    let asked = asked(session, corr, target, (What::Ack, &seat));
    wait(session, answer, asked);
    Ok(())
}

/// What an ACKS says about one subscription.
struct Share {
    answer: Answer,
    /// The deliveries it names, in the order in which they were asked for.
    tokens: Vec<DeliveryToken>,
    topic: String,
    group: String,
}

pub(super) fn acks(
    session: &mut Session,
    corr: Option<&Corr>,
    acks: &Acks,
) -> Result<(), Rejection> {
    // Before anything is asked: a range that makes no sense refuses the frame as a whole.
    let spans: Vec<(u32, AckTarget)> = acks
        .ranges
        .iter()
        .map(|range| Ok((range.sub, span(session, range)?)))
        .collect::<Result<_, Rejection>>()?;
    // Most frames are about one subscription, and then it is one question to the bus.
    let mut subs: Vec<u32> = acks.tokens.iter().map(|token| token.sub).collect();
    subs.extend(spans.iter().map(|(sub, _)| *sub));
    subs.sort_unstable();
    subs.dedup();
    let mut shares = Vec::with_capacity(subs.len());
    let mut refused = Vec::new();
    for sub in subs {
        let named = acks.tokens.iter().copied().filter(|wire| wire.sub == sub);
        let tokens: Vec<DeliveryToken> = named.collect();
        let Ok(seat) = seat(session, sub) else {
            refused.extend(tokens.into_iter().map(|token| refused_token(token, Code::UnknownId)));
            continue;
        };
        // Counted for the first topic: a frame is about one, as a rule.
        let range = acks.ranges.iter().find(|range| range.sub == sub);
        let topic = tokens
            .first()
            .map(|wire| topic_of(session, wire.lane))
            .or_else(|| range.map(|range| range.topic.to_string()));
        let of_sub = spans.iter().filter(|(of, _)| *of == sub).map(|(_, span)| *span);
        let items: Vec<AckTarget> =
            tokens.iter().map(|wire| AckTarget::Token(token(wire))).chain(of_sub).collect();
        let (answer, group) = (seat.ack(&items), seat.group().to_string());
        shares.push(Share { answer, tokens, topic: topic.unwrap_or_default(), group });
    }
    let reply = corr.is_some() || session.dialect == Dialect::Plain;
    let all = all_of(Arc::clone(&session.edge), shares, refused);
    let corr = corr.cloned();
    session.answers.push(
        async move {
            let (result, refused) = all.await;
            Done { corr, reply, result, refused }
        }
        .boxed(),
    );
    Ok(())
}

/// One answer for all subscriptions of an ACKS. Of ranges, what is not out is passed over.
async fn all_of(
    edge: Arc<Edge>,
    shares: Vec<Share>,
    mut refused: Vec<RefusedToken>,
) -> (Result<Success, Rejection>, Vec<RefusedToken>) {
    let mut accepted = 0;
    let mut failure = None;
    for Share { answer, tokens, topic, group } in shares {
        let reply = match answer.await {
            Ok(reply) => reply,
            Err(error) => return (Err(error.into()), refused),
        };
        edge.metrics.acked.add(&topic, &group, reply.accepted);
        accepted += reply.accepted;
        for one in &reply.refused {
            let why = Rejection::from(one.why);
            if let Some(&token) = tokens.get(one.item as usize) {
                refused.push(refused_token(token, why.code));
            }
            failure = failure.or(Some(why));
        }
    }
    let nothing = accepted == 0 && (failure.is_some() || !refused.is_empty());
    let result = if nothing {
        Err(failure.unwrap_or(Rejection::plain(Code::UnknownId)))
    } else {
        Ok(Success { accepted: Some(accepted), ..Success::default() })
    };
    (result, refused)
}

fn refused_token(token: DeliveryToken, code: Code) -> RefusedToken {
    RefusedToken { token, code: code.as_str().into() }
}

fn span(session: &Session, range: &AckRange) -> Result<AckTarget, Rejection> {
    let topics = session.edge.bus.topics();
    let entry = topics.get(&range.topic).ok_or(Rejection::plain(Code::NotFound))?;
    let lane = u64::from(entry.id.get()) << 32 | u64::from(range.partition.get());
    let (from, to) = (range.from.get(), range.to.get().saturating_add(1));
    if from >= to {
        return Err(Rejection::new(Code::BadRequest, "a range ends before it begins"));
    }
    Ok(AckTarget::Range { lane: LaneId::new(lane), epoch: range.epoch, span: Span { from, to } })
}

pub(super) fn nack(
    session: &mut Session,
    corr: Option<Corr>,
    nack: &Nack,
) -> Result<(), Rejection> {
    let (seat, token) = find(session, &nack.target, true)?;
    let reason = nack.reason.as_deref().unwrap_or_default();
    let (error, fingerprint) = (reason.as_bytes(), fingerprint(reason));
    let verdict = if nack.park {
        Verdict::Park { error, fingerprint }
    } else {
        let delay_ms = nack.delay_ms.map(|delay| delay.min(LEASE_MS_MAX));
        Verdict::Retry { delay_ms, error, fingerprint }
    };
    let answer = seat.nack(AckTarget::Token(token), verdict);
    let asked = asked(session, corr, &nack.target, (What::Nack, &seat));
    wait(session, answer, asked);
    Ok(())
}

pub(super) fn extend(
    session: &mut Session,
    corr: Option<Corr>,
    target: &Ack,
    extend_ms: u32,
) -> Result<(), Rejection> {
    let (seat, token) = find(session, target, false)?;
    let answer = seat.extend(AckTarget::Token(token), extend_ms.min(LEASE_MS_MAX));
    let asked = asked(session, corr, target, (What::Extend, &seat));
    wait(session, answer, asked);
    Ok(())
}

fn asked(session: &Session, corr: Option<Corr>, target: &Ack, of: (What, &Seat)) -> Asked {
    let (what, seat) = of;
    let (topic, group) = (topic_named(session, target), seat.group().to_string());
    Asked { corr, id: id_of(target), what, topic, group }
}

const fn id_of(target: &Ack) -> Option<EventId> {
    match target {
        Ack::Id { id, .. } => Some(*id),
        Ack::Token(_) => None,
    }
}

/// The topic of a lane, as counters know it.
fn topic_of(session: &Session, lane: u32) -> String {
    let topics = session.edge.bus.topics();
    let entry = topics.by_id(TopicId::new(lane));
    entry.map(|entry| entry.definition.topic.to_string()).unwrap_or_default()
}

fn topic_named(session: &Session, target: &Ack) -> String {
    match target {
        Ack::Id { topic, .. } => topic.to_string(),
        Ack::Token(wire) => topic_of(session, wire.lane),
    }
}

/// Answers when it is durable: plain clients always, others if they named the request or if it
/// was refused.
fn wait(session: &Session, answer: Answer, asked: Asked) {
    let reply = asked.corr.is_some() || session.dialect == Dialect::Plain;
    let edge = Arc::clone(&session.edge);
    let answered = answer.map(move |answered| {
        if let Ok(reply) = &answered {
            match asked.what {
                What::Ack => {
                    edge.metrics.acked.add(&asked.topic, &asked.group, reply.accepted);
                }
                What::Nack => edge.metrics.nacked.add(&asked.topic, &asked.group, reply.accepted),
                What::Extend => {}
            }
        }
        let result =
            answered.map_err(Rejection::from).and_then(|reply| match reply.refused.first() {
                Some(refused) => Err(refused.why.into()),
                None => Ok(Success { id: asked.id, ..Success::default() }),
            });
        Done { reply, ..Done::new(asked.corr, result) }
    });
    session.answers.push(answered.boxed());
}
