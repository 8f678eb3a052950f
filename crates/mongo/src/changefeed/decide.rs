//! What becomes of a change. Neither a server nor a clock is in here.

use bytes::Bytes;
use mongodb::bson::raw::{RawBsonRef, RawDocument};
use promethean::Formula;
use promethean_event::limits::{KEY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use promethean_event::{EventId, Headers, Key, NewEvent, Payload, Timestamp};
use serde_json::{Value, json};

use super::change::{Change, Op};
use super::guard;
use super::key;
use crate::document::canonical;
use promethean::changefeed::ClusterTime;
use promethean::changefeed::Feed;

/// What happened: `insert`, `update`, `replace`, `delete` or `snapshot`.
pub const HEADER_OP: &str = "x-mongo-op";
/// When, by the server's clock: seconds since 1970, a dot, and a number within the second.
pub const HEADER_CLUSTER_TIME: &str = "x-mongo-cluster-time";
/// `looked-up` if the document is the one that MongoDB had when the change was read, which may be
/// newer than the change.
pub const HEADER_DOCUMENT: &str = "x-mongo-document";
/// Bytes of a document that is too large for an event: the payload holds nothing but its `_id`.
pub const HEADER_OVERSIZE: &str = "x-mongo-oversize";

/// What becomes of a change.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Decision {
    /// Several if the document has got another key.
    Publish(Vec<NewEvent>),
    LeaveOut,
    /// From here on the collection is another one: somebody has to say how to go on.
    Close(String),
    /// The stream ends here, and begins anew after it.
    BeginAnew,
}

/// Whose document it is, and where its event comes from.
struct Origin<'a> {
    op: &'a str,
    at: ClusterTime,
    ts: u64,
    /// What the event's id is made of, besides the feed's name.
    seed: &'a [u8],
    domain: &'a str,
}

/// Decides on a change. An error is a reason to stop: nothing is left out because of it.
pub(super) fn decide(feed: &Feed, change: &Change<'_>) -> Result<Decision, String> {
    match change.op {
        Op::Drop => Ok(close(feed, change, "the collection was dropped")),
        Op::Rename if change.collection == Some(&feed.collection) => {
            Ok(close(feed, change, "the collection was renamed"))
        }
        Op::Rename => Ok(close(feed, change, "another collection was given its name")),
        Op::Invalidate => Ok(Decision::BeginAnew),
        Op::Other => Ok(Decision::LeaveOut),
        Op::Insert | Op::Update | Op::Replace | Op::Delete => decide_document(feed, change),
    }
}

/// What was published of the collection before would stay without tombstones, and what the next one
/// begins with would never come.
fn close(feed: &Feed, change: &Change<'_>, what: &str) -> Decision {
    let name = &feed.name;
    Decision::Close(format!(
        "{what} at {}; what was published stays in the topic, and what the collection of that name has \
         now comes by order only: prom changefeed resume {name} --recover resnapshot (without \
         --recover: what changes in it from then on)",
        change.at
    ))
}

fn decide_document(feed: &Feed, change: &Change<'_>) -> Result<Decision, String> {
    let id = change.id.ok_or("a change of a document has no _id")?;
    if guard::is_ours(change.document.or(change.before)) {
        return Ok(Decision::LeaveOut);
    }
    let is_delete = change.op == Op::Delete;
    if !is_delete && change.document.is_none() {
        // It is gone by now; the delete comes.
        return Ok(Decision::LeaveOut);
    }
    if is_delete && change.before.is_none() && feed.needs_pre_images() {
        let id = key::text_of(id).map_err(|error| error.to_string())?;
        return Err(format!(
            "the delete of document {id} at {} came without a pre-image, which its key is made of: \
             it has expired, or the collection kept none at that time",
            change.at
        ));
    }
    let op = change.op.name();
    let origin = Origin {
        op,
        at: change.at,
        ts: change.millis.unwrap_or(change.at.millis()),
        seed: change.token.as_bytes(),
        domain: "mongo changefeed",
    };
    let values = Values::of(change.document.filter(|_| !is_delete), change.before, id, op)?;
    let passes = |values: &Values| values.test(feed.filter.as_ref());
    // A delete tells what the document was only if the collection keeps that.
    let is_wanted = if is_delete && change.before.is_none() {
        true
    } else if is_delete {
        passes(&values.before_as_document())?
    } else {
        passes(&values)?
    };
    let has_left = !is_wanted
        && !is_delete
        && change.before.is_some()
        && passes(&values.before_as_document())?;
    if !is_wanted && !has_left {
        return Ok(Decision::LeaveOut);
    }
    // One that has left is taken from where it was, also if it has got another key at the same time.
    let values = if has_left { values.before_as_document() } else { values };
    let document = change.document.filter(|_| !is_delete && !has_left);
    let mut event = event(feed, &values, (id, document), &origin)?;
    if change.is_looked_up && document.is_some() {
        insert(&mut event.headers, HEADER_DOCUMENT, "looked-up")?;
    }
    let mut events = Vec::new();
    if document.is_some() && change.before.is_some() && feed.key.is_some() {
        events.extend(left_behind(feed, &values, &event, &origin)?);
    }
    events.push(event);
    Ok(Decision::Publish(events))
}

