//! Decides what is published together, and what an answer means for each row.
//!
//! Rows that never failed go in one publish, which is one sync. A row that has failed goes alone,
//! and so that the rows of its key do not overtake it, they go in the same [`Part`], one after the
//! other. Parts have no key in common and are published side by side: one that hangs holds up no
//! other.

use std::collections::{HashMap, HashSet, VecDeque};

use promethean_event::NewEvent;

use super::backoff::Backoff;
use super::limits::CHUNK_BYTES_MAX;
use super::options::{AfterDead, DrainOptions};
use super::table::{OrderKey, Outcome, Row, Settlement};
use super::target::{Culprit, PublishError, Remedy};

/// What becomes of failures.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    backoff: Backoff,
    max_attempts: Option<u32>,
    after_dead: AfterDead,
    worker: String,
}

impl Rules {
    pub(super) fn new(options: &DrainOptions, worker: &str) -> Self {
        Self {
            backoff: options.backoff(),
            max_attempts: options.max_attempts,
            after_dead: options.after_dead,
            worker: worker.to_owned(),
        }
    }
}

/// A row that can be published.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    seq: i64,
    attempts: u32,
    order: Option<OrderKey>,
    pub(super) event: NewEvent,
}

/// Rows that are published one chunk after the other.
#[derive(Debug, Default)]
pub(super) struct Part {
    chunks: VecDeque<Vec<Row>>,
    /// Keys that stop, each from the row on that failed.
    stopped: HashMap<OrderKey, i64>,
    settled: Vec<Settlement>,
}

/// Divides claimed rows, which are in order, into parts.
pub(super) fn divide(rows: Vec<Row>) -> Vec<Part> {
    let suspects: HashSet<OrderKey> =
        rows.iter().filter(|row| row.attempts > 0).filter_map(|row| row.order.clone()).collect();
    let mut together = Part::default();
    let mut alone = Vec::new();
    let mut by_key: HashMap<OrderKey, usize> = HashMap::new();
    let mut bytes = 0;
    for row in rows {
        match &row.order {
            Some(order) if suspects.contains(order) => {
                let at = *by_key.entry(order.clone()).or_insert_with(|| {
                    alone.push(Part::default());
                    alone.len() - 1
                });
                if let Some(part) = alone.get_mut(at) {
                    part.chunks.push_back(vec![row]);
                }
            }
            None if row.attempts > 0 => {
                alone.push(Part { chunks: [vec![row]].into(), ..Part::default() });
            }
            _ => {
                let size = size(&row);
                bytes += size;
                match together.chunks.back_mut().filter(|_| bytes <= CHUNK_BYTES_MAX) {
                    Some(chunk) => chunk.push(row),
                    None => {
                        bytes = size;
                        together.chunks.push_back(vec![row]);
                    }
                }
            }
        }
    }
    if !together.chunks.is_empty() {
        alone.push(together);
    }
    alone
}

fn size(row: &Row) -> usize {
    let payload = |event: &NewEvent| event.payload.as_bytes().len();
    // Headers and the rest are mostly small; what is too large after all is cut in halves.
    row.content.as_ref().map_or(0, payload)
}

impl Part {
    /// What to publish next; nothing if all rows are settled.
    pub(super) fn next(&mut self, rules: &Rules) -> Option<Vec<Ready>> {
        while let Some(chunk) = self.chunks.pop_front() {
            let mut ready = Vec::with_capacity(chunk.len());
            for Row { seq, attempts, order, content } in chunk {
                match content {
                    _ if self.is_stopped(order.as_ref(), seq) => {
                        self.settle(seq, Outcome::Released)
                    }
                    Ok(event) => ready.push(Ready { seq, attempts, order, event }),
                    Err(malformed) => self.bury(seq, order, malformed.to_string(), rules),
                }
            }
            if !ready.is_empty() {
                return Some(ready);
            }
        }
        None
    }

    /// Takes the answer to what was published.
    pub(super) fn answer(
        &mut self,
        published: Vec<Ready>,
        result: Result<(), &PublishError>,
        rules: &Rules,
    ) {
        let Err(error) = result else {
            for row in published {
                self.settle(row.seq, Outcome::Sent);
            }
            return;
        };
        let (remedy, culprit) = error.judge();
        let is_culprit = |row: &Ready| match &culprit {
            Culprit::All => true,
            Culprit::Unnamed => false,
            Culprit::Id(id) => row.event.id == *id,
            Culprit::Topic(topic) => row.event.topic == *topic,
        };
        let (mut culprits, mut others): (Vec<_>, Vec<_>) =
            published.into_iter().partition(is_culprit);
        if culprits.is_empty() && others.len() == 1 {
            culprits.append(&mut others);
        }
        if culprits.is_empty() {
            // One of them, but which? Two halves, the earlier one first, tell.
            let later = others.split_off(others.len() / 2);
            self.chunks.push_front(later.into_iter().map(Row::from).collect());
            self.chunks.push_front(others.into_iter().map(Row::from).collect());
            return;
        }
        for row in culprits {
            self.fail(row, remedy, error, rules);
        }
        self.chunks.push_front(others.into_iter().map(Row::from).collect());
        if remedy == Remedy::Outage {
            self.release();
        }
    }

    /// Gives back what was not published.
    pub(super) fn release(&mut self) {
        for row in std::mem::take(&mut self.chunks).into_iter().flatten() {
            self.settle(row.seq, Outcome::Released);
        }
    }

    /// What has been decided since the last time.
    pub(super) fn take_settled(&mut self) -> Vec<Settlement> {
        std::mem::take(&mut self.settled)
    }

    fn fail(&mut self, row: Ready, remedy: Remedy, error: &PublishError, rules: &Rules) {
        if self.is_stopped(row.order.as_ref(), row.seq) {
            return self.settle(row.seq, Outcome::Released);
        }
        let attempts = row.attempts.saturating_add(1);
        let worn_out = rules.max_attempts.is_some_and(|max| attempts >= max);
        if remedy == Remedy::Park || (remedy == Remedy::Again && worn_out) {
            return self.bury(row.seq, row.order, error.to_string(), rules);
        }
        let delay = rules.backoff.delay(attempts, &rules.worker, row.seq);
        self.settle(row.seq, Outcome::Again { delay, error: error.to_string() });
        self.stop(row.order, row.seq);
    }

    fn bury(&mut self, seq: i64, order: Option<OrderKey>, error: String, rules: &Rules) {
        self.settle(seq, Outcome::Dead { error });
        if rules.after_dead == AfterDead::Wait {
            self.stop(order, seq);
        }
    }

    fn settle(&mut self, seq: i64, outcome: Outcome) {
        self.settled.push(Settlement { seq, outcome });
    }

    fn stop(&mut self, order: Option<OrderKey>, from: i64) {
        if let Some(order) = order {
            let earliest = self.stopped.entry(order).or_insert(from);
            *earliest = from.min(*earliest);
        }
    }

    fn is_stopped(&self, order: Option<&OrderKey>, seq: i64) -> bool {
        order.and_then(|order| self.stopped.get(order)).is_some_and(|from| seq >= *from)
    }
}

impl From<Ready> for Row {
    fn from(Ready { seq, attempts, order, event }: Ready) -> Self {
        Self { seq, attempts, order, content: Ok(event) }
    }
}
