//! Changes of the catalog: written as frames of their own, and in effect once they are.

use promethean_event::{EventId, Offset};

use crate::catalog::{CatalogEntry, LaneState};
use crate::error::{AppendError, WriteError};
use crate::limits::{LANES_MAX, TOPICS_MAX};
use crate::queue::Request;
use crate::segment::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::topic::{Lane, TopicDefinition, TopicId};
use crate::writer::{Pending, Writer};

impl Writer {
    pub(crate) fn commit_catalog(&mut self, request: Request) {
        if let Some(error) = self.refusal() {
            return request.refuse(&error);
        }
        match request {
            Request::Define { definition, answer } => answer.give(self.define(&definition)),
            Request::Remove { topic, answer } => {
                answer.give(self.change(&[CatalogEntry::Removed { id: topic }], true));
            }
            Request::Sync { answer } => {
                let synced = self.sync_all();
                answer.give(synced.map_err(|error| self.note(error)));
            }
            Request::Trim { starts, answer } => {
                answer.give(self.trim(starts));
            }
            Request::Place { lanes, answer } => answer.give(self.place(&lanes)),
            Request::Append { .. } => {}
        }
    }

    fn define(&mut self, definition: &TopicDefinition) -> Result<TopicId, AppendError> {
        let (id, greatest_id) = {
            let state = self.engine.read();
            match state.catalog.id(&definition.topic) {
                Some(id) => {
                    let known = state.catalog.live(id);
                    let has = known.map_or(0, |known| known.definition.partitions.get());
                    if known.is_some_and(|known| known.definition == *definition) {
                        return Ok(id);
                    }
                    if has != definition.partitions.get() {
                        return Err(AppendError::PartitionsFixed {
                            topic: definition.topic.clone(),
                            has,
                            wanted: definition.partitions.get(),
                        });
                    }
                    let zero = EventId::from_bytes([0; 16]);
                    (id, known.map_or(zero, |known| known.greatest_id))
                }
                None if state.catalog.topic_count() >= TOPICS_MAX => {
                    return Err(AppendError::TooManyTopics(TOPICS_MAX));
                }
                None if state.catalog.has_no_room(definition.partitions) => {
                    return Err(AppendError::TooManyPartitions(LANES_MAX));
                }
                None => (state.catalog.next_id(), EventId::from_bytes([0; 16])),
            }
        };
        let definition = definition.clone();
        let system = definition.topic.is_system();
        self.change(&[CatalogEntry::Topic { id, definition, greatest_id }], system)?;
        Ok(id)
    }

    /// Not to beyond the end: what is appended there later is not given up.
    fn trim(&mut self, starts: Vec<(Lane, Offset)>) -> Result<(), AppendError> {
        let entries: Vec<_> = {
            let state = self.engine.read();
            let entries = starts.into_iter().map(|(lane, start)| {
                let start = state.catalog.lane(lane).map_or(start, |lane| start.min(lane.next));
                CatalogEntry::Start { lane, start }
            });
            entries.collect()
        };
        self.change(&entries, true)
    }

    /// Lets lanes go on further on. Not synced: what is appended there says as much.
    fn place(&mut self, lanes: &[(Lane, LaneState)]) -> Result<(), AppendError> {
        lanes.iter().try_for_each(|(lane, to)| self.engine.read().catalog.leads_on(*lane, *to))?;
        let placed = lanes.iter().map(|&(lane, state)| CatalogEntry::Lane { lane, state });
        let placed: Vec<_> = placed.collect();
        self.write_catalog(&placed, false).map_err(|error| self.note(error))?;
        self.take_effect(&placed);
        Ok(())
    }

    /// Writes and syncs a change of the catalog, then lets it take effect.
    fn change(&mut self, entries: &[CatalogEntry], system: bool) -> Result<(), AppendError> {
        let written = self.write_catalog(entries, system).and_then(|()| self.sync());
        written.map_err(|error| self.note(error))?;
        self.take_effect(entries);
        Ok(())
    }

    fn take_effect(&self, entries: &[CatalogEntry]) {
        let mut state = self.engine.write();
        self.engine.apply(&mut state, entries);
        state.active.end_position = self.segment.position;
    }

    fn write_catalog(&mut self, entries: &[CatalogEntry], system: bool) -> Result<(), WriteError> {
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        self.make_room(bytes.len() as u64, system)?;
        self.append_time();
        let header = FrameHeader {
            body_bytes: (bytes.len() - FRAME_HEADER_BYTES) as u32,
            count: entries.len() as u32,
            ..self.empty_frame(FrameKind::Catalog)
        };
        self.write(Pending { bytes, header }).map(drop)
    }
}
