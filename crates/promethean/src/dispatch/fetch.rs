use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use promethean_delivery::{Fetch, Found, Input, Page as FoundPage, Span};
use promethean_event::{GroupName, Offset};

use super::active::{ActiveGroup, Chore};
use crate::dead_letter::REPLAY_FOR;
use crate::limits::{FETCH_BYTES_MAX, FETCH_EVENTS_MAX, SHARED_LANES_MAX, SHARED_PAGES_MAX};
use crate::settings::{Filter, Ordered};
use crate::store::{EventPage, Lane, PageLimit, ReadError};

impl ActiveGroup {
    /// Does what takes reading; on the spot what is in memory.
    pub(super) fn work(self: &Arc<Self>, mut chores: VecDeque<Chore>) {
        while let Some(chore) = chores.pop_front() {
            match chore {
                Chore::Fetch(fetch) => chores.extend(self.fetch(fetch)),
                Chore::Expel(member) => self.leave(member),
                Chore::Redeliver(redelivery) => {
                    self.site.runtime.spawn(Arc::clone(self).redeliver(redelivery));
                }
            }
        }
    }

    fn fetch(self: &Arc<Self>, fetch: Fetch) -> VecDeque<Chore> {
        let lane = Lane::of(fetch.lane);
        if let Some(page) = self.site.pages.find(lane, fetch.from) {
            self.read_ahead(lane, &page, fetch.from);
            return self.fetched(fetch, &page);
        }
        let watch = self.site.watch();
        let mut read = self.site.store.fetch(lane, Offset::new(fetch.from), FETCH_LIMIT);
        if let Some(result) = (&mut read).now_or_never() {
            self.meters.polled(watch);
            return self.read_ended(fetch, result);
        }
        let group = Arc::clone(self);
        self.site.runtime.spawn(async move {
            let result = read.await;
            group.meters.polled(watch);
            let chores = group.read_ended(fetch, result);
            group.work(chores);
        });
        VecDeque::new()
    }

    /// Reads the page after one that is nearly used up, so that nobody has to wait for it.
    fn read_ahead(&self, lane: Lane, page: &EventPage, from: u64) {
        let next = page.next.get();
        let is_last = page.len() < FETCH_EVENTS_MAX / 2;
        if is_last || next - from > page.len() as u64 / 2 || !self.site.pages.begin(lane, next) {
            return;
        }
        let read = self.site.store.fetch(lane, page.next, FETCH_LIMIT);
        let (site, watch) = (Arc::clone(&self.site), self.site.watch());
        let meters = Arc::clone(&self.meters);
        self.site.runtime.spawn(async move {
            // One that fails is tried again by whoever needs it, and then reported.
            let page = read.await.ok().map(Arc::new);
            meters.polled(watch);
            site.pages.end(lane, next, page.as_ref());
        });
    }

    fn read_ended(
        self: &Arc<Self>,
        fetch: Fetch,
        result: Result<EventPage, ReadError>,
    ) -> VecDeque<Chore> {
        match result {
            Ok(page) => {
                let page = Arc::new(page);
                self.site.pages.add(Lane::of(fetch.lane), fetch.from, &page);
                self.fetched(fetch, &page)
            }
            Err(error) => {
                tracing::warn!(group = %self.name, %error, "reading for a group failed");
                let mut inner = self.lock();
                let failed = Input::FetchFailed { lane: fetch.lane, fetch: fetch.fetch };
                self.step_locked(&mut inner, failed);
                std::mem::take(&mut inner.chores)
            }
        }
    }

