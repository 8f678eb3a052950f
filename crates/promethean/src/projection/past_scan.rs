//! A whole view as it was, in one way through the log: backward from the moment, so that the first
//! event of a key that counts is the one that stood then, and its document can go out at once.
//!
//! Of keys that the topic has lost, the topic's snapshot is looked at last, in the same way.
//!
//! What is remembered are the keys that were met. Where they are too many, half of them are left
//! for another way through.

use std::collections::HashMap;

use promethean_event::{Key, Offset};

use super::document::Document;
use super::past::{KeyFold, PastError};
use super::stamp::{Order, Write};
use super::views::Projection;
use crate::as_of::Moment;
use crate::snapshot::{Before, as_in_source, reaches, snapshot_topic};
use crate::store::{EventPage, Lane, LaneBounds, PageLimit, ReadError};

/// Offsets that are read at once.
const OFFSETS_AT_ONCE: u64 = 8_192;
const BYTES_AT_ONCE: usize = 4 * 1024 * 1024;
/// Keys that are looked at between two pieces of an answer, where each has to be looked up.
const KEYS_AT_ONCE: usize = 1_000;
/// Keys that are remembered at once: about 200 MiB.
const KEYS_MAX: usize = 4_000_000;

/// All documents of a view at a moment. They come in no order that means anything.
#[derive(Debug)]
pub struct PastScan {
    projection: Projection,
    view: String,
    moment: Moment,
    way: Way,
    keys_max: usize,
    unknown: u64,
    /// Whether no key can have vanished without a trace.
    is_certain: bool,
}

#[derive(Debug)]
enum Way {
    Backward {
        fold: KeyFold,
        parts: Vec<Part>,
    },
    /// Where the newest event does not decide, each key is folded for itself.
    ByKey {
        after: Option<Key>,
        is_over: bool,
    },
}

/// Some of the keys of a partition, on the way through its events.
#[derive(Debug)]
struct Part {
    lane: Lane,
    start: Offset,
    /// Behind the last event that counts.
    end: Offset,
    next: Offset,
    /// What is below has not been looked at.
    back: Offset,
    /// What is not below was shown on an earlier way.
    shown_from: Offset,
    /// How far one has looked for keys that only came after the moment; `None` if nothing of what
    /// was there before can be gone.
    ahead: Option<Offset>,
    /// Of what was lost: the snapshot.
    kept: Option<KeptLane>,
    class: Class,
    /// Keys that were met, and whether all that is known is that nothing is known.
    met: HashMap<u128, bool>,
}

/// The partition of a topic's snapshot, on the way through its states.
#[derive(Debug, Clone, Copy)]
struct KeptLane {
    lane: Lane,
    start: Offset,
    end: Offset,
    /// Which of its states count.
    before: Before,
    /// What is below has not been looked at.
    back: Offset,
    /// What is not below was shown on an earlier way.
    shown_from: Offset,
}

/// The keys whose hashes end in some bits.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    bits: u32,
    ending: u128,
}

impl Class {
    const fn has(self, hash: u128) -> bool {
        hash & ((1 << self.bits) - 1) == self.ending
    }

    const fn halves(self) -> [Self; 2] {
        let bits = self.bits + 1;
        [Self { bits, ending: self.ending }, Self { bits, ending: self.ending | 1 << self.bits }]
    }
}

impl Projection {
    /// All documents of a view at a moment.
    pub async fn scan_at(&self, view: &str, moment: Moment) -> Result<PastScan, PastError> {
        let fold = self.key_fold(view)?;
        let by_append = !matches!(moment, Moment::Happened(_));
        let (parts, is_certain) = self.parts(&fold, moment).await?;
        let way = if by_append && fold.order == Order::Offset {
            Way::Backward { parts, fold }
        } else {
            Way::ByKey { after: None, is_over: false }
        };
        let (projection, view, keys_max) = (self.clone(), view.to_owned(), KEYS_MAX);
        Ok(PastScan { projection, view, moment, way, keys_max, unknown: 0, is_certain })
    }

