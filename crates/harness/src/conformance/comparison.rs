//! Two stores, the same calls, by chance and from a seed: what they answer must be the same, and
//! so must be what they hold in the end. One of them is the model.

use std::fmt::Debug;
use std::sync::Arc;

use promethean::store::{
    Append, Cleaning, Compaction, Expectation, GroupSave, KeyQuery, Lane, LaneDelta, Put, Store,
    Stored, TopicDefinition, TopicId,
};
use promethean_delivery::{Change, Span};
use promethean_event::{
    EventId, GroupName, Key, NewEvent, Offset, Partition, PartitionCount, Payload, Timestamp, Topic,
};

use super::check::Check;
use super::factory::{Ending, StoreFactory};
use super::scene::read_lane;
use crate::log_simulation::Random;

/// A store under comparison.
struct Side<'a> {
    factory: &'a dyn StoreFactory,
    store: Arc<dyn Store>,
    ids: Vec<TopicId>,
}

/// What may be in a topic of the comparison.
struct Kind {
    name: &'static str,
    partitions: u32,
    cleaning: Cleaning,
}

const KINDS: [Kind; 3] = [
    Kind { name: "plain", partitions: 1, cleaning: KEEP },
    Kind { name: "aging", partitions: 3, cleaning: Cleaning { age_ms_max: Some(500), ..KEEP } },
    Kind { name: "keyed", partitions: 2, cleaning: Cleaning { compaction: COMPACTED, ..KEEP } },
];
const KEEP: Cleaning = Cleaning { age_ms_max: None, bytes_max: None, compaction: None };
const COMPACTED: Option<Compaction> = Some(Compaction { age_ms_min: 0, tombstone_ms: 0 });
const GROUPS: [&str; 3] = ["one", "two", "three"];

/// One call, the same for both.
#[derive(Debug, Clone)]
enum Call {
    Append { events: Vec<NewEvent>, expect: Option<(usize, u64)> },
    Find { topic: usize, id: EventId },
    Latest { topic: usize, keys: Vec<Key> },
    History { topic: usize, key: Key, max: usize },
    OffsetAt { topic: usize, time: Timestamp },
    Save { group: GroupName, begin: bool, topic: usize, version: u64, letter: Option<NewEvent> },
    RemoveGroup(GroupName),
    Put(Vec<Put>),
    Clean { hold: Option<(usize, u64)> },
    Pass(u64),
    Restart(Ending),
}

/// Makes `steps` calls by chance on a store of each factory; `model` never restarts.
pub async fn compare(
    subject: &dyn StoreFactory,
    model: &dyn StoreFactory,
    seed: u64,
    steps: usize,
) -> Check {
    let mut random = Random::new(seed);
    let mut subject = Side::open(subject).await?;
    let mut model = Side::open(model).await?;
    let mut calls = Calls::default();
    for step in 0..steps {
        let call = calls.next(&mut random)?;
        let expected = model.call(&call).await?;
        let found = subject.call(&call).await?;
        ensure_same!(found, expected, "seed {seed}, step {step}, {call:?}");
        if let Call::Clean { .. } | Call::Restart(_) = call {
            same_contents(&subject, &model).await.map_err(|violation| {
                format!("seed {seed}, step {step}, after {call:?}: {violation}")
            })?;
        }
    }
    same_contents(&subject, &model)
        .await
        .map_err(|violation| format!("seed {seed}: {violation}"))?;
    Ok(())
}

impl<'a> Side<'a> {
    async fn open(factory: &'a dyn StoreFactory) -> Check<Self> {
        let store = factory.open().await?;
        let mut ids = Vec::new();
        for Kind { name, partitions, cleaning } in KINDS {
            let partitions = PartitionCount::new(partitions)?;
            let topic = Topic::new(name)?;
            ids.push(store.define(TopicDefinition { topic, partitions, cleaning }).await?);
        }
        Ok(Self { factory, store, ids })
    }

    fn topic(&self, number: usize) -> Check<TopicId> {
        Ok(*self.ids.get(number).ok_or("no such topic")?)
    }

    fn lane(&self, number: usize) -> Check<Lane> {
        Ok(Lane { topic: self.topic(number)?, partition: Partition::ZERO })
    }

