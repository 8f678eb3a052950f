//! Which processes are alive, decided from heartbeats and silence. No clock, no bus: times come in,
//! changes come out, and a change counts only once it has been published.

use std::collections::BTreeMap;

use promethean_event::{EventId, Key, KeyError, Timestamp};
use serde::{Deserialize, Serialize};

/// Without a beat for so long a process is stale.
pub(super) const STALE_MS: u64 = 15_000;
/// And after so long it is gone.
pub(super) const GONE_MS: u64 = 60_000;
/// The figures of a process that is alive are told again after so long at least; not of all at
/// the same moment, so that there is always something to see. At once if they are other ones: by
/// these steps, because they are never quite the same.
const CPU_STEP_PCT: f64 = 1.0;
const MEM_STEP_MB: f64 = 1.0;
const REPORT_MS: u64 = 3_000;
const REPORT_SPREAD_MS: u64 = 4_000;

fn report_ms(key: &Key) -> u64 {
    let sum = key.as_str().bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    REPORT_MS + sum % REPORT_SPREAD_MS
}

/// What a process says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Heartbeat {
    pub(super) pid: u64,
    pub(super) name: String,
    pub(super) host: String,
    pub(super) cpu_pct: f64,
    pub(super) mem_mb: f64,
}

impl Heartbeat {
    /// `host:name:pid`, escaped: a colon in a name cannot make two processes one.
    pub(super) fn key(&self) -> Result<Key, KeyError> {
        Key::from_parts([&self.host, &self.name, &self.pid.to_string()].map(String::as_str))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Alive,
    Stale,
}

/// What is known of a process: the payload of `process.state`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ProcessState {
    #[serde(rename = "processId")]
    pub(super) process_id: String,
    pub(super) name: String,
    pub(super) host: String,
    pub(super) pid: u64,
    pub(super) cpu_pct: f64,
    pub(super) mem_mb: f64,
    pub(super) last_seen_ts: u64,
    pub(super) status: Status,
}

impl ProcessState {
    /// Whether a beat has about the figures that were told.
    fn is_near(&self, beat: &Heartbeat) -> bool {
        (self.cpu_pct - beat.cpu_pct).abs() < CPU_STEP_PCT
            && (self.mem_mb - beat.mem_mb).abs() < MEM_STEP_MB
    }
}

/// Something to be published, and then to be [kept](ProcessTable::keep).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) key: Key,
    /// None: the process is gone.
    pub(super) state: Option<ProcessState>,
    pub(super) cause: Option<EventId>,
}

impl Change {
    /// The same for the same change, so that publishing it again adds nothing.
    pub(super) fn id(&self) -> EventId {
        let what = match &self.state {
            Some(state) => format!("{}\n{:?}\n{}", self.key, state.status, state.last_seen_ts),
            None => format!("{}\ngone\n{:?}", self.key, self.cause),
        };
        EventId::derived("promethean demo", what.as_bytes())
    }
}

#[derive(Debug)]
struct Known {
    state: ProcessState,
    /// The newest beat, which need not have been told.
    seen: u64,
    cause: Option<EventId>,
}

#[derive(Debug, Default)]
pub(super) struct ProcessTable {
    known: BTreeMap<Key, Known>,
}

impl ProcessTable {
    /// What follows from a beat; `None` if there is nothing to tell.
    pub(super) fn beat(
        &mut self,
        key: &Key,
        beat: &Heartbeat,
        at: Timestamp,
        id: EventId,
    ) -> Option<Change> {
        let seen = at.millis();
        if let Some(known) = self.known.get_mut(key) {
            if seen < known.seen {
                return None;
            }
            let told = known.state.last_seen_ts;
            let is_told = known.state.status == Status::Alive && known.state.is_near(beat);
            if is_told && seen < told.saturating_add(report_ms(key)) {
                (known.seen, known.cause) = (seen, Some(id));
                return None;
            }
        }
        let state = ProcessState {
            process_id: key.as_str().to_owned(),
            name: beat.name.clone(),
            host: beat.host.clone(),
            pid: beat.pid,
            cpu_pct: beat.cpu_pct,
            mem_mb: beat.mem_mb,
            last_seen_ts: seen,
            status: Status::Alive,
        };
        Some(Change { key: key.clone(), state: Some(state), cause: Some(id) })
    }

