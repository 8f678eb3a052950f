use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use promethean::store::Lane;
use promethean::{Filter, GroupError, Mode, Ordered, Park, Reads, Start};
use promethean_event::frame::{
    AckMode, Corr, From, Gap, GroupMode, GroupOrder, GroupPark, NamedForm, ReadsForm, ServerFrame,
    Subscribe, SubscribeOpts,
};
use promethean_event::{Cursor, Event, GroupName, Timestamp};
use tokio::time::timeout;

use crate::access::{Action, Principal, Resource, authorize};
use crate::edge::Edge;
use crate::filter::{Expression, Verdict};
use crate::limits::{EVENTS_FRAME_MAX, IN_FLIGHT_MAX, LEASE_MS_MAX};
use crate::rejection::{Code, Rejection};
use crate::session::{Dialect, Done, Feed, Session, Subscription, Success};
use crate::tail::{Begin, Tail, TailWish};

/// What a group has that says only one of its two delays.
const BACKOFF_MS: u32 = 200;
const BACKOFF_MS_MAX: u32 = 60_000;

/// Which frame it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// SUBSCRIBE, answered by OK.
    New,
    /// RESUME, answered by RESUMED.
    Again,
}

/// Makes a subscription. Nothing else of the connection is looked at until it is there: what
/// follows may be about it.
pub(super) async fn run(
    session: &mut Session,
    principal: &Principal,
    corr: Option<&Corr>,
    wish: Subscribe,
    kind: Kind,
) -> Result<(), Rejection> {
    if session.drain {
        return Err(Rejection::plain(Code::GoingAway).after_ms(1_000));
    }
    let max = session.edge.settings.bounds.subscriptions;
    if session.subscriptions.len() >= max {
        return Err(Rejection::new(Code::Limit, format!("{max} subscriptions at a time")));
    }
    let filter = wish.opts.filter.as_deref().map(Expression::compile).transpose()?;
    let edge = Arc::clone(&session.edge);
    if let Some(group) = &wish.group {
        for pattern in &wish.topics {
            authorize(principal, Action::Subscribe, Resource::Pattern(pattern, Some(group)))?;
        }
        refuse_twice(session, &wish, group)?;
    }
    session.numbers += 1;
    let number = session.numbers;
    // A store that does not answer must not keep all else of the connection waiting.
    let begun =
        timeout(edge.settings.bounds.publish, begin(&edge, principal, &wish, (kind, filter)));
    let late = Rejection::plain(Code::NotReady).after_ms(1_000);
    let Begun { feed, was_there, gaps, after } = begun.await.map_err(|_| late)??;
    let subscription = Subscription {
        feed,
        batch: batch_size(session, &wish),
        auto_ack: wish.opts.ack == Some(AckMode::Auto),
        max_attempts: wish.opts.max_attempts.unwrap_or(5),
        ack_timeout_ms: wish.opts.ack_timeout_ms.unwrap_or(30_000),
        paused: false,
        hushed: false,
        paced: None,
        credit: wish.opts.credit.filter(|_| wish.group.is_none()),
        out: HashMap::new(),
        counters: HashMap::new(),
        group: wish.group,
        topics: wish.topics,
    };
    session.subscriptions.insert(number, subscription);
    if kind == Kind::Again {
        let recovered = was_there && gaps.is_empty();
        session.say(&ServerFrame::Resumed {
            corr,
            sub: number,
            recovered,
            gaps: &gaps,
            after: &after,
        });
        return Ok(());
    }
    let sub = (session.dialect == Dialect::V1).then_some(number);
    let result = Ok(Success { sub, ..Success::default() });
    session.answer(Done::new(corr.cloned(), result));
    Ok(())
}

/// A subscription that was made, and what is missing between where it was and what is there.
struct Begun {
    feed: Feed,
    /// Whether its group was.
    was_there: bool,
    gaps: Vec<Gap>,
    /// Where a tail goes on.
    after: Vec<Cursor>,
}

