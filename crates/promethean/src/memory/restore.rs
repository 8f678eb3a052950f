use futures_core::future::BoxFuture;

use super::contents::Contents;
use super::{MemoryStore, ready};
use crate::store::{AppendError, Lane, LaneBounds, ReadError, Restore, Stored};

impl Restore for MemoryStore {
    fn restore(&self, events: Vec<(Lane, Stored)>) -> BoxFuture<'_, Result<(), AppendError>> {
        ready(self.change(|contents| contents.restore(events)))
    }

    fn place(&self, lanes: Vec<(Lane, LaneBounds)>) -> BoxFuture<'_, Result<(), AppendError>> {
        ready(self.change(|contents| contents.lead_on(&lanes)))
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        ready(Ok(self.lock().entries.spaces()))
    }
}

impl Contents {
    fn restore(&mut self, events: Vec<(Lane, Stored)>) -> Result<(), AppendError> {
        self.refuse_if_closed()?;
        // Looked at before anything is changed: all of it or nothing.
        if let Some((lane, _)) = events.iter().find(|(lane, _)| self.lane(*lane).is_err()) {
            return Err(AppendError::UnknownLane(*lane));
        }
        for (lane, stored) in events {
            let Some(topic) = self.topics.get_mut(&lane.topic) else { continue };
            let partition = lane.partition.get() as usize;
            let Some(kept) = topic.lanes.get_mut(partition) else { continue };
            let offset = stored.event.offset;
            if offset.get() < kept.next {
                continue;
            }
            self.last_append = self.last_append.max(stored.appended_at);
            topic.ids.insert(stored.event.id, (lane.partition, offset));
            kept.events.insert(offset.get(), stored);
            kept.next = offset.get() + 1;
            self.recent.note_lanes([lane].into_iter());
        }
        Ok(())
    }

    fn lead_on(&mut self, lanes: &[(Lane, LaneBounds)]) -> Result<(), AppendError> {
        self.refuse_if_closed()?;
        for (lane, to) in lanes {
            let kept = self.lane(*lane).map_err(|_| AppendError::UnknownLane(*lane))?;
            let (start, next) = (to.start.get(), to.next.get());
            if next < kept.next || start < kept.start || next < start {
                let (lane, expected, actual) = (*lane, to.next, kept.bounds().next);
                return Err(AppendError::OffsetMismatch { lane, expected, actual });
            }
        }
        for (lane, to) in lanes {
            let Some(topic) = self.topics.get_mut(&lane.topic) else { continue };
            if let Some(kept) = topic.lanes.get_mut(lane.partition.get() as usize) {
                (kept.start, kept.next) = (to.start.get(), to.next.get());
                kept.events.retain(|offset, _| *offset >= to.start.get());
            }
        }
        Ok(())
    }
}
