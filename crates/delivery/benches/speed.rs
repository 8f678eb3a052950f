//! What a decision costs: `cargo bench -p promethean-delivery`. In time that this thread was on a
//! processor, so that other work on the machine does not count.
#![expect(clippy::print_stdout, reason = "printing the figures is what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to say")]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use promethean_delivery::{
    Ack, Deliver, Fetch, Found, Group, GroupOptions, Input, LaneId, LanePlace, LaneStart, MemberId,
    MemberOptions, Ordered, Output, Page, RequestId, Span, StartFrom, assign,
};

const EVENTS: u64 = 1_000_000;

fn main() {
    a_million_events_from_fetch_to_ack();
    ten_thousand_members_and_a_hundred_thousand_lanes();
    ten_thousand_idle_groups();
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures real time; the group itself is given a constant one"
)]
fn time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let (begin, on_cpu) = (Instant::now(), cpu_time());
    let result = work();
    let took = match (on_cpu, cpu_time()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => begin.elapsed(),
    };
    (result, took)
}

/// How long this thread has been running, where the system says so: other work on the machine
/// is none of our business.
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// How the consumer acks.
#[derive(Clone, Copy, Debug)]
enum Style {
    Ranges,
    Tokens,
}

/// A consumer that acks what it gets, a log that is all there, and a store that is done at once.
struct Race {
    group: Group,
    keys: u64,
    style: Style,
    page: Vec<Found>,
    acks: Vec<Ack>,
    acked: u64,
    saves: u64,
}

const LANE: LaneId = LaneId::new(1);
const MEMBER: MemberId = MemberId::new(1);

impl Race {
    fn answer(&mut self, fetch: Fetch, outputs: &mut Vec<Output>) {
        let to = (fetch.from + u64::from(fetch.max)).min(EVENTS);
        let keys = self.keys;
        self.page.clear();
        self.page.extend((fetch.from..to).map(|offset| Found {
            offset,
            key: Some((offset % keys).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            bytes: 250,
            skip: false,
        }));
        let page = Page {
            lane: LANE,
            fetch: fetch.fetch,
            from: fetch.from,
            to,
            events: &self.page,
            gaps: &[],
        };
        self.group.step(1, Input::Fetched(page), outputs);
    }

    fn ack(&mut self, deliver: &Deliver, outputs: &mut Vec<Output>) {
        self.acked += deliver.count();
        self.acks.clear();
        let tokens = deliver.events().map(|event| deliver.token(event));
        match self.style {
            Style::Tokens => self.acks.extend(tokens.map(Ack::Token)),
            Style::Ranges => {
                self.acks.extend(deliver.runs.iter().map(|run| Ack::Range {
                    lane: LANE,
                    epoch: deliver.epoch,
                    span: Span { from: run.from, to: run.to },
                }));
            }
        }
        let input = Input::Ack { member: MEMBER, request: RequestId::new(1), items: &self.acks };
        self.group.step(1, input, outputs);
    }

    fn run(&mut self) {
        let mut outputs = Vec::new();
        let start = LaneStart { lane: LANE, tail: EVENTS, from: StartFrom::Offset(0) };
        self.group.step(0, Input::LaneAdded(start), &mut outputs);
        let joined = Input::Joined { member: MEMBER, options: MemberOptions::default() };
        self.group.step(0, joined, &mut outputs);
        let mut work = VecDeque::from(std::mem::take(&mut outputs));
        while let Some(output) = work.pop_front() {
            match output {
                Output::Fetch(fetch) => self.answer(fetch, &mut outputs),
                Output::Deliver(deliver) => self.ack(&deliver, &mut outputs),
                Output::Save(save) => {
                    self.saves += 1;
                    let number = save.number;
                    self.group.step(1, Input::Saved { number }, &mut outputs);
                }
                _ => {}
            }
            work.extend(outputs.drain(..));
        }
    }
}

fn race(ordered: Ordered, keys: u64, style: Style) {
    let options = GroupOptions { ordered, ..GroupOptions::default() };
    let mut race = Race {
        group: Group::new(options, 1).unwrap(),
        keys,
        style,
        page: Vec::new(),
        acks: Vec::new(),
        acked: 0,
        saves: 0,
    };
    let ((), took) = time(|| race.run());
    let nanos = took.as_nanos() as f64 / EVENTS as f64;
    assert_eq!(race.acked, EVENTS);
    assert_eq!(race.group.status(LANE).unwrap().floor, EVENTS);
    let saves = race.saves;
    println!("{ordered:?} keys={keys} {style:?}: {nanos:.0} ns per event, {saves} saves");
}

fn a_million_events_from_fetch_to_ack() {
    for style in [Style::Ranges, Style::Tokens] {
        for keys in [EVENTS, 1_000, 50] {
            race(Ordered::Key, keys, style);
        }
        race(Ordered::None, EVENTS, style);
    }
}

fn places(owners: &[Option<usize>]) -> Vec<LanePlace> {
    let all = owners.iter().enumerate();
    all.map(|(lane, holder)| LanePlace { lane: lane as u64, holder: *holder }).collect()
}

fn ten_thousand_members_and_a_hundred_thousand_lanes() {
    let members: Vec<u64> = (0..10_000).collect();
    let (first, took) = time(|| assign(&places(&vec![None; 100_000]), &members));
    println!("first assignment: {took:?}");
    let joined: Vec<u64> = (0..10_001).collect();
    let (second, took) = time(|| assign(&places(&first), &joined));
    let moved = first.iter().zip(&second).filter(|(a, b)| a != b).count();
    println!("one joins: {took:?}, {moved} moved");
    assert!(moved <= 10);
    let kept = |owner: &Option<usize>| owner.filter(|owner| *owner > 0).map(|owner| owner - 1);
    let left: Vec<Option<usize>> = second.iter().map(kept).collect();
    let (third, took) = time(|| assign(&places(&left), joined.get(1..).unwrap_or_default()));
    let moved = left.iter().zip(&third).filter(|(a, b)| a != b).count();
    println!("one leaves: {took:?}, {moved} moved");
    assert!(moved <= 11);
}

fn ten_thousand_idle_groups() {
    let resident = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * 4_096
    };
    let before = resident();
    let mut groups = Vec::new();
    for number in 0..10_000u64 {
        let mut outputs = Vec::new();
        let mut group = Group::new(GroupOptions::default(), number).unwrap();
        let start = LaneStart { lane: LaneId::new(number), tail: 0, from: StartFrom::Offset(0) };
        group.step(0, Input::LaneAdded(start), &mut outputs);
        let joined =
            Input::Joined { member: MemberId::new(number), options: MemberOptions::default() };
        group.step(0, joined, &mut outputs);
        group.step(0, Input::Saved { number: 1 }, &mut outputs);
        groups.push(group);
    }
    let each = (resident() - before) / 10_000;
    println!("{each} bytes per idle group");
    assert!(each < 8_192, "{each}");
    drop(groups);
}
