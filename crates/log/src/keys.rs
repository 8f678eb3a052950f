//! All keys of a topic in order, each with its newest event.

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_event::Key;

use crate::engine::{Engine, Segment};
use crate::error::ReadError;
use crate::index::SegmentIndex;
use crate::segment::Record;
use crate::topic::TopicId;

/// Keys taken from each segment at once.
const KEYS_MAX: usize = 512;

/// Streams the keys of a topic. Memory does not grow with the number of keys.
#[derive(Debug)]
pub struct KeyReader {
    engine: Arc<Engine>,
    topic: TopicId,
    prefix: String,
    /// The last key given out.
    after: Option<String>,
    page_keys: usize,
    done: bool,
}

impl KeyReader {
    pub(crate) fn new(engine: Arc<Engine>, topic: TopicId, prefix: &str) -> Self {
        Self {
            engine,
            topic,
            prefix: prefix.to_owned(),
            after: None,
            page_keys: KEYS_MAX,
            done: false,
        }
    }

    /// Begins behind a key.
    #[must_use]
    pub fn after(mut self, key: &Key) -> Self {
        self.after = Some(key.as_str().to_owned());
        self
    }

    /// With so many keys to a page at most. Default 512, which is also the limit.
    #[must_use]
    pub fn with_page(mut self, keys: usize) -> Self {
        self.page_keys = keys.clamp(1, KEYS_MAX);
        self
    }

    /// The next keys in order, as their newest events (tombstones included); empty at the end.
    pub fn next_page(&mut self) -> Result<Vec<Record>, ReadError> {
        while !self.done {
            let (sealed, active) = {
                let state = self.engine.read();
                (state.sealed.clone(), self.active_keys(&state)?)
            };
            // A key may be in several segments; where each was read up to bounds what is known.
            let mut keys: BTreeMap<String, ()> = BTreeMap::new();
            let mut bound: Option<String> = None;
            for segment in &sealed {
                let (found, more) = self.keys_in(segment)?;
                if more && let Some(last) = found.last() {
                    bound =
                        Some(bound.map_or_else(|| last.clone(), |known| known.min(last.clone())));
                }
                keys.extend(found.into_iter().map(|key| (key, ())));
            }
            keys.extend(active.into_iter().map(|key| (key, ())));
            let known = |key: &String| bound.as_ref().is_none_or(|bound| key <= bound);
            let page: Vec<String> =
                keys.into_keys().take_while(known).take(self.page_keys).collect();
            self.done = page.is_empty();
            self.after = page.last().cloned().or_else(|| self.after.take());
            let mut records = Vec::with_capacity(page.len());
            for key in &page {
                records.extend(self.engine.latest(self.topic, key)?);
            }
            if !records.is_empty() {
                return Ok(records);
            }
        }
        Ok(Vec::new())
    }

    fn wanted(&self, key: &str) -> bool {
        key.starts_with(&self.prefix) && self.after.as_deref().is_none_or(|after| key > after)
    }

    fn active_keys(&self, state: &crate::engine::State) -> Result<Vec<String>, ReadError> {
        let mut keys = Vec::new();
        let place = state.active.place();
        for position in state.active.index.newest_of_keys() {
            let record = match state.tail.get(state.active.name, position) {
                Some(bytes) => Record::decode(place.salt, &bytes),
                None => place.record(position)?,
            };
            let record = record.ok_or_else(|| place.damaged(position))?;
            if record.lane().topic == self.topic
                && let Some(key) = record.key().filter(|key| self.wanted(key))
            {
                keys.push(key.to_owned());
            }
        }
        Ok(keys)
    }

    /// The next keys of a segment in order, and whether there are more.
    fn keys_in(&self, segment: &Arc<Segment>) -> Result<(Vec<String>, bool), ReadError> {
        if let SegmentIndex::Memory(_) = segment.index {
            let rebuilt = self.engine.rebuild(segment)?;
            return self.keys_in_side(&rebuilt);
        }
        self.keys_in_side(segment)
    }

    fn keys_in_side(&self, segment: &Arc<Segment>) -> Result<(Vec<String>, bool), ReadError> {
        let topic = self.topic.get().to_be_bytes();
        let start = self.after.as_ref().map_or(self.prefix.as_str(), |after| after.as_str());
        let from = [&topic[..], start.max(self.prefix.as_str()).as_bytes()].concat();
        let wanted_prefix = [&topic[..], self.prefix.as_bytes()].concat();
        self.engine.ask(segment, |index| {
            let SegmentIndex::Side(side) = index else {
                return Ok((Vec::new(), false));
            };
            let mut scan = side.keys_from(&from)?;
            let mut keys = Vec::new();
            while let Some(entry) = scan.next()? {
                if !entry.composite.starts_with(&wanted_prefix) {
                    if entry.composite < wanted_prefix {
                        continue;
                    }
                    return Ok((keys, false));
                }
                let key = entry.composite.get(4..).and_then(|key| std::str::from_utf8(key).ok());
                keys.extend(key.filter(|key| self.wanted(key)).map(str::to_owned));
                if keys.len() == KEYS_MAX {
                    return Ok((keys, true));
                }
            }
            Ok((keys, false))
        })
    }
}