    /// The partitions, and whether no key can have vanished from them without a trace.
    async fn parts(&self, fold: &KeyFold, moment: Moment) -> Result<(Vec<Part>, bool), PastError> {
        let bus = &self.site.bus;
        let topics = bus.topics();
        let entry = topics.get(&fold.topic).ok_or(ReadError::UnknownLane)?;
        let compacted_until = bus.compacted_until(&entry.definition);
        let is_compacted = compacted_until.is_some();
        let name = snapshot_topic(&fold.topic).ok();
        let snapshot = name.and_then(|name| topics.get(&name));
        let reaches = match snapshot {
            Some(_) => reaches(bus, entry).await?,
            None => HashMap::new(),
        };
        let (mut parts, mut is_certain) = (Vec::new(), true);
        for lane in entry.lanes() {
            let bounds = bus.store().bounds(lane).await?;
            let end = bus.end_at(lane, moment).await?.unwrap_or(bounds.next).min(bounds.next);
            let may_be_gone = end > Offset::ZERO && (bounds.start > Offset::ZERO || is_compacted);
            let reach = reaches.get(&lane.partition).copied();
            let is_whole = bounds.start == Offset::ZERO
                || end > bounds.start && reach.is_some_and(|reach| reach >= bounds.start);
            // Of keys that were deleted since, nothing may be left: neither there nor in a snapshot.
            let is_young =
                matches!(moment, Moment::Appended(time) if Some(time) >= compacted_until);
            is_certain &= is_whole && (!is_compacted || end == bounds.next || is_young);
            let before = Before::new(moment, end, bounds.start);
            let kept = match snapshot.filter(|_| may_be_gone && reach.is_some()) {
                None => None,
                Some(snapshot) => {
                    let lane = Lane { topic: snapshot.id, partition: lane.partition };
                    let LaneBounds { start, next: end, .. } = bus.store().bounds(lane).await?;
                    Some(KeptLane { lane, start, end, before, back: end, shown_from: end })
                }
            };
            parts.push(Part {
                kept,
                lane,
                start: bounds.start,
                end: end.max(bounds.start),
                next: bounds.next,
                back: end.max(bounds.start),
                shown_from: end,
                ahead: may_be_gone.then_some(end.max(bounds.start)),
                class: Class::default(),
                met: HashMap::new(),
            });
        }
        Ok((parts, is_certain))
    }

    /// Events of a partition between two offsets, oldest first.
    async fn between(
        &self,
        lane: Lane,
        from: Offset,
        to: Offset,
    ) -> Result<Vec<EventPage>, ReadError> {
        let (mut pages, mut at) = (Vec::new(), from);
        while at < to {
            let events = usize::try_from(to.get() - at.get()).unwrap_or(usize::MAX);
            let limit = PageLimit { events, bytes: BYTES_AT_ONCE };
            let page = self.site.bus.store().fetch(lane, at, limit).await?;
            let next = page.next;
            pages.push(page);
            if next == at {
                break;
            }
            at = next;
        }
        Ok(pages)
    }
}

impl PastScan {
    /// How many keys are remembered at once. With fewer, the log is read more often.
    #[must_use]
    pub const fn keys_at_once(mut self, keys: usize) -> Self {
        self.keys_max = if keys == 0 { 1 } else { keys };
        self
    }

    /// Some documents; `None` when there are no more.
    pub async fn next(&mut self) -> Result<Option<Vec<Document>>, PastError> {
        match &mut self.way {
            Way::Backward { .. } => self.step_back().await,
            Way::ByKey { is_over: true, .. } => Ok(None),
            Way::ByKey { after, is_over } => {
                let (view, moment, after_key) = (&self.view, self.moment, after.take());
                let page = self.projection.at_keys(view, moment, after_key, KEYS_AT_ONCE).await?;
                *is_over = page.next.is_none();
                *after = page.next;
                self.unknown += page.unknown;
                Ok(Some(page.documents))
            }
        }
    }

    /// Keys of which nothing from before the moment is kept, so that what they were is not known.
    /// All of them once there are no more documents.
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Whether these are all documents there were, and as they were.
    pub const fn is_complete(&self) -> bool {
        self.is_certain && self.unknown == 0
    }

