//! Damage to a log that was closed: it may cost events, but never silently, and never give wrong
//! ones.

use serde::Serialize;

use super::corruption::{Corruption, CorruptionKind, corrupt};
use super::disk::DiskImage;
use super::model::{LaneKey, Seen, SeenReason};
use super::other_ways;
use super::profile::Profile;
use super::random::Random;
use super::session::{Running, Session};
use super::subject::Subject;
use super::violation::{Broken, Violation};

/// How a corruption came to light.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Detected {
    /// Not at all, and all answers are right.
    Harmless,
    /// The log does not open.
    Refused,
    /// The log's report on opening names it.
    Opening,
    /// A reader was given an error or a gap that says so.
    Reading,
    /// Only the survey of the whole log names it.
    Survey,
}

/// What was found about many corruptions.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DamageReport {
    /// Corruptions done.
    pub corruptions: u64,
    /// How often each kind came to light in which way.
    pub detected: std::collections::BTreeMap<String, u64>,
    /// Promises that were broken.
    pub violations: Vec<(Corruption, Violation)>,
}

/// A healthy log to damage.
#[derive(Debug)]
pub struct Patient {
    session: Session,
    image: DiskImage,
}

/// Something that is not as the model says.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// A reader was told.
    pub(super) told: bool,
    /// The first event that is missing or answer that is wrong for want of events.
    missing: Option<String>,
}

impl Findings {
    pub(super) fn miss(&mut self, what: impl FnOnce() -> String) {
        self.missing.get_or_insert_with(what);
    }
}

impl Patient {
    /// A log with some history: sealed segments, side files, an active segment, spares.
    pub fn new(profile: Profile, seed: u64, steps: u64) -> Result<Self, Violation> {
        Self::of(Session::new(profile, seed), steps)
    }

    /// What `steps` make of a session that is not open yet.
    pub fn of(mut session: Session, steps: u64) -> Result<Self, Violation> {
        session.open()?;
        for _ in 0..steps {
            if session.step()? == Running::No {
                return Violation::err(Broken::Failed, "the log stopped on a healthy disk");
            }
        }
        session.commit()?;
        for _ in 0..3 {
            session.upkeep()?;
        }
        session.verify()?;
        if session.tally.acked.is_multiple_of(2) {
            session.close()?;
        } else {
            session.kill();
        }
        let image = session.disk().image();
        Ok(Self { session, image })
    }

    /// Its files.
    pub fn image(&self) -> &DiskImage {
        &self.image
    }

    /// Does one corruption to files whose name ends with `suffix`, and examines what is left.
    pub fn damage(&self, kind: CorruptionKind, suffix: &str, seed: u64, report: &mut DamageReport) {
        let mut image = self.image.clone();
        let Some(corruption) = corrupt(&mut image, kind, suffix, &mut Random::new(seed)) else {
            return;
        };
        report.corruptions += 1;
        // Look-ups lean on side files; for segments some of them will do.
        let look_up = suffix != ".seg" || seed.is_multiple_of(4);
        match self.examine(&image, look_up) {
            Ok(detected) => {
                let name = format!("{kind:?} of {suffix}: {detected:?}");
                *report.detected.entry(name).or_default() += 1;
            }
            Err(violation) => report.violations.push((corruption, violation)),
        }
    }

    /// Opens and reads a damaged log, and searches it if `look_up` says so.
    pub fn examine(&self, image: &DiskImage, look_up: bool) -> Result<Detected, Violation> {
        let session = self.session.revived(image.clone());
        let surveyed = promethean_log::survey(session.disk());
        let surveyed =
            surveyed.map_or(true, |survey| !survey.damage.is_empty() || survey.torn_tail.is_some());
        if session.disk().image() != *image {
            return Violation::err(Broken::Destroyed, "the survey has changed something");
        }
        let Ok((subject, report)) = Subject::open(&session) else {
            nothing_destroyed(image, &session.disk().image(), None)?;
            return Ok(Detected::Refused);
        };
        let newest = image.keys().rfind(|name| name.ends_with(".seg"));
        nothing_destroyed(image, &session.disk().image(), newest.map(String::as_str))?;
        let opening =
            !report.damage.is_empty() || report.torn_tail.is_some() || !report.rebuilt.is_empty();
        let mut findings = Findings::default();
        for key in session.model().lane_keys() {
            examine_lane(&session, &subject, key, &mut findings)?;
        }
        if look_up {
            examine_look_ups(&session, &subject, &mut findings)?;
            other_ways::examine(&session, &subject, &mut findings)?;
            other_ways::go_on(&session, subject)?;
        }
        match findings {
            _ if opening => Ok(Detected::Opening),
            Findings { told: true, .. } => Ok(Detected::Reading),
            Findings { missing: None, .. } if !surveyed => Ok(Detected::Harmless),
            _ if surveyed => Ok(Detected::Survey),
            Findings { missing, .. } => {
                Violation::err(Broken::Undetected, missing.unwrap_or_default())
            }
        }
    }
}

