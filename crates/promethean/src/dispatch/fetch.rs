use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use promethean_delivery::{Fetch, Input, Page as FoundPage, Span};
use promethean_event::Offset;

use super::active::{ActiveGroup, Chore};
use super::registry::Site;
use crate::dead_letter::REPLAY_FOR;
use crate::limits::{FETCH_BYTES_MAX, FETCH_EVENTS_MAX, SHARED_LANES_MAX, SHARED_PAGES_MAX};
use crate::settings::Filter;
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
            self.read_ahead(lane, &page);
            return self.fetched(fetch, &page);
        }
        if self.site.pages.wait_for(lane, fetch, self) {
            return VecDeque::new();
        }
        let watch = self.site.watch();
        let mut read = self.site.store.fetch(lane, Offset::new(fetch.from), FETCH_LIMIT);
        if let Some(result) = (&mut read).now_or_never() {
            self.meters.polled(watch);
            return self.read_ended(fetch, result);
        }
        let is_first = self.site.pages.begin(lane, fetch.from);
        let group = Arc::clone(self);
        self.site.runtime.spawn(async move {
            let result = read.await;
            group.meters.polled(watch);
            let chores = group.read_ended(fetch, result);
            if is_first {
                group.site.end_read(lane, fetch.from);
            }
            group.work(chores);
        });
        VecDeque::new()
    }

    /// Reads the page after one that is being used, so that nobody has to wait for it.
    fn read_ahead(&self, lane: Lane, page: &EventPage) {
        let next = page.next.get();
        let is_last = page.len() < FETCH_EVENTS_MAX / 2;
        if is_last || !self.site.pages.begin(lane, next) {
            return;
        }
        let read = self.site.store.fetch(lane, page.next, FETCH_LIMIT);
        let (site, watch) = (Arc::clone(&self.site), self.site.watch());
        let meters = Arc::clone(&self.meters);
        self.site.spawn_apart(async move {
            // One that fails is tried again by whoever needs it, and then reported.
            let page = read.await.ok().map(Arc::new);
            meters.polled(watch);
            if let Some(page) = page {
                site.pages.add(lane, next, &page);
            }
            site.end_read(lane, next);
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
        let filter = self.lock().filter.clone();
        let to = page.next.get().min(fetch.from + u64::from(fetch.max));
        let (first, last) = (page.first_from(fetch.from), page.first_from(to));
        let mut found = Cow::Borrowed(page.found().get(first..last).unwrap_or_default());
        // Mostly nothing has to be looked at, and nothing is left out.
        if filter.is_some() || page.have_headers() {
            for (event, index) in found.to_mut().iter_mut().zip(first..) {
                let looked_at = filter.is_some() || page.has_headers(index);
                event.skip = looked_at && self.is_skipped(page, index, filter.as_ref());
            }
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
            let skipped = found.iter().zip(first..).filter(|(found, _)| found.skip);
            view.stash.keep(page, (first, to), skipped.map(|(_, index)| index));
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

impl ActiveGroup {
    /// An event that was changed and replayed for one group is not for the others. The filter sees
    /// what the group reads. What cannot be understood is not skipped: it fails where it is
    /// handled, and is seen.
    fn is_skipped(&self, page: &EventPage, index: usize, filter: Option<&Filter>) -> bool {
        let Some(event) = page.event(index) else {
            return false;
        };
        let for_one = event.headers.get(REPLAY_FOR);
        if for_one.is_some_and(|name| name != self.name.as_str()) {
            return true;
        }
        let Some(filter) = filter else {
            return false;
        };
        let want = self.reads_as.of(&event.topic, None);
        let event = self.site.schemas.decode(event, want);
        event.is_ok_and(|event| !filter.wants(&event))
    }
}

/// Pages of one lane, each with the offset it was asked for from.
type LanePages = VecDeque<(u64, Arc<EventPage>)>;

/// Pages that were read last, for groups that follow each other closely: ten groups on a live
/// topic read and decode it once.
#[derive(Debug, Default)]
pub(crate) struct SharedPages {
    lanes: Mutex<HashMap<Lane, LanePages>>,
    /// Pages that are being read, and who waits for them.
    coming: Mutex<HashMap<(Lane, u64), WaitingGroups>>,
}

type WaitingGroups = Vec<(Arc<ActiveGroup>, Fetch)>;

impl Site {
    /// A page was read, or could not be. Those who waited look for it again.
    fn end_read(&self, lane: Lane, from: u64) {
        let waiting = self.pages.coming().remove(&(lane, from));
        for (group, fetch) in waiting.into_iter().flatten() {
            let chores = group.fetch(fetch);
            group.work(chores);
        }
    }
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
        match self.coming().entry((lane, from)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(Vec::new());
                true
            }
        }
    }

    /// Whether the page is being read; then the group goes on when it is there.
    fn wait_for(&self, lane: Lane, fetch: Fetch, group: &Arc<ActiveGroup>) -> bool {
        let mut coming = self.coming();
        let waiting = coming.get_mut(&(lane, fetch.from));
        waiting.map(|waiting| waiting.push((Arc::clone(group), fetch))).is_some()
    }

    fn coming(&self) -> MutexGuard<'_, HashMap<(Lane, u64), WaitingGroups>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
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