/// What takes the document from the key that it had, if that was another one.
fn left_behind(
    feed: &Feed,
    values: &Values,
    event: &NewEvent,
    origin: &Origin<'_>,
) -> Result<Option<NewEvent>, String> {
    let before = values.before_as_document();
    // What no expression could make anything of was not published, or on order passed over.
    let was_there = before.test(feed.filter.as_ref()).unwrap_or(false);
    let key = before.key(feed).ok().filter(|key| was_there && event.key.as_ref() != Some(key));
    let Some(key) = key else { return Ok(None) };
    let id = EventId::derived("mongo changefeed key left", &seed(feed, origin));
    let mut left = NewEvent::new(id, event.ts, feed.topic.clone(), Payload::null());
    insert(&mut left.headers, HEADER_OP, origin.op)?;
    insert(&mut left.headers, HEADER_CLUSTER_TIME, &origin.at.to_string())?;
    Ok(Some(left.with_key(key)))
}

/// What the ids of its events are made of.
fn seed(feed: &Feed, origin: &Origin<'_>) -> Vec<u8> {
    let mut seed = feed.name.as_bytes().to_vec();
    seed.push(0);
    seed.extend_from_slice(origin.seed);
    seed
}

/// The event of a document that was there when the feed began; none if it is left out.
pub(super) fn of_snapshot(
    feed: &Feed,
    document: &RawDocument,
    (since, run): (ClusterTime, u64),
) -> Result<Option<NewEvent>, String> {
    let id = document.get("_id").ok().flatten().ok_or("a document has no _id")?;
    if guard::is_ours(Some(document)) {
        return Ok(None);
    }
    let values = Values::of(Some(document), None, id, "snapshot")?;
    if !values.test(feed.filter.as_ref())? {
        return Ok(None);
    }
    // Each document once in a snapshot, whatever it holds: one that was changed since it was published
    // comes by the stream, and whoever reads an old one late cannot put it behind a newer one. Each
    // snapshot by itself: the topic may have come to something else since the one before.
    let mut seed = run.to_be_bytes().to_vec();
    seed.extend_from_slice(&since.seconds.to_be_bytes());
    seed.extend_from_slice(&since.increment.to_be_bytes());
    seed.extend_from_slice(key::text_of(id).map_err(|error| error.to_string())?.as_bytes());
    let origin = Origin {
        op: "snapshot",
        at: since,
        ts: since.millis(),
        seed: &seed,
        domain: "mongo changefeed snapshot",
    };
    event(feed, &values, (id, Some(document)), &origin).map(Some)
}