/// Every segment is still there, under its name or set aside, byte for byte; only the newest may
/// have been written to.
fn nothing_destroyed(
    before: &DiskImage,
    after: &DiskImage,
    newest: Option<&str>,
) -> Result<(), Violation> {
    for (name, bytes) in before.iter().filter(|(name, _)| name.ends_with(".seg")) {
        let kept = after.get(name).or_else(|| after.get(&format!("{name}.damaged")));
        match kept {
            Some(_) if newest == Some(name) => {}
            Some(kept) if kept == bytes => {}
            Some(_) => return Violation::err(Broken::Destroyed, format!("{name} was changed")),
            None => return Violation::err(Broken::Destroyed, format!("{name} was deleted")),
        }
    }
    Ok(())
}

fn examine_lane(
    session: &Session,
    subject: &Subject,
    key: LaneKey,
    findings: &mut Findings,
) -> Result<(), Violation> {
    let lane = session.model().lane(key);
    let Some((_, next)) = subject.bounds(key) else {
        if !lane.is_empty() {
            findings.miss(|| format!("{key:?} is unknown"));
        }
        return Ok(());
    };
    if next > lane.len() as u64 {
        let detail = format!("{key:?} ends at {next}, not at {}", lane.len());
        return Violation::err(Broken::Phantom, detail);
    }
    if next < lane.len() as u64 {
        findings.miss(|| format!("{key:?} ends at {next}, not at {}", lane.len()));
    }
    let (items, error) = subject.read_lane_as_far(key);
    findings.told |= error.is_some();
    let mut expected = 0;
    for (number, &item) in items.iter().enumerate() {
        match item {
            Seen::Event(event) if event.offset == expected => {
                let stored = &lane[event.offset as usize];
                if stored.draft.digest != event.digest || stored.seq != Some(event.seq) {
                    let detail = format!("{key:?} offset {expected}: {event:?}");
                    return Violation::err(Broken::Changed, detail);
                }
                expected += 1;
            }
            Seen::Gap(gap) if gap.from == expected && gap.to > gap.from => {
                let all = lane.get(gap.from as usize..gap.to as usize).unwrap_or_default();
                match gap.reason {
                    SeenReason::Corrupt => findings.told = true,
                    _ if all.iter().all(|event| event.removed) => {}
                    _ => findings.miss(|| format!("{key:?}: {gap:?}")),
                }
                expected = gap.to;
            }
            _ => {
                let around = &items[number.saturating_sub(2)..items.len().min(number + 3)];
                let detail = format!("{key:?}: offset {expected} was due: {around:?}");
                return Violation::err(Broken::Hole, detail);
            }
        }
    }
    if error.is_none() && expected < next {
        let detail = format!("{key:?}: read up to {expected}, the end is {next}");
        return Violation::err(Broken::Hole, detail);
    }
    Ok(())
}

fn examine_look_ups(
    session: &Session,
    subject: &Subject,
    findings: &mut Findings,
) -> Result<(), Violation> {
    let right = |(key, event): &super::subject::Found| {
        let stored = session.model().lane(*key).get(event.offset as usize);
        stored.is_some_and(|stored| stored.draft.digest == event.digest)
    };
    for draft in session.submitted.iter().step_by(7) {
        let id = draft.event.id;
        let expected = session.model().find(draft.topic, &id);
        match subject.find(draft.topic, &id) {
            Ok(Some(found)) if !right(&found) => {
                return Violation::err(Broken::Changed, format!("id {id}: {found:?}"));
            }
            Ok(found) if found.map(|(key, event)| (key, event.offset)) != expected => {
                findings.miss(|| format!("id {id} is at {found:?}, not at {expected:?}"));
            }
            Ok(_) => {}
            Err(_) => findings.told = true,
        }
    }
    for (topic, key) in session.keys_submitted() {
        match subject.history(topic, &key) {
            Ok(history) if !history.iter().all(right) => {
                return Violation::err(Broken::Changed, format!("history of {key}: {history:?}"));
            }
            Ok(history) => {
                let count = session.kept_with_key(topic, &key);
                if history.len() != count {
                    let has = history.len();
                    findings.miss(|| format!("history of {key} has {has} events, not {count}"));
                }
            }
            Err(_) => findings.told = true,
        }
    }
    Ok(())
}