    fn fetched(self: &Arc<Self>, fetch: Fetch, page: &Arc<EventPage>) -> VecDeque<Chore> {
        let (filter, keyed) = {
            let inner = self.lock();
            (inner.filter.clone(), inner.settings.ordered == Ordered::Key)
        };
        let to = page.next.get().min(fetch.from + u64::from(fetch.max));
        let first = page.first_from(fetch.from);
        let mut found = Vec::with_capacity(fetch.max as usize);
        for index in first..page.len() {
            let Some(outline) = page.outline(index).filter(|outline| outline.offset < to) else {
                break;
            };
            let looked_at = filter.is_some() || outline.has_headers;
            let skip = looked_at && is_skipped(page, index, filter.as_ref(), &self.name);
            found.push(Found {
                offset: outline.offset,
                key: if keyed { outline.key().map(key_hash) } else { None },
                bytes: outline.bytes,
                skip,
            });
        }
        let clipped = page
            .gaps
            .iter()
            .map(|gap| Span { from: gap.from.get().max(fetch.from), to: gap.to.get().min(to) });
        let gaps: Vec<Span> = clipped.filter(|gap| gap.from < gap.to).collect();
        let mut inner = self.lock();
        if let Some(view) = inner.lanes.get_mut(&fetch.lane)
            && view.fetch == Some(fetch.fetch)
        {
            view.fetch = None;
            let wanted = found.iter().enumerate().filter(|(_, found)| !found.skip);
            view.stash.keep(page, to, wanted.map(|(number, _)| first + number));
        }
        let page = FoundPage {
            lane: fetch.lane,
            fetch: fetch.fetch,
            from: fetch.from,
            to,
            events: &found,
            gaps: &gaps,
        };
        self.step_locked(&mut inner, Input::Fetched(page));
        std::mem::take(&mut inner.chores)
    }
}

/// More than groups ask for at once: what one reads now is what it asks for next.
const FETCH_LIMIT: PageLimit = PageLimit { events: FETCH_EVENTS_MAX, bytes: FETCH_BYTES_MAX };

/// What delivery knows a key by. Seed 0, as everywhere: parked keys keep it.
pub(crate) fn key_hash(key: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key.as_bytes())
}

/// An event that was changed and replayed for one group is not for the others. One that cannot be
/// understood is not skipped: it fails where it is handled, and is seen.
fn is_skipped(page: &EventPage, index: usize, filter: Option<&Filter>, group: &GroupName) -> bool {
    let Some(event) = page.event(index) else {
        return false;
    };
    let for_another = event.headers.get(REPLAY_FOR).is_some_and(|name| name != group.as_str());
    for_another || filter.is_some_and(|filter| !filter.wants(&event))
}

/// Pages of one lane, each with the offset it was asked for from.
type LanePages = VecDeque<(u64, Arc<EventPage>)>;

/// Pages that were read last, for groups that follow each other closely: ten groups on a live
/// topic read and decode it once.
#[derive(Debug, Default)]
pub(crate) struct SharedPages {
    lanes: Mutex<HashMap<Lane, LanePages>>,
    /// Pages that are being read ahead.
    coming: Mutex<HashSet<(Lane, u64)>>,
}

impl SharedPages {
    fn find(&self, lane: Lane, from: u64) -> Option<Arc<EventPage>> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = lanes.get(&lane)?.iter().rev();
        let mut holding = pages.filter(|(first, page)| (*first..page.next.get()).contains(&from));
        holding.next().map(|(_, page)| Arc::clone(page))
    }

    /// Whether nobody has read, or is reading, the page that begins there; now somebody is.
    fn begin(&self, lane: Lane, from: u64) -> bool {
        if self.find(lane, from).is_some() {
            return false;
        }
        self.coming.lock().unwrap_or_else(PoisonError::into_inner).insert((lane, from))
    }

    fn end(&self, lane: Lane, from: u64, page: Option<&Arc<EventPage>>) {
        if let Some(page) = page {
            self.add(lane, from, page);
        }
        self.coming.lock().unwrap_or_else(PoisonError::into_inner).remove(&(lane, from));
    }

    fn add(&self, lane: Lane, from: u64, page: &Arc<EventPage>) {
        if page.next.get() == from {
            return;
        }
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.len() >= SHARED_LANES_MAX && !lanes.contains_key(&lane) {
            lanes.clear();
        }
        let pages = lanes.entry(lane).or_default();
        if pages.len() >= SHARED_PAGES_MAX {
            pages.pop_front();
        }
        pages.push_back((from, Arc::clone(page)));
    }
}
