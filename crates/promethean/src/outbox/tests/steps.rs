//! Drainers taken apart into their steps, which are run in any order, with a crash possible after
//! each, against a model.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::super::claims;
use super::super::parts::{Part, Ready, Rules, divide};
use super::super::target::PublishError;
use super::super::{AfterDead, row, schema};
use super::super::{Claim, Settlement};
use super::*;
use crate::store::AppendError;

const LEASE: Duration = Duration::from_secs(1);

/// What a drainer holds in its memory, and a crash takes.
#[derive(Default)]
struct Memory {
    token: String,
    parts: Vec<Part>,
    /// Published from a part, with the answer.
    answered: Option<(usize, Vec<Ready>, Result<(), PublishError>)>,
    decided: Vec<Settlement>,
}

/// The store, the database, and the drainers.
struct World {
    connection: Connection,
    now: Timestamp,
    options: DrainOptions,
    drainers: [Option<Memory>; 3],
    tokens: u32,
    added: Vec<NewEvent>,
    poison: HashSet<EventId>,
    /// The one log of the store.
    stored: Vec<NewEvent>,
    under_way: Vec<Vec<NewEvent>>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Add { key: u8, poisoned: bool, commit: bool },
    Go { drainer: usize, choice: u16 },
    Crash { drainer: usize },
    Stop { drainer: usize },
    Renew { drainer: usize },
    Pass { millis: u64 },
    Land,
    Purge,
    Retry { choice: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8, prop::bool::weighted(0.1), prop::bool::weighted(0.9))
            .prop_map(|(key, poisoned, commit)| Step::Add { key, poisoned, commit }),
        12 => (0..3_usize, any::<u16>()).prop_map(|(drainer, choice)| Step::Go { drainer, choice }),
        1 => (0..3_usize).prop_map(|drainer| Step::Crash { drainer }),
        1 => (0..3_usize).prop_map(|drainer| Step::Stop { drainer }),
        1 => (0..3_usize).prop_map(|drainer| Step::Renew { drainer }),
        3 => prop_oneof![Just(10_u64), Just(300), Just(1_100)]
            .prop_map(|millis| Step::Pass { millis }),
        2 => Just(Step::Land),
        1 => Just(Step::Purge),
        1 => (0..8_usize).prop_map(|choice| Step::Retry { choice }),
    ]
}