    /// Makes a call, and gives what it answered as text that is the same for both.
    async fn call(&mut self, call: &Call) -> Check<String> {
        let store = Arc::clone(&self.store);
        Ok(match call.clone() {
            Call::Append { events, expect } => {
                let expectation = |(topic, next)| -> Check<Expectation> {
                    Ok(Expectation { lane: self.lane(topic)?, next: Offset::new(next) })
                };
                let expect = expect.map(expectation).transpose()?.into_iter().collect();
                let appended = store.append(Append { events, expect, ..Append::default() }).await;
                said(appended.map(|appended| {
                    let place =
                        |r: &promethean::store::Receipt| (r.lane.partition, r.offset, r.duplicate);
                    let places: Vec<_> = appended.receipts.iter().map(place).collect();
                    (places, appended.appended_at)
                }))
            }
            Call::Find { topic, id } => said(
                store.find(self.topic(topic)?, id).await.map(|found| found.as_ref().map(shown)),
            ),
            Call::Latest { topic, keys } => {
                let found = store.latest(self.topic(topic)?, keys).await;
                said(found.map(|found| {
                    found.iter().map(|found| alive(found.as_ref())).collect::<Vec<_>>()
                }))
            }
            Call::History { topic, key, max } => {
                let found = store.history(self.topic(topic)?, key, max).await;
                said(found.map(|found| found.iter().map(shown).collect::<Vec<_>>()))
            }
            Call::OffsetAt { topic, time } => said(store.offset_at(self.lane(topic)?, time).await),
            Call::Save { group, begin, topic, version, letter } => {
                let changes = vec![
                    Change::Floor(version * 3),
                    Change::Acked(Span { from: version * 3 + 1, to: version * 3 + 2 }),
                ];
                let settings = if begin { Some(Payload::of(&version)?) } else { None };
                let lanes = vec![(self.lane(topic)?, LaneDelta { version, changes })];
                let dead_letters = letter.into_iter().collect();
                let claims = Vec::new();
                said(store.save(GroupSave { group, settings, lanes, dead_letters, claims }).await)
            }
            Call::RemoveGroup(group) => said(store.remove_group(group).await),
            Call::Put(puts) => said(store.put(puts).await),
            Call::Clean { hold } => {
                let held = |(topic, offset)| -> Check<(Lane, Offset)> {
                    Ok((self.lane(topic)?, Offset::new(offset)))
                };
                let holds = hold.map(held).transpose()?.into_iter().collect();
                said(store.clean(holds).await)
            }
            Call::Pass(millis) => said::<_, String>(Ok(self.factory.pass(millis))),
            Call::Restart(ending) => {
                if let Some(reopened) = self.factory.reopen(store, ending).await? {
                    self.store = reopened;
                }
                String::new()
            }
        })
    }
}

/// The kind of an error is the same for both; its text need not be.
fn said<T: Debug, E: Debug>(result: Result<T, E>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => {
            let text = format!("{error:?}");
            let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).take(2).collect();
            format!("refused: {words:?}")
        }
    }
}

fn shown(stored: &Stored) -> String {
    format!("{:?} {:?}", stored.event, stored.appended_at)
}

/// A tombstone and nothing at all are the same: when the one becomes the other is up to a store.
fn alive(stored: Option<&Stored>) -> Option<String> {
    stored.filter(|stored| !stored.event.payload.is_tombstone()).map(shown)
}

async fn same_contents(subject: &Side<'_>, model: &Side<'_>) -> Check {
    for (number, kind) in KINDS.iter().enumerate() {
        for partition in 0..kind.partitions {
            let lane = |side: &Side<'_>| -> Check<Lane> {
                Ok(Lane { topic: side.topic(number)?, partition: Partition::new(partition) })
            };
            let (at, model_at) = (lane(subject)?, lane(model)?);
            let bounds = subject.store.bounds(at).await?;
            ensure_same!(bounds, model.store.bounds(model_at).await?, "bounds in {}", kind.name);
            let mut found = read_lane(&*subject.store, at).await?;
            let expected = read_lane(&*model.store, model_at).await?;
            if kind.cleaning.compaction.is_some() {
                // A store may compact later than the model, but not more.
                found.retain(|stored| {
                    expected.iter().any(|known| known.event.offset == stored.event.offset)
                });
            }
            let found: Vec<_> = found.iter().map(shown).collect();
            let expected: Vec<_> = expected.iter().map(shown).collect();
            ensure_same!(found, expected, "events in {}", kind.name);
        }
        let live = |side| live_keys(side, number);
        let (found, expected) = (live(subject).await?, live(model).await?);
        ensure_same!(found, expected, "the keys of {}", kind.name);
    }
    ensure_same!(subject.store.groups().await?, model.store.groups().await?, "the groups");
    for name in GROUPS {
        let (found, expected) = (subject.group(name).await?, model.group(name).await?);
        ensure_same!(found, expected, "group {name}");
    }
    let entries = subject.store.entries("things").await?;
    ensure_same!(entries, model.store.entries("things").await?, "the entries");
    Ok(())
}

async fn live_keys(side: &Side<'_>, number: usize) -> Check<Vec<String>> {
    let (topic, prefix) = (side.topic(number)?, String::new());
    let page = side.store.keys(KeyQuery { topic, prefix, after: None, max: 1000 }).await?;
    Ok(page.events.iter().filter_map(|stored| alive(Some(stored))).collect())
}

