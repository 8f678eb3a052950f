//! What a new version means for what is stored, and for the groups that read it.

use promethean_event::{Event, Offset, SCHEMA_VERSION};
use serde_json::Value;

use super::Registry;
use super::evidence::Examined;
use super::plan::{Objection, ReaderFate, ReaderPlan};
use super::readers::TopicReader;
use super::registration::Sample;
use super::subject::walk;
use crate::decode::{Want, WhyUnreadable, parse_version};
use crate::limits::OBJECTIONS_MAX;
use crate::store::{Lane, PageLimit, Read, ReadError};

/// Whether a stored event is good.
enum Fate {
    Good,
    /// It is not even what it says.
    InvalidBefore,
    Breaks(WhyUnreadable),
}

impl Registry {
    /// Tries a new version on events that are stored.
    pub(super) async fn try_stored(
        &self,
        examined: &mut Examined,
        sample: Sample,
    ) -> Result<(), ReadError> {
        let mut left = match sample {
            Sample::None => 0,
            Sample::Newest(events) => events,
            Sample::All => usize::MAX,
        };
        let topics = self.store.topics();
        let Some(entry) = topics.get(&examined.subject.topic) else {
            return Ok(());
        };
        let lanes = entry.lanes().count().max(1);
        for (number, lane) in entry.lanes().enumerate() {
            // What a quiet partition leaves goes to the others.
            let share = left.div_ceil(lanes - number);
            left -= self.try_lane(examined, lane, share.min(left)).await?;
        }
        Ok(())
    }

    async fn try_lane(
        &self,
        examined: &mut Examined,
        lane: Lane,
        events: usize,
    ) -> Result<usize, ReadError> {
        let bounds = self.store.bounds(lane).await?;
        let (mut before, mut tried) = (bounds.next, 0);
        while tried < events && before > bounds.start && before > Offset::ZERO {
            let wanted = PageLimit::default();
            let limit = PageLimit { events: wanted.events.min(events - tried), ..wanted };
            let page = self.store.read(Read::Before { lane, before, limit }).await?;
            if page.events.is_empty() && page.next >= before {
                break;
            }
            before = page.next;
            for stored in &page.events {
                tried += 1;
                self.try_event(examined, &stored.event);
            }
        }
        Ok(tried)
    }

    fn try_event(&self, examined: &mut Examined, event: &Event) {
        if event.key.is_some() && event.payload.is_tombstone() {
            return;
        }
        examined.plan.tried.stored += 1;
        match self.fate(examined, event) {
            Fate::Good => {}
            Fate::InvalidBefore => examined.plan.tried.stored_invalid += 1,
            Fate::Breaks(reason) => {
                examined.plan.tried.stored_broken += 1;
                let (partition, offset) = (event.partition, event.offset);
                if examined.plan.objections.len() < OBJECTIONS_MAX {
                    let objection = Objection::BreaksEvent { partition, offset, reason };
                    examined.plan.objections.push(objection);
                }
            }
        }
    }

    fn fate(&self, examined: &Examined, event: &Event) -> Fate {
        let wanted = examined.version.number;
        let written = match event.headers.get(SCHEMA_VERSION) {
            None => examined.subject.oldest().map_or(wanted, |version| version.number),
            Some(text) => match parse_version(text) {
                Some(version) => version,
                None => return Fate::InvalidBefore,
            },
        };
        let Some(version) = examined.version(written) else {
            return Fate::Breaks(WhyUnreadable::UnknownVersion(written));
        };
        let Ok(payload) = event.payload.decode::<Value>() else {
            return Fate::InvalidBefore;
        };
        let rules = version.document.validator();
        if !rules.is_valid(&payload) {
            return match written == wanted {
                true => Fate::Breaks(WhyUnreadable::Invalid {
                    version: wanted,
                    mismatches: rules.mismatches(&payload),
                }),
                false => Fate::InvalidBefore,
            };
        }
        let path = match examined.path(written, wanted) {
            Ok(path) => path,
            Err(hop) => {
                let (from, to) = (hop.from, hop.to);
                return Fate::Breaks(WhyUnreadable::MissingHop { written, wanted, from, to });
            }
        };
        match walk(&path, payload, &|name| self.function(name)) {
            Err(error) => Fate::Breaks(WhyUnreadable::Cast { written, wanted, error }),
            Ok(made) => {
                let rules = examined.version.document.validator();
                if rules.is_valid(&made) {
                    return Fate::Good;
                }
                let mismatches = rules.mismatches(&made);
                Fate::Breaks(WhyUnreadable::Invalid { version: wanted, mismatches })
            }
        }
    }

    /// Asks whether every group that declares a version could still be served.
    pub(super) async fn ask_groups(&self, examined: &mut Examined) -> Result<(), ReadError> {
        let topic = examined.subject.topic.clone();
        for TopicReader { group, reads } in self.readers(&topic).await? {
            let want = reads.of(&topic, None);
            let missing = examined.missing_for(want);
            let fate = match (want, &missing) {
                (_, Some(_)) => ReaderFate::Breaks,
                (Want::Written, None) => examined.unasked(),
                (_, None) => ReaderFate::Good,
            };
            if let Some((version, from, to)) = missing {
                let (group, reads) = (group.clone(), version);
                examined.plan.objections.push(Objection::BreaksGroup { group, reads, from, to });
            }
            examined.plan.readers.push(ReaderPlan { group, reads, fate });
        }
        Ok(())
    }
}

impl Examined {
    /// The version that a reader wants, and the hop that is missing on the way to it.
    fn missing_for(&self, want: Want) -> Option<(u32, u32, u32)> {
        let Want::Version(reads) = want else {
            return None;
        };
        // Whoever waits for a version that is still to come reads nothing now.
        self.subject.versions.get(&reads)?;
        let hop = self.path(self.version.number, reads).err()?;
        Some((reads, hop.from, hop.to))
    }

    /// What becomes of a group that takes events as they were written.
    fn unasked(&self) -> ReaderFate {
        let latest = self.subject.latest().map(|version| version.number);
        let good = self.plan.compared.iter().any(|compared| {
            Some(compared.version) == latest && !compared.backward && compared.compatible
        });
        if good || latest.is_none() { ReaderFate::Good } else { ReaderFate::AtRisk }
    }
}