fn event(
    feed: &Feed,
    values: &Values,
    (id, document): (RawBsonRef<'_>, Option<&RawDocument>),
    origin: &Origin<'_>,
) -> Result<NewEvent, String> {
    let mut headers = Headers::default();
    insert(&mut headers, HEADER_OP, origin.op)?;
    insert(&mut headers, HEADER_CLUSTER_TIME, &origin.at.to_string())?;
    let payload = match (document, &feed.map) {
        (None, _) => Payload::null(),
        (Some(document), None) => {
            let text = canonical(RawBsonRef::Document(document)).map_err(|e| e.to_string())?;
            sized(text, id, &mut headers)?
        }
        (Some(_), Some(map)) => {
            let text = serde_json::to_string(&values.evaluate(map)?);
            sized(text.map_err(|error| error.to_string())?, id, &mut headers)?
        }
    };
    let event_id = EventId::derived(origin.domain, &seed(feed, origin));
    let ts = Timestamp::from_millis(origin.ts);
    let mut event = NewEvent::new(event_id, ts, feed.topic.clone(), payload);
    event.headers = headers;
    Ok(event.with_key(values.key(feed)?))
}

fn sized(text: String, id: RawBsonRef<'_>, headers: &mut Headers) -> Result<Payload, String> {
    if text.len() > PAYLOAD_BYTES_MAX {
        insert(headers, HEADER_OVERSIZE, &text.len().to_string())?;
        return stub(id);
    }
    Payload::parse(Bytes::from(text)).map_err(|error| error.to_string())
}

fn stub(id: RawBsonRef<'_>) -> Result<Payload, String> {
    let id = canonical(id).map_err(|error| error.to_string())?;
    Payload::parse(Bytes::from(format!("{{\"_id\":{id}}}"))).map_err(|error| error.to_string())
}

fn insert(headers: &mut Headers, name: &str, value: &str) -> Result<(), String> {
    headers.insert(name, value).map_err(|error| error.to_string())
}

/// What expressions speak of.
struct Values([Value; 4]);

impl Values {
    fn of(
        document: Option<&RawDocument>,
        before: Option<&RawDocument>,
        id: RawBsonRef<'_>,
        op: &str,
    ) -> Result<Self, String> {
        let value = |document: Option<&RawDocument>| -> Result<Value, String> {
            let Some(document) = document else { return Ok(Value::Null) };
            let text = canonical(RawBsonRef::Document(document)).map_err(|e| e.to_string())?;
            serde_json::from_str(&text).map_err(|error| error.to_string())
        };
        let key = key::text_of(id).map_err(|error| error.to_string())?;
        Ok(Self([value(document)?, value(before)?, json!(key), json!(op)]))
    }

    fn before_as_document(&self) -> Self {
        let [_, before, key, op] = self.0.clone();
        Self([before.clone(), before, key, op])
    }

    fn evaluate(&self, formula: &Formula) -> Result<Value, String> {
        let [document, before, key, op] = &self.0;
        let value = formula.evaluate(&[document, before, key, op]);
        value.map_err(|why| format!("expression {:?}: {why}", formula.source()))
    }

    fn test(&self, filter: Option<&Formula>) -> Result<bool, String> {
        let Some(filter) = filter else { return Ok(true) };
        match self.evaluate(filter)? {
            Value::Bool(passes) => Ok(passes),
            other => Err(format!(
                "the filter must be true or false, and is {other}: {:?}",
                filter.source()
            )),
        }
    }

    fn key(&self, feed: &Feed) -> Result<Key, String> {
        let [document, _, id, _] = &self.0;
        let text = match &feed.key {
            None => id.as_str().unwrap_or_default().to_owned(),
            Some(formula) => {
                // A document that is gone, or has left, is known by what it was.
                let known = if document.is_null() {
                    self.before_as_document()
                } else {
                    Self(self.0.clone())
                };
                match known.evaluate(formula)? {
                    Value::String(text) => text,
                    Value::Null => return Err(format!("the key of {id} is null")),
                    other => other.to_string(),
                }
            }
        };
        let bounded = if text.len() > KEY_BYTES_MAX {
            // Longer than a key may be: the same text has the same digest.
            EventId::derived("mongo changefeed key", text.as_bytes()).to_string()
        } else {
            text
        };
        Key::new(bounded.as_str()).map_err(|error| format!("the key {bounded:?}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::raw::RawDocumentBuf;
    use mongodb::bson::{Timestamp as Stamp, rawdoc};

    use super::super::change::Images;
    use super::*;
    use promethean::changefeed::Definition;

    fn feed(change: impl FnOnce(&mut Definition)) -> Feed {
        let mut definition = Definition {
            url: String::new(),
            collection: "shop.orders".into(),
            topic: "orders.changed".into(),
            key: None,
            filter: None,
            map: None,
            snapshot: true,
        };
        change(&mut definition);
        definition.feed("orders").unwrap()
    }

    fn raw(op: &str, parts: &RawDocumentBuf) -> RawDocumentBuf {
        let mut raw = rawdoc! {
            "_id": { "_data": "8265" }, "operationType": op,
            "clusterTime": Stamp { time: 17, increment: 3 },
        };
        for part in parts {
            let (name, value) = part.unwrap();
            raw.append(name, mongodb::bson::raw::RawBson::from(value));
        }
        raw
    }

    fn decided(feed: &Feed, op: &str, parts: &RawDocumentBuf) -> Result<Decision, String> {
        let raw = raw(op, parts);
        decide(feed, &Change::read(&raw, Images::LookedUp).unwrap())
    }

    fn published(decision: Result<Decision, String>) -> NewEvent {
        match decision.unwrap() {
            Decision::Publish(mut events) if events.len() == 1 => events.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Pitfalls 115, 123.
    #[test]
    fn a_delete_is_a_tombstone_with_headers_of_lower_case() {
        let gone =
            published(decided(&feed(|_| {}), "delete", &rawdoc! { "documentKey": { "_id": 7 } }));
        assert!(gone.payload.is_tombstone());
        assert_eq!(gone.key.as_ref().unwrap().as_str(), "7");
        let headers: Vec<_> = gone.headers.iter().collect();
        assert_eq!(headers, [("x-mongo-op", "delete"), ("x-mongo-cluster-time", "17.3")]);
    }

    /// Pitfall 116.
    #[test]
    fn looked_up_documents_are_marked() {
        let parts = rawdoc! { "documentKey": { "_id": 7 }, "fullDocument": { "_id": 7, "n": 1 } };
        let event = published(decided(&feed(|_| {}), "update", &parts));
        assert_eq!(event.headers.get(HEADER_DOCUMENT), Some("looked-up"));
        assert_eq!(event.payload.as_str(), r#"{"_id":7,"n":1}"#);
        let event = published(decided(&feed(|_| {}), "insert", &parts));
        assert_eq!(event.headers.get(HEADER_DOCUMENT), None);
        let gone = rawdoc! { "documentKey": { "_id": 7 }, "fullDocument": null };
        assert_eq!(decided(&feed(|_| {}), "update", &gone), Ok(Decision::LeaveOut));
    }

    /// Pitfall 117.
    #[test]
    fn what_is_not_about_documents_is_told() {
        let feed = feed(|_| {});
        let told = |op: &str, parts: &RawDocumentBuf| match decided(&feed, op, parts).unwrap() {
            Decision::Close(text) => text,
            other => panic!("{other:?}"),
        };
        assert!(told("drop", &rawdoc! {}).contains("was dropped at 17.3"));
        let away = rawdoc! { "ns": { "db": "shop", "coll": "orders" } };
        assert!(told("rename", &away).contains("was renamed"));
        let here = rawdoc! { "ns": { "db": "shop", "coll": "tmp.agg_out.1" } };
        assert!(told("rename", &here).contains("given its name"));
        assert!(told("drop", &rawdoc! {}).contains("resume orders --recover resnapshot"));
        assert_eq!(decided(&feed, "invalidate", &rawdoc! {}), Ok(Decision::BeginAnew));
        assert_eq!(decided(&feed, "createIndexes", &rawdoc! {}), Ok(Decision::LeaveOut));
    }

    /// Pitfall 120.
    #[test]
    fn the_same_change_has_the_same_id() {
        let parts = rawdoc! { "documentKey": { "_id": 7 }, "fullDocument": { "_id": 7 } };
        let newer = rawdoc! { "documentKey": { "_id": 7 }, "fullDocument": { "_id": 7, "n": 2 } };
        let one = published(decided(&feed(|_| {}), "update", &parts));
        assert_eq!(one.id, published(decided(&feed(|_| {}), "update", &newer)).id);
        let mut other = feed(|_| {});
        other.name = "other".into();
        assert_ne!(one.id, published(decided(&other, "update", &parts)).id);
    }

    /// Pitfalls 120, 123: read again it is the same; in another snapshot, or of another document, it
    /// is not.
    #[test]
    fn a_document_has_one_id_in_a_snapshot() {
        let id = |document: &RawDocumentBuf, at: (u32, u64)| {
            let since = ClusterTime { seconds: at.0, increment: 1 };
            of_snapshot(&feed(|_| {}), document, (since, at.1)).unwrap().unwrap().id
        };
        let one = rawdoc! { "_id": 7, "n": 1 };
        let first = id(&one, (17, 0));
        assert_eq!(id(&rawdoc! { "_id": 7, "n": 2 }, (17, 0)), first);
        assert_ne!(id(&rawdoc! { "_id": 8, "n": 1 }, (17, 0)), first);
        assert_ne!(id(&one, (18, 0)), first);
        assert_ne!(id(&one, (17, 1)), first);
    }

    /// Pitfall 122.
    #[test]
    fn what_we_wrote_ourselves_is_left_out() {
        let parts = rawdoc! {
            "documentKey": { "_id": 7 },
            "fullDocument": { "_id": 7, "_origin": "promethean:orders" },
        };
        assert_eq!(decided(&feed(|_| {}), "insert", &parts), Ok(Decision::LeaveOut));
    }

    #[test]
    fn filters_and_maps_see_the_document() {
        let feed = feed(|feed| {
            feed.filter = Some("document.n > 1".into());
            feed.map = Some("{'twice': document.n * 2, 'op': op}".into());
        });
        let parts = |n: i32| rawdoc! { "documentKey": { "_id": 7 }, "fullDocument": { "n": n } };
        assert_eq!(decided(&feed, "insert", &parts(1)), Ok(Decision::LeaveOut));
        let event = published(decided(&feed, "insert", &parts(2)));
        let value: Value = event.payload.decode().unwrap();
        assert_eq!(value, json!({ "twice": 4, "op": "insert" }));
        let missing = rawdoc! { "documentKey": { "_id": 7 }, "fullDocument": {} };
        assert!(decided(&feed, "insert", &missing).is_err(), "left out for a mistake");
    }

    #[test]
    fn a_document_that_leaves_the_filter_is_a_tombstone() {
        let feed = feed(|feed| feed.filter = Some("document.open".into()));
        let parts = rawdoc! {
            "documentKey": { "_id": 7 }, "fullDocument": { "open": false },
            "fullDocumentBeforeChange": { "open": true },
        };
        assert!(published(decided(&feed, "update", &parts)).payload.is_tombstone());
        let gone = rawdoc! {
            "documentKey": { "_id": 7 }, "fullDocumentBeforeChange": { "open": false },
        };
        assert_eq!(decided(&feed, "delete", &gone), Ok(Decision::LeaveOut));
    }

    /// It left the filter's key undecided, or made one of nothing: a tombstone of another key is
    /// worse than none.
    #[test]
    fn a_delete_without_its_document_has_no_key_of_it() {
        let gone = rawdoc! { "documentKey": { "_id": 7 } };
        for key in ["document.who", "has(document.who) ? document.who : key"] {
            let feed = feed(|feed| feed.key = Some(key.into()));
            let why = decided(&feed, "delete", &gone).unwrap_err();
            assert!(why.contains("document 7") && why.contains("pre-image"), "{why}");
        }
        let by_id = feed(|feed| feed.key = Some("'item-' + key".into()));
        let event = published(decided(&by_id, "delete", &gone));
        assert_eq!(event.key.unwrap().as_str(), "item-7");
    }

    /// What was published by its old key stayed there for ever.
    #[test]
    fn a_document_that_gets_another_key_leaves_the_old_one() {
        let feed = feed(|feed| {
            feed.key = Some("document.who".into());
            feed.filter = Some("document.open".into());
        });
        let parts = |was_open: bool, who: &str| {
            rawdoc! {
                "documentKey": { "_id": 7 }, "fullDocument": { "who": who, "open": true },
                "fullDocumentBeforeChange": { "who": "ann", "open": was_open },
            }
        };
        let Decision::Publish(events) = decided(&feed, "update", &parts(true, "bob")).unwrap()
        else {
            panic!("not published");
        };
        let told: Vec<_> = events
            .iter()
            .map(|event| (event.key.as_ref().unwrap().as_str(), event.payload.is_tombstone()))
            .collect();
        assert_eq!(told, [("ann", true), ("bob", false)]);
        assert_ne!(events[0].id, events[1].id);
        // It leaves the filter and its key at once.
        let left = rawdoc! {
            "documentKey": { "_id": 7 }, "fullDocument": { "who": "bob", "open": false },
            "fullDocumentBeforeChange": { "who": "ann", "open": true },
        };
        let left = published(decided(&feed, "update", &left));
        assert_eq!((left.key.unwrap().as_str(), left.payload.is_tombstone()), ("ann", true));
        // It was not there before, had no key that could be made, or is where it was.
        let unkeyed = rawdoc! {
            "documentKey": { "_id": 7 }, "fullDocument": { "who": "bob", "open": true },
            "fullDocumentBeforeChange": { "open": true },
        };
        published(decided(&feed, "update", &unkeyed));
        published(decided(&feed, "update", &parts(false, "bob")));
        published(decided(&feed, "update", &parts(true, "ann")));
    }

    #[test]
    fn what_is_too_large_is_a_stub() {
        let text = "x".repeat(PAYLOAD_BYTES_MAX);
        let parts = rawdoc! { "documentKey": { "_id": 7 }, "fullDocument": { "text": text } };
        let event = published(decided(&feed(|_| {}), "insert", &parts));
        assert_eq!(event.payload.as_str(), r#"{"_id":7}"#);
        assert!(event.headers.get(HEADER_OVERSIZE).is_some());
    }
}