impl Side<'_> {
    async fn group(&self, name: &str) -> Check<Option<String>> {
        let Some(record) = self.store.group(GroupName::new(name)?).await? else { return Ok(None) };
        let mut lanes: Vec<_> = record
            .lanes
            .iter()
            .map(|(lane, state)| {
                let topic = self.ids.iter().position(|id| *id == lane.topic);
                (topic, lane.partition, state)
            })
            .collect();
        lanes.sort_by_key(|(topic, partition, _)| (*topic, *partition));
        Ok(Some(format!("{:?} {lanes:?}", record.settings)))
    }
}

/// Where calls come from.
#[derive(Debug, Default)]
struct Calls {
    /// Events that may be published again.
    published: Vec<NewEvent>,
    /// The last version tried, by group and topic.
    versions: std::collections::BTreeMap<(String, usize), u64>,
}

impl Calls {
    fn next(&mut self, random: &mut Random) -> Check<Call> {
        let topic = random.index(KINDS.len());
        Ok(match random.below(100) {
            0..40 => self.append(random)?,
            40..44 => {
                let known = self.published.get(random.index(self.published.len().max(1)));
                Call::Find { topic, id: known.map_or_else(EventId::generate, |event| event.id) }
            }
            44..50 => Call::Latest { topic, keys: vec![key(random)?, key(random)?] },
            // Of compacted topics each store may still have more than the other.
            50..54 => {
                let topic = topic.min(1);
                Call::History { topic, key: key(random)?, max: random.index(5) + 1 }
            }
            54..56 => {
                let time = Timestamp::from_millis(1_700_000_000_000 + random.below(20_000));
                Call::OffsetAt { topic: topic.min(1), time }
            }
            56..76 => self.save(random, topic)?,
            76..78 => Call::RemoveGroup(GroupName::new(random.pick::<&str>(&GROUPS))?),
            78..86 => Call::Put(puts(random)?),
            86..90 => {
                self.published.clear();
                let hold = random.chance(500).then(|| (topic, random.below(40)));
                Call::Clean { hold }
            }
            90..96 => Call::Pass(random.below(200)),
            96..98 => Call::Restart(Ending::Closed),
            _ => Call::Restart(Ending::Crashed),
        })
    }

    fn append(&mut self, random: &mut Random) -> Check<Call> {
        let mut events = Vec::new();
        for _ in 0..=random.below(4) {
            let again = random.chance(100) && !self.published.is_empty();
            let mut event = match self.published.get(random.index(self.published.len().max(1))) {
                Some(known) if again => known.clone(),
                _ => event(random)?,
            };
            if again && random.chance(200) {
                event.payload = Payload::of("other content")?;
            } else if !again {
                self.published.push(event.clone());
            }
            events.push(event);
        }
        let expect = random.chance(50).then(|| (random.index(KINDS.len()), random.below(60)));
        Ok(Call::Append { events, expect })
    }

    fn save(&mut self, random: &mut Random, topic: usize) -> Check<Call> {
        let name = *random.pick::<&str>(&GROUPS);
        let last = self.versions.entry((name.to_owned(), topic)).or_default();
        // Mostly the next one, sometimes one again, one left out, or from the beginning.
        let version = match random.below(20) {
            0 => (*last).max(1),
            1 => *last + 2,
            2 => 1,
            _ => *last + 1,
        };
        *last = version;
        let letter = if random.chance(200) { Some(event(random)?) } else { None };
        let begin = random.chance(300);
        Ok(Call::Save { group: GroupName::new(name)?, begin, topic, version, letter })
    }
}

fn key(random: &mut Random) -> Check<Key> {
    Ok(Key::new(format!("k{}", random.below(6)))?)
}

fn event(random: &mut Random) -> Check<NewEvent> {
    let kind = random.pick(&KINDS);
    let payload = match random.below(8) {
        0 => Payload::null(),
        _ => Payload::of(&random.next().to_string().repeat(random.index(6) + 1))?,
    };
    let (id, ts) = (EventId::generate(), Timestamp::from_millis(random.below(1000)));
    let mut event = NewEvent::new(id, ts, Topic::new(kind.name)?, payload);
    if random.chance(800) {
        event.key = Some(key(random)?);
    }
    Ok(event)
}

fn puts(random: &mut Random) -> Check<Vec<Put>> {
    let mut puts = Vec::new();
    for _ in 0..random.below(3) {
        let value = if random.chance(300) { None } else { Some(Payload::of(&random.below(100))?) };
        let expect = random.chance(300).then(|| random.below(4));
        puts.push(Put { space: "things", key: key(random)?, value, expect });
    }
    Ok(puts)
}