    /// What follows from silence.
    pub(super) fn silence(&self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (key, known) in &self.known {
            let silent = now.millis().saturating_sub(known.seen);
            let state = match known.state.status {
                _ if silent >= GONE_MS => None,
                Status::Alive if silent >= STALE_MS => Some(ProcessState {
                    status: Status::Stale,
                    last_seen_ts: known.seen,
                    ..known.state.clone()
                }),
                _ => continue,
            };
            changes.push(Change { key: key.clone(), state, cause: known.cause });
        }
        changes
    }

    /// Takes a change that has been published, or that was found at the start.
    pub(super) fn keep(&mut self, change: Change) {
        match change.state {
            None => drop(self.known.remove(&change.key)),
            Some(state) => {
                let known = Known { seen: state.last_seen_ts, state, cause: change.cause };
                self.known.insert(change.key, known);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat() -> Heartbeat {
        Heartbeat { pid: 7, name: "stt".into(), host: "dev".into(), cpu_pct: 1.0, mem_mb: 2.0 }
    }

    struct Test {
        table: ProcessTable,
    }

    impl Test {
        /// A beat at a second, published if there is something to tell.
        fn beat(&mut self, second: u64) -> Option<Status> {
            let at = Timestamp::from_millis(second * 1000);
            let beat = beat();
            let change = self.table.beat(&beat.key().unwrap(), &beat, at, EventId::generate())?;
            let status = change.state.as_ref().map(|state| state.status);
            self.table.keep(change);
            status
        }

        fn silence(&mut self, second: u64) -> Vec<Option<Status>> {
            let changes = self.table.silence(Timestamp::from_millis(second * 1000));
            let told = changes.iter().map(|c| c.state.as_ref().map(|state| state.status)).collect();
            changes.into_iter().for_each(|change| self.table.keep(change));
            told
        }
    }

    #[test]
    fn alive_then_stale_then_gone() {
        let mut test = Test { table: ProcessTable::default() };
        assert_eq!(test.beat(100), Some(Status::Alive));
        assert_eq!(test.beat(101), None, "told a second ago");
        assert_eq!(test.silence(115), []);
        assert_eq!(test.silence(116), [Some(Status::Stale)], "15 s after the last beat");
        assert_eq!(test.silence(117), [], "told once");
        assert_eq!(test.beat(118), Some(Status::Alive), "it was only slow");
        assert_eq!(test.silence(133), [Some(Status::Stale)]);
        assert_eq!(test.silence(178), [None]);
        assert_eq!(test.silence(500), [], "a tombstone is told once");
        assert_eq!(test.beat(501), Some(Status::Alive));
    }

    #[test]
    fn figures_are_told_again_after_a_while_and_older_beats_change_nothing() {
        let mut test = Test { table: ProcessTable::default() };
        let told: Vec<u64> = (100..120).filter(|second| test.beat(*second).is_some()).collect();
        let every = report_ms(&beat().key().unwrap()).div_ceil(1000);
        assert!((3..=7).contains(&every));
        let expected: Vec<u64> = (100..120).step_by(every as usize).collect();
        assert_eq!(told, expected);
        assert_eq!(test.beat(118), None);
        assert_eq!(test.silence(133), []);
        assert_eq!(test.silence(134), [Some(Status::Stale)], "the newest beat was at 119");
    }

    /// Who sends two beats in a second sees the second one, too.
    #[test]
    fn other_figures_are_told_at_once() {
        let mut table = ProcessTable::default();
        let mut told = |cpu_pct: f64, mem_mb: f64, millis: u64| {
            let beat = Heartbeat { cpu_pct, mem_mb, ..beat() };
            let (at, id) = (Timestamp::from_millis(millis), EventId::generate());
            let change = table.beat(&beat.key().unwrap(), &beat, at, id);
            change.map(|change| table.keep(change)).is_some()
        };
        assert!(told(3.0, 90.0, 100_000));
        assert!(told(4.0, 90.0, 100_500), "another load");
        assert!(!told(4.5, 90.9, 100_600), "about the same");
        assert!(told(4.0, 92.0, 100_700), "another size");
        assert!(!told(9.0, 92.0, 100_650), "from before");
    }

    /// What was not published did not happen: the next look finds it again.
    #[test]
    fn a_change_that_was_not_published_is_told_again_as_the_same() {
        let mut test = Test { table: ProcessTable::default() };
        test.beat(100);
        let first = test.table.silence(Timestamp::from_millis(120_000));
        let second = test.table.silence(Timestamp::from_millis(121_000));
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].id(), second[0].id());
    }
}