async fn begin(
    edge: &Arc<Edge>,
    principal: &Principal,
    wish: &Subscribe,
    (kind, filter): (Kind, Option<Expression>),
) -> Result<Begun, Rejection> {
    let Some(group) = &wish.group else {
        let tail = follow(edge, principal, wish, (kind, filter)).await?;
        let (gaps, after) = (tail.gaps().await?, tail.cursors());
        return Ok(Begun { feed: Subscription::follow(tail), was_there: true, gaps, after });
    };
    let (was_there, gaps) = match kind {
        Kind::Again => missed(edge, wish, group).await?,
        Kind::New => (true, Vec::new()),
    };
    let feed = join(edge, wish, group, filter).await?;
    Ok(Begun { feed, was_there, gaps, after: Vec::new() })
}

/// Plain clients name a subscription by topic and group: the same pair twice could not be told
/// apart.
fn refuse_twice(session: &Session, wish: &Subscribe, group: &GroupName) -> Result<(), Rejection> {
    let same = |one: &Subscription| {
        one.group.as_ref() == Some(group) && one.topics.iter().any(|t| wish.topics.contains(t))
    };
    if session.dialect == Dialect::Plain && session.subscriptions.values().any(same) {
        return Err(Rejection::new(Code::Conflict, "this connection has that subscription"));
    }
    Ok(())
}

fn batch_size(session: &Session, wish: &Subscribe) -> Option<usize> {
    let batched = session.dialect == Dialect::V1 && wish.opts.batch == Some(true);
    let size = wish.opts.batch_size.unwrap_or(100).clamp(1, EVENTS_FRAME_MAX);
    batched.then_some(size as usize)
}

/// What a group will never get of what it has not finished, and whether it is there at all: one that is
/// not begins anew, and nobody knows what it had.
async fn missed(
    edge: &Edge,
    wish: &Subscribe,
    group: &GroupName,
) -> Result<(bool, Vec<Gap>), Rejection> {
    let cursors = match edge.bus.cursors(group).await {
        Ok(cursors) => cursors,
        Err(GroupError::Unknown(_)) => return Ok((false, Vec::new())),
        Err(error) => return Err(error.into()),
    };
    let topics = edge.bus.topics();
    let mut gaps = Vec::new();
    for Cursor { topic, partition, next } in cursors {
        let wanted = wish.topics.iter().any(|pattern| pattern.matches(&topic));
        let Some(entry) = topics.get(&topic).filter(|_| wanted) else {
            continue;
        };
        let bounds = edge.bus.store().bounds(Lane { topic: entry.id, partition }).await?;
        if next < bounds.start {
            let reason = Cow::Borrowed("retention");
            gaps.push(Gap { topic, partition, from: next, to: bounds.start, reason });
        }
    }
    Ok((true, gaps))
}

async fn join(
    edge: &Edge,
    wish: &Subscribe,
    group: &GroupName,
    filter: Option<Expression>,
) -> Result<Feed, Rejection> {
    let opts = &wish.opts;
    let topics = wish.topics.iter().map(|topic| topic.as_str());
    let start = match opts.from.unwrap_or_default() {
        From::Latest => Start::Latest,
        From::Earliest => Start::Earliest,
        From::Ts => Start::At(opts.ts.ok_or_else(|| needs("ts"))?),
        From::AfterId => Start::AfterId(opts.after_id.ok_or_else(|| needs("after_id"))?),
    };
    let mut join = edge
        .bus
        .subscribe_to(topics, group.as_str())
        .from(start)
        .max_in_flight(opts.max_in_flight.unwrap_or(IN_FLIGHT_MAX).clamp(1, IN_FLIGHT_MAX))
        .batch_size(opts.batch_size.unwrap_or(100).clamp(1, EVENTS_FRAME_MAX));
    if let Some(millis) = opts.ack_timeout_ms {
        if !(1..=LEASE_MS_MAX).contains(&millis) {
            let detail = format!("ack_timeout_ms is 1 to {LEASE_MS_MAX}");
            return Err(Rejection::new(Code::BadRequest, detail));
        }
        join = join.ack_timeout(Duration::from_millis(millis.into()));
    }
    join = settled(join, opts);
    if let Some(credit) = opts.credit {
        join = join.credits(credit);
    }
    if let Some(expression) = filter {
        let name = expression.source().to_owned();
        let undecided = Arc::clone(&edge.metrics.undecided);
        let group = group.clone();
        let wants = move |event: &Event| match expression.verdict(event) {
            Verdict::Pass => true,
            Verdict::Skip | Verdict::Fault => false,
            Verdict::Undecided => {
                undecided.note(event, Some(&group));
                true
            }
        };
        join = join.filter(Filter::new(&name, wants));
    }
    Ok(Feed::Member(join.member().await?))
}