    async fn step_back(&mut self) -> Result<Option<Vec<Document>>, PastError> {
        let Way::Backward { fold, parts } = &mut self.way else {
            return Ok(None);
        };
        while let Some(part) = parts.last_mut() {
            let mut documents = Vec::new();
            if part.back > part.start {
                let below = part.back.get().saturating_sub(OFFSETS_AT_ONCE);
                let from = Offset::new(below).max(part.start);
                let pages = self.projection.between(part.lane, from, part.back).await?;
                documents = part.look_back(&pages, &self.projection, fold);
                part.back = from;
            } else if let Some(ahead) = part.ahead.filter(|ahead| *ahead < part.next) {
                let to = Offset::new(ahead.get() + OFFSETS_AT_ONCE).min(part.next);
                part.look_ahead(&self.projection.between(part.lane, ahead, to).await?);
                part.ahead = Some(to);
            } else if let Some(kept) = part.kept.filter(|kept| kept.back > kept.start) {
                let below = kept.back.get().saturating_sub(OFFSETS_AT_ONCE);
                let from = Offset::new(below).max(kept.start);
                let pages = self.projection.between(kept.lane, from, kept.back).await?;
                documents = part.look_at_kept(&pages, kept, &self.projection, fold);
                part.kept = Some(KeptLane { back: from, ..kept });
            } else {
                self.unknown += part.met.values().filter(|is_unknown| **is_unknown).count() as u64;
                parts.pop();
                continue;
            }
            if part.met.len() > self.keys_max {
                let rest = part.split();
                parts.insert(0, rest);
            }
            if !documents.is_empty() {
                return Ok(Some(documents));
            }
        }
        Ok(None)
    }
}

impl Part {
    fn look_back(
        &mut self,
        pages: &[EventPage],
        projection: &Projection,
        fold: &KeyFold,
    ) -> Vec<Document> {
        let mut documents = Vec::new();
        for page in pages.iter().rev() {
            for index in (0..page.len()).rev() {
                let Some(hash) = page.key_name(index).filter(|hash| self.class.has(*hash)) else {
                    continue;
                };
                if self.met.get(&hash) == Some(&false) {
                    continue;
                }
                let Some(stored) = page.stored(index) else {
                    continue;
                };
                // With many missing, more was read than was asked for.
                if stored.event.offset >= self.back {
                    continue;
                }
                let Some(write) = projection.write_of(fold, &stored) else {
                    if self.ahead.is_some() {
                        self.met.insert(hash, true);
                    }
                    continue;
                };
                self.met.insert(hash, false);
                if let Write::Put(stamp, value) = write
                    && stamp.offset < self.shown_from
                    && let Some(key) = stored.event.key
                {
                    documents.push(projection.document(key.as_str().to_owned(), &stamp, value));
                }
            }
        }
        documents
    }

    /// Keys that came later may have been there before.
    fn look_ahead(&mut self, pages: &[EventPage]) {
        for page in pages {
            let hashes = (0..page.len()).filter_map(|index| page.key_name(index));
            for hash in hashes.filter(|hash| self.class.has(*hash)) {
                self.met.entry(hash).or_insert(true);
            }
        }
    }

    /// The newest state of a key from before the moment is what it was, unless the topic knows.
    fn look_at_kept(
        &mut self,
        pages: &[EventPage],
        kept: KeptLane,
        projection: &Projection,
        fold: &KeyFold,
    ) -> Vec<Document> {
        let mut documents = Vec::new();
        for page in pages.iter().rev() {
            for index in (0..page.len()).rev() {
                let hash = page.key_name(index).filter(|hash| self.class.has(*hash));
                let Some(hash) = hash.filter(|hash| self.met.get(hash) != Some(&false)) else {
                    continue;
                };
                let stored = page.stored(index).filter(|s| s.event.offset < kept.back);
                let Some(stored) = stored else {
                    continue;
                };
                let source = kept.before.source_of(&stored);
                let written = source.and_then(|offset| {
                    let dressed = as_in_source(&stored, &fold.topic, offset);
                    projection.write_of(fold, &dressed)
                });
                let Some(write) = written else {
                    // It came later, or means nothing: what was before is not known.
                    self.met.entry(hash).or_insert(true);
                    continue;
                };
                self.met.insert(hash, false);
                if let Write::Put(stamp, value) = write
                    && stored.event.offset < kept.shown_from
                    && let Some(key) = stored.event.key
                {
                    documents.push(projection.document(key.as_str().to_owned(), &stamp, value));
                }
            }
        }
        documents
    }

    /// Leaves half of the keys for another way through.
    fn split(&mut self) -> Self {
        let [mine, other] = self.class.halves();
        self.class = mine;
        self.met.retain(|hash, _| mine.has(*hash));
        Self {
            back: self.end,
            shown_from: self.shown_from.min(self.back),
            ahead: self.ahead.map(|_| self.end),
            kept: self.kept.map(|kept| KeptLane {
                back: kept.end,
                shown_from: kept.shown_from.min(kept.back),
                ..kept
            }),
            class: other,
            met: HashMap::new(),
            ..*self
        }
    }
}
