//! ACK, ACKS, NACK and MODACK: what a consumer says about what is out to it. A token names one
//! delivery; plain clients name the event, and mean its newest delivery to this connection.

use futures_util::FutureExt;
use promethean::member::{AckTarget, Answer, LaneId, Seat, Span, Token, Verdict, fingerprint};
use promethean_event::frame::{Ack, AckRange, Acks, Corr, DeliveryToken, Nack};
use promethean_event::{EventId, Topic};

use crate::limits::LEASE_MS_MAX;
use crate::rejection::{Code, Rejection};
use crate::session::{Dialect, Done, Feed, Session, Success};

/// What an answer is for.
struct Asked {
    corr: Option<Corr>,
    id: Option<EventId>,
    many: bool,
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
    count(session, target, Counted::Ack);
    wait(session, answer, Asked { corr, id: id_of(target), many: false });
    Ok(())
}

pub(super) fn acks(
    session: &mut Session,
    corr: Option<Corr>,
    acks: &Acks,
) -> Result<(), Rejection> {
    // Most frames are about one subscription, and then it is one question to the bus.
    let mut subs: Vec<u32> = acks.tokens.iter().map(|token| token.sub).collect();
    subs.extend(acks.ranges.iter().map(|range| range.sub));
    subs.sort_unstable();
    subs.dedup();
    for sub in subs {
        let seat = seat(session, sub)?;
        let mut items: Vec<AckTarget> = acks
            .tokens
            .iter()
            .filter(|wire| wire.sub == sub)
            .map(|wire| AckTarget::Token(token(wire)))
            .collect();
        for range in acks.ranges.iter().filter(|range| range.sub == sub) {
            items.push(span(session, range)?);
        }
        let group = seat.group().as_str();
        session.edge.metrics.acked.add("", group, items.len() as u64);
        let answer = seat.ack(&items);
        wait(session, answer, Asked { corr: corr.clone(), id: None, many: true });
    }
    Ok(())
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
    count(session, &nack.target, Counted::Nack);
    wait(session, answer, Asked { corr, id: id_of(&nack.target), many: false });
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
    wait(session, answer, Asked { corr, id: id_of(target), many: false });
    Ok(())
}

const fn id_of(target: &Ack) -> Option<EventId> {
    match target {
        Ack::Id { id, .. } => Some(*id),
        Ack::Token(_) => None,
    }
}

enum Counted {
    Ack,
    Nack,
}

fn count(session: &Session, target: &Ack, what: Counted) {
    let (topic, group) = match target {
        Ack::Id { topic, group, .. } => (topic.as_str(), group.as_str().to_owned()),
        Ack::Token(wire) => {
            let one = session.subscriptions.get(&wire.sub);
            let group = one.and_then(|one| one.group.as_ref()).map(ToString::to_string);
            let only = one.and_then(|one| one.topics.first()).and_then(|p| p.as_topic());
            let group = group.unwrap_or_default();
            return add(session, only.as_ref().map_or("", Topic::as_str), &group, &what);
        }
    };
    add(session, topic, &group, &what);
}

fn add(session: &Session, topic: &str, group: &str, what: &Counted) {
    let counters = match what {
        Counted::Ack => &session.edge.metrics.acked,
        Counted::Nack => &session.edge.metrics.nacked,
    };
    counters.add(topic, group, 1);
}

/// Answers when it is durable: plain clients always, others if they named the request or if it
/// was refused.
fn wait(session: &Session, answer: Answer, asked: Asked) {
    let reply = asked.corr.is_some() || session.dialect == Dialect::Plain;
    let answered = answer.map(move |answered| {
        let result =
            answered.map_err(Rejection::from).and_then(|reply| match reply.refused.first() {
                Some(refused) if !asked.many || reply.accepted == 0 => Err(refused.why.into()),
                _ => Ok(Success {
                    id: asked.id,
                    accepted: asked.many.then_some(reply.accepted),
                    ..Success::default()
                }),
            });
        Done { corr: asked.corr, reply, result }
    });
    session.answers.push(answered.boxed());
}
