//! Which rows a claim takes, in the claim's transaction.

use std::collections::{HashMap, HashSet};

use mongodb::ClientSession;
use mongodb::bson::raw::{RawDocument, RawDocumentBuf};
use mongodb::bson::{Bson, DateTime, Document, doc};
use promethean::outbox::limits::HOLD_MAX;
use promethean::outbox::{AfterDead, OrderKey};

use super::handle::{HELD_KEYS, MongoOutbox, OPEN};
use super::row;
use crate::fault::Fault;

/// What may be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) rows: usize,
    pub(super) after_dead: AfterDead,
    /// The server's time.
    pub(super) now: DateTime,
}

impl Wish {
    /// What is held for longer than this from now was written under another clock, and is free.
    fn horizon(&self) -> DateTime {
        DateTime::from_millis(self.now.timestamp_millis().saturating_add(row::span(HOLD_MAX)))
    }

    fn is_free(&self) -> Bson {
        Bson::Array(vec![
            Bson::Document(doc! { "not_before": null }),
            Bson::Document(doc! { "not_before": { "$lte": self.now } }),
            Bson::Document(doc! { "not_before": { "$gt": self.horizon() } }),
        ])
    }

    fn holds(&self) -> Document {
        let waits = doc! {
            "dead_at": null, "not_before": { "$gt": self.now, "$lte": self.horizon() },
        };
        match self.after_dead {
            AfterDead::Wait => doc! { "$or": [waits, { "dead_at": { "$type": "date" } }] },
            AfterDead::GoOn => waits,
        }
    }
}

/// Rows that are being chosen.
#[derive(Debug, Default)]
struct Choice {
    rows: Vec<RawDocumentBuf>,
    /// Keys that were looked at, each with the place of its first held row.
    held: HashMap<OrderKey, Option<i64>>,
    places: HashSet<i64>,
}

impl Choice {
    /// Keys of a page that nothing is known of yet.
    fn unknown<'a>(&self, page: impl Iterator<Item = &'a RawDocumentBuf>) -> HashSet<OrderKey> {
        page.filter_map(|row| row::order(row)).filter(|key| !self.held.contains_key(key)).collect()
    }

    fn take(&mut self, found: RawDocumentBuf) {
        let place = row::place_of(found.get_timestamp("added").ok());
        let order = row::order(&found);
        let first = order.and_then(|key| self.held.get(&key).copied().flatten());
        // A place is what a row is marked by: one row of each is enough for one claim.
        if first.is_none_or(|first| place < first) && self.places.insert(place) {
            self.rows.push(found);
        }
    }

    /// Keys whose first held row is before everything to come: none of their rows can be taken.
    fn stopped(&self) -> Vec<Document> {
        let stopped = self.held.iter().filter(|(_, first)| first.is_some());
        stopped.map(|(OrderKey { topic, key }, _)| doc! { "topic": topic, "key": key }).collect()
    }
}

/// Rows that may be claimed, in order.
pub(super) async fn select(
    outbox: &MongoOutbox,
    session: &mut ClientSession,
    wish: Wish,
) -> Result<Vec<RawDocumentBuf>, Fault> {
    let mut choice = Choice::default();
    let mut after = None;
    loop {
        let page = page(outbox, session, wish, (&choice, after)).await?;
        let unknown = choice.unknown(page.iter());
        look_up(outbox, session, wish, (&mut choice, unknown)).await?;
        let (is_last, last) = (page.len() < wish.rows, page.last().map(|row| added(row)));
        for row in page {
            if choice.rows.len() < wish.rows {
                choice.take(row);
            }
        }
        if is_last || choice.rows.len() >= wish.rows {
            return Ok(choice.rows);
        }
        after = last;
    }
}

fn added(row: &RawDocument) -> Bson {
    let added = row.get("added").ok().flatten();
    added.and_then(|added| Bson::try_from(added).ok()).unwrap_or(Bson::Null)
}

async fn page(
    outbox: &MongoOutbox,
    session: &mut ClientSession,
    wish: Wish,
    (choice, after): (&Choice, Option<Bson>),
) -> Result<Vec<RawDocumentBuf>, Fault> {
    let mut filter = doc! { "sent_at": null, "dead_at": null, "$or": wish.is_free() };
    let stopped = choice.stopped();
    if !stopped.is_empty() {
        filter.insert("$nor", stopped);
    }
    if let Some(after @ Bson::Timestamp(_)) = after {
        filter.insert("added", doc! { "$gt": after });
    } else if after.is_some() {
        // Those that no server has placed come first, and are done with.
        filter.insert("added", doc! { "$type": "timestamp" });
    }
    let limit = i64::try_from(wish.rows).unwrap_or(i64::MAX);
    let hint = mongodb::options::Hint::Name(OPEN.to_owned());
    let find = outbox.rows.find(filter).sort(doc! { "added": 1 }).limit(limit).hint(hint);
    let mut cursor = find.session(&mut *session).await?;
    let mut rows = Vec::new();
    while let Some(row) = cursor.next(session).await.transpose()? {
        rows.push(row);
    }
    Ok(rows)
}

/// Finds out what is held of some keys.
async fn look_up(
    outbox: &MongoOutbox,
    session: &mut ClientSession,
    wish: Wish,
    (choice, keys): (&mut Choice, HashSet<OrderKey>),
) -> Result<(), Fault> {
    if keys.is_empty() {
        return Ok(());
    }
    let topics: HashSet<&str> = keys.iter().map(|key| key.topic.as_str()).collect();
    let mut filter = wish.holds();
    filter.insert("held", true);
    filter.insert("topic", doc! { "$in": topics.into_iter().collect::<Vec<_>>() });
    let names: Vec<_> = keys.iter().map(|key| key.key.as_str()).collect();
    filter.insert("key", doc! { "$in": names });
    let hint = mongodb::options::Hint::Name(HELD_KEYS.to_owned());
    let find = outbox.rows.find(filter).projection(doc! { "topic": 1, "key": 1, "added": 1 });
    let mut cursor = find.hint(hint).session(&mut *session).await?;
    choice.held.extend(keys.into_iter().map(|key| (key, None)));
    while let Some(row) = cursor.next(session).await.transpose()? {
        let place = row::place_of(row.get_timestamp("added").ok());
        if let Some(first) = row::order(&row).and_then(|key| choice.held.get_mut(&key)) {
            *first = Some(first.map_or(place, |earlier: i64| earlier.min(place)));
        }
    }
    Ok(())
}
