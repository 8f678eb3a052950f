//! Documents of views. The members of the value stand beside those of the system's, so that they
//! can be queried; where they would not give the same text back, the text is kept as well.

use mongodb::bson::raw::{CString, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use mongodb::bson::{cstr, rawdoc};
use promethean::projection::view_store::{DatabaseError, Stamp, StoredRow};
use promethean_event::{Offset, Payload, Timestamp, Topic};

use super::record::{lane_number, lane_of};
use crate::document::{date, print_members, signed, unsigned, value_of};

/// Members that are the system's.
pub(super) const SYSTEM: [&str; 6] = ["_id", "_key", "_ts", "_pos", "_v", "_meta"];
/// The member that a value is kept in which is not an object.
pub(super) const BARE: &str = "value";

fn is_system(name: &str) -> bool {
    SYSTEM.contains(&name)
}

/// The document of a key.
pub(super) fn encode(key: &str, stamp: &Stamp, topic: &Topic, value: &Payload) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), key);
    document.append(cstr!("_key"), key);
    document.append(cstr!("_ts"), signed(stamp.ts));
    let position = format!("{topic}/{}/{}", stamp.lane.partition.get(), stamp.offset);
    document.append(cstr!("_pos"), position);
    if let Some(version) = stamp.version {
        document.append(cstr!("_v"), version);
    }
    let mut meta = meta(stamp);
    let (members, is_whole) = match value_of(value) {
        Some((RawBson::Document(members), is_exact)) => {
            let is_whole =
                is_exact && !members.iter().flatten().any(|(n, _)| is_system(n.as_str()));
            (members, is_whole)
        }
        Some((bare, is_exact)) => {
            meta.append(cstr!("bare"), true);
            let mut members = RawDocumentBuf::new();
            members.append(cstr!("value"), bare);
            (members, is_exact)
        }
        None => (RawDocumentBuf::new(), false),
    };
    if !is_whole {
        meta.append(cstr!("json"), value.as_str());
    }
    document.append(cstr!("_meta"), meta);
    for (name, member) in members.iter().flatten().filter(|(name, _)| !is_system(name.as_str())) {
        document.append(CString::from(name), RawBson::from(member));
    }
    document
}

fn meta(stamp: &Stamp) -> RawDocumentBuf {
    let at = date(Timestamp::from_millis(stamp.at));
    rawdoc! { "at": at, "lane": lane_number(stamp.lane), "offset": signed(stamp.offset.get()) }
}

/// What is read of a document to decide whether a write is newer.
pub(super) fn stamp(document: &RawDocument) -> Option<Stamp> {
    let meta = document.get_document("_meta").ok()?;
    Some(Stamp {
        ts: document.get_i64("_ts").map(unsigned).unwrap_or(0),
        at: unsigned(meta.get_datetime("at").ok()?.timestamp_millis()),
        lane: lane_of(meta.get_i64("lane").ok()?),
        offset: Offset::new(unsigned(meta.get_i64("offset").ok()?)),
        version: document.get_i64("_v").ok(),
    })
}

/// Whether a document is one that [`encode`] has made.
pub(crate) fn is_row(document: &RawDocument) -> bool {
    let has = |name: &str| document.get_str(name).is_ok();
    has("_key") && has("_pos") && stamp(document).is_some()
}

/// The row in a document.
pub(super) fn decode(document: &RawDocument) -> Result<StoredRow, DatabaseError> {
    let key = document.get_str("_key").unwrap_or("?");
    let unreadable = || {
        let why = "was changed by somebody else and cannot be read; build the view anew";
        DatabaseError::Refused(format!("the document of {key:?} {why}"))
    };
    let stamp = stamp(document).ok_or_else(unreadable)?;
    let meta = document.get_document("_meta").map_err(|_| unreadable())?;
    let value = match (meta.get_str("json"), meta.get_bool("bare")) {
        (Ok(text), _) => Some(Payload::from_stored(text.to_owned().into())),
        (Err(_), Ok(true)) => {
            let bare = document.get(BARE).ok().flatten();
            bare.and_then(|bare| crate::document::restore(bare).ok())
        }
        (Err(_), _) => members(document),
    };
    Ok(StoredRow {
        key: key.to_owned(),
        ts: Timestamp::from_millis(stamp.ts),
        appended_at: Timestamp::from_millis(stamp.at),
        lane: stamp.lane,
        offset: stamp.offset,
        version: stamp.version,
        value: value.ok_or_else(unreadable)?,
    })
}

fn members(document: &RawDocument) -> Option<Payload> {
    let members: Result<Vec<(&str, RawBsonRef<'_>)>, _> =
        document.iter().map(|member| member.map(|(name, value)| (name.as_str(), value))).collect();
    let members = members.ok()?.into_iter().filter(|(name, _)| !is_system(name));
    print_members(members).ok()
}

#[cfg(test)]
mod tests {
    use promethean::store::{Lane, TopicId};
    use promethean_event::Partition;

    use super::*;

    fn stored(text: &str) -> (RawDocumentBuf, StoredRow) {
        let lane = Lane { topic: TopicId::new(7), partition: Partition::new(3) };
        let stamp = Stamp { ts: 5, at: 6, lane, offset: Offset::new(9), version: Some(-2) };
        let value = Payload::parse(text.to_owned()).unwrap();
        let document = encode("k", &stamp, &Topic::new("a.b").unwrap(), &value);
        let row = decode(&document).unwrap();
        assert!(is_row(&document), "{text}");
        assert_eq!(row.value, value, "{text}");
        assert_eq!((row.lane, row.offset.get(), row.version), (lane, 9, Some(-2)));
        (document, row)
    }

    #[test]
    fn documents_of_others_are_no_rows() {
        let (document, _) = stored("{}");
        for missing in ["_key", "_pos", "_meta"] {
            let mut other = mongodb::bson::Document::try_from(document.clone()).unwrap();
            other.remove(missing);
            assert!(!is_row(&RawDocumentBuf::try_from(&other).unwrap()), "{missing}");
        }
    }

    #[test]
    fn what_can_be_queried_stands_beside_and_all_of_it_comes_back() {
        let (document, _) = stored(r#"{"host":"h","pid":7,"in":{"a":[1,null]}}"#);
        assert_eq!(document.get_str("_pos").unwrap(), "a.b/3/9");
        assert_eq!(document.get_i32("pid").unwrap(), 7);
        assert!(document.get_document("_meta").unwrap().get_str("json").is_err());
        // Spelled otherwise, or with names of the system's: the text is kept, the rest is there.
        for text in [r#"{"host":"h","cpu":1.50}"#, r#"{"_id":{"a":1},"host":"h","_meta":2}"#] {
            let (document, _) = stored(text);
            assert_eq!(document.get_str("host").unwrap(), "h");
            assert_eq!(document.get_document("_meta").unwrap().get_str("json").unwrap(), text);
        }
        for text in ["1", "[1,2]", "\"x\"", "1e5", "{}", r#"{"value":1}"#, r#"{"$set":1}"#] {
            stored(text);
        }
    }
}