/// How the group delivers, as far as it was said.
fn settled(mut join: promethean::Subscribe, opts: &SubscribeOpts) -> promethean::Subscribe {
    let millis = |ms: u32| Duration::from_millis(ms.into());
    if let Some(form) = opts.reads {
        join = join.reads(reads(form));
    }
    if let Some(attempts) = opts.max_attempts {
        join = join.max_attempts(attempts);
    }
    if opts.mode == Some(GroupMode::Partitioned) {
        join = join.mode(Mode::Partitioned);
    }
    if opts.ordered == Some(GroupOrder::None) {
        join = join.ordered(Ordered::None);
    }
    if opts.park == Some(GroupPark::Key) {
        join = join.park(Park::Key);
    }
    if opts.backoff_ms.is_some() || opts.backoff_ms_max.is_some() {
        let first = opts.backoff_ms.unwrap_or(BACKOFF_MS);
        join = join.backoff(millis(first), millis(opts.backoff_ms_max.unwrap_or(BACKOFF_MS_MAX)));
    }
    if let Some(ms) = opts.drain_ms {
        join = join.drain(millis(ms));
    }
    if opts.hold == Some(true) {
        join = join.hold();
    }
    join
}

async fn follow(
    edge: &Arc<Edge>,
    principal: &Principal,
    wish: &Subscribe,
    (kind, filter): (Kind, Option<Expression>),
) -> Result<Tail, Rejection> {
    for pattern in &wish.topics {
        if let Some(topic) = pattern.as_topic() {
            authorize(principal, Action::Read, Resource::Topic(&topic, None))?;
        } else if !principal.policy().allows_some(Action::Read, pattern) {
            return Err(Rejection::plain(Code::Forbidden));
        }
    }
    let opts = &wish.opts;
    // What the client does not name was made while it was away, and is new from its first event on.
    let is_resumed = kind == Kind::Again && !opts.after.is_empty();
    let usual = if is_resumed { From::Earliest } else { From::default() };
    let begin = match opts.from.unwrap_or(usual) {
        From::Latest => Begin::Latest,
        From::Earliest => Begin::Earliest,
        From::Ts => Begin::At(opts.ts.unwrap_or(Timestamp::from_millis(0))),
        From::AfterId => Begin::AfterId(opts.after_id.ok_or_else(|| needs("after_id"))?),
    };
    let reader = match opts.reads.map(reads) {
        None | Some(Reads::Written) => None,
        Some(reads) => Some(edge.bus.reader(reads).await?),
    };
    let wish = TailWish {
        topics: wish.topics.clone(),
        begin,
        after: opts.after.clone(),
        filter,
        principal: principal.clone(),
        reader,
    };
    Tail::start(Arc::clone(edge), wish).await
}

const fn reads(form: ReadsForm) -> Reads {
    match form {
        ReadsForm::Version(version) => Reads::Version(version),
        ReadsForm::Named(NamedForm::Latest) => Reads::Latest,
        ReadsForm::Named(NamedForm::Written) => Reads::Written,
    }
}

fn needs(member: &str) -> Rejection {
    Rejection::new(Code::BadRequest, format!("opts needs {member:?} with that \"from\""))
}