impl World {
    fn new(after_dead: AfterDead) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        schema::install(&connection).unwrap();
        let options = DrainOptions {
            batch: 4,
            lease: LEASE,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_millis(800),
            after_dead,
            ..DrainOptions::default()
        };
        Self {
            connection,
            now: Timestamp::from_millis(1_000_000),
            options,
            drainers: [None, None, None],
            tokens: 0,
            added: Vec::new(),
            poison: HashSet::new(),
            stored: Vec::new(),
            under_way: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Add { key, poisoned, commit } => self.add(key, poisoned, commit),
            Step::Go { drainer, choice } => self.go(drainer, choice),
            Step::Crash { drainer } => self.drainers[drainer] = None,
            Step::Stop { drainer } => {
                if self.drainers[drainer].take().is_some() {
                    claims::give_back(&self.connection, &format!("w{drainer}")).unwrap();
                }
            }
            Step::Renew { drainer } => {
                if let Some(memory) = &self.drainers[drainer] {
                    let until = claims::later(self.now, LEASE);
                    claims::renew(&self.connection, &memory.token, until).unwrap();
                }
            }
            Step::Pass { millis } => self.now = self.now.plus_millis(millis),
            Step::Land => {
                if !self.under_way.is_empty() {
                    let events = self.under_way.remove(0);
                    self.store(&events);
                }
            }
            Step::Purge => {
                claims::purge(&self.connection, self.now, 3).unwrap();
            }
            Step::Retry { choice } => {
                self.connection
                    .execute(
                        "UPDATE promethean_outbox SET dead_at = NULL, not_before = 0, attempts = 0
                         WHERE dead_at IS NOT NULL AND seq % 8 = ?1",
                        [choice as i64],
                    )
                    .unwrap();
            }
        }
    }

    fn add(&mut self, key: u8, poisoned: bool, commit: bool) {
        let event = event(self.added.len() as u32, ["", "a", "b", "c"][usize::from(key)]);
        let tx = self.connection.transaction().unwrap();
        assert!(row::insert(&tx, &event, self.now).unwrap());
        if commit {
            tx.commit().unwrap();
            if poisoned {
                self.poison.insert(event.id);
            }
            self.added.push(event);
        }
    }

    /// The next step of a drainer, whichever it is.
    fn go(&mut self, drainer: usize, choice: u16) {
        let worker = format!("w{drainer}");
        let rules = Rules::new(&self.options, &worker);
        let Some(mut memory) = self.drainers[drainer].take() else {
            return self.claim(drainer, worker);
        };
        if !memory.decided.is_empty() {
            let decided = std::mem::take(&mut memory.decided);
            claims::settle(&mut self.connection, self.now, &memory.token, &decided).unwrap();
        } else if let Some((part, ready, result)) = memory.answered.take() {
            memory.parts[part].answer(ready, result.as_ref().copied(), &rules);
            memory.decided = memory.parts[part].take_settled();
        } else {
            let count = memory.parts.len();
            let at = (0..count).map(|n| (n + usize::from(choice)) % count);
            let next = at.into_iter().find_map(|at| Some((at, memory.parts[at].next(&rules)?)));
            memory.decided = memory.parts.iter_mut().flat_map(Part::take_settled).collect();
            match next {
                Some((at, ready)) => {
                    let result = self.publish(&ready, choice);
                    memory.answered = Some((at, ready, result));
                }
                None if memory.decided.is_empty() => return,
                None => {}
            }
        }
        self.drainers[drainer] = Some(memory);
    }

    fn claim(&mut self, drainer: usize, worker: String) {
        self.tokens += 1;
        let claim = Claim {
            token: format!("t{}", self.tokens),
            worker,
            rows: self.options.batch,
            lease: LEASE,
            after_dead: self.options.after_dead,
        };
        let rows = claims::claim(&mut self.connection, self.now, &claim).unwrap();
        let parts = divide(rows);
        if !parts.is_empty() {
            self.drainers[drainer] =
                Some(Memory { token: claim.token, parts, ..Memory::default() });
        }
    }

    fn publish(&mut self, ready: &[Ready], choice: u16) -> Result<(), PublishError> {
        let events: Vec<_> = ready.iter().map(|row| row.event.clone()).collect();
        if let Some(bad) = events.iter().find(|event| self.poison.contains(&event.id)) {
            let (topic, id) = (bad.topic.clone(), bad.id);
            return Err(match choice / 8 % 2 {
                0 => AppendError::IdConflict { topic, id }.into(),
                _ => AppendError::TooLarge { events: events.len(), bytes: 0 }.into(),
            });
        }
        match choice % 8 {
            0 => Err(AppendError::Unavailable("away".into()).into()),
            1 => {
                self.store(&events);
                Err(AppendError::Indeterminate("cut off".into()).into())
            }
            2 => {
                self.under_way.push(events);
                Err(PublishError::NoAnswer(LEASE))
            }
            _ => {
                self.store(&events);
                Ok(())
            }
        }
    }

    fn store(&mut self, events: &[NewEvent]) {
        for event in events {
            if !self.stored.iter().any(|stored| stored.id == event.id) {
                self.stored.push(event.clone());
            }
        }
    }

    fn check(&self) {
        let numbers: HashSet<_> = self.stored.iter().map(number).collect();
        assert_eq!(numbers.len(), self.stored.len(), "stored twice");
        let stored: HashSet<_> = self.stored.iter().map(|event| event.id.to_string()).collect();
        let mut rows = HashMap::new();
        let mut statement =
            self.connection.prepare_cached("SELECT id, sent_at FROM promethean_outbox").unwrap();
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.extend(found.map(Result::<(String, Option<i64>), _>::unwrap));
        for event in &self.added {
            let id = event.id.to_string();
            // No row: purged.
            let marked = rows.get(&id).is_none_or(Option::is_some);
            assert!(!marked || stored.contains(&id), "{event:?} is lost");
        }
        for key in ["a", "b", "c"] {
            let of_key = |event: &&NewEvent| event.key.as_ref().is_some_and(|k| k.as_str() == key);
            let stored: Vec<_> = self.stored.iter().filter(of_key).map(|event| event.id).collect();
            let due = self.due().into_iter().filter(|event| of_key(event)).map(|event| event.id);
            let due: Vec<_> = due.collect();
            assert!(due.starts_with(&stored), "key {key}: {stored:?} of {due:?}");
        }
    }

    /// What should be stored in the end, in the order of adding.
    fn due(&self) -> Vec<&NewEvent> {
        let mut stopped = HashSet::new();
        let mut due = Vec::new();
        for event in &self.added {
            let stops = event.key.is_some() && self.options.after_dead == AfterDead::Wait;
            if self.poison.contains(&event.id) {
                if stops {
                    stopped.insert(event.key.clone());
                }
            } else if !stopped.contains(&event.key) {
                due.push(event);
            }
        }
        due
    }

    /// Everything is well from now on, but what was under way may still land.
    fn come_to_rest(&mut self) {
        for round in 0.. {
            assert!(round < 5_000, "it does not come to rest");
            self.go(0, 7);
            self.check();
            if round % 10 == 0 {
                self.take(Step::Land);
            }
            if self.drainers[0].is_none() {
                self.now = self.now.plus_millis(100);
                let after_dead = self.options.after_dead;
                let more = claims::is_any(&self.connection, self.now, after_dead).unwrap()
                    || claims::next_free(&self.connection, self.now).unwrap().is_some();
                if !more && self.under_way.is_empty() {
                    break;
                }
            }
        }
        let stored: HashSet<_> = self.stored.iter().map(|event| event.id).collect();
        let due: HashSet<_> = self.due().iter().map(|event| event.id).collect();
        assert_eq!(stored, due, "what is stored is what should be");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_order_of_steps_keeps_the_promises(
        steps in prop::collection::vec(step(), 1..160),
        go_on in any::<bool>(),
    ) {
        let mut world = World::new(if go_on { AfterDead::GoOn } else { AfterDead::Wait });
        for step in steps {
            world.take(step);
            world.check();
        }
        world.come_to_rest();
    }
}
