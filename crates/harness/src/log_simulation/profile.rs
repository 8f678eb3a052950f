use promethean_event::{PartitionCount, Topic};
use promethean_log::{Cleaning, Compaction, TopicDefinition};
use serde::Serialize;

use super::random::Random;

/// What the cleaner may do in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum CleaningStyle {
    /// Nothing.
    Keep,
    /// Retention by age.
    Age,
    /// Retention by bytes.
    Bytes,
    /// Key compaction.
    Compact,
    /// Each topic has other rules.
    Mixed,
}

/// How often a step is of each kind, as weights.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(missing_docs, reason = "each is named after its step")]
pub struct Steps {
    pub append: u64,
    pub commit: u64,
    pub maintain: u64,
    pub read: u64,
    pub look_up: u64,
    pub restart: u64,
    pub clock: u64,
    pub define: u64,
}

/// Everything about a run that does not come from the draw of each step.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// What it is about.
    pub name: &'static str,
    /// Smallest segment in bytes.
    pub segment_bytes_min: u64,
    /// Largest segment in bytes.
    pub segment_bytes_max: u64,
    /// Segments zero-filled ahead.
    pub spare_segments: usize,
    /// Bytes of the newest frames kept in memory.
    pub tail_bytes: usize,
    /// Bytes for filters in memory.
    pub filter_bytes: usize,
    /// How many topics.
    pub topics: usize,
    /// Most partitions of a topic.
    pub partitions_max: u64,
    /// What the cleaner may do.
    pub cleaning: CleaningStyle,
    /// Most events of a batch.
    pub batch_events_max: u64,
    /// Most batches that wait for one commit.
    pub waiting_max: u64,
    /// Thousandths of appends behind which others are written before they are synced.
    pub overlaps: u64,
    /// Largest payload text.
    pub payload_bytes_max: u64,
    /// Different keys.
    pub keys: u64,
    /// Per mille of events with a key.
    pub keyed: u64,
    /// Per mille of events that repeat an id with the same bytes.
    pub duplicates: u64,
    /// Per mille of events that repeat an id with other bytes.
    pub conflicts: u64,
    /// Per mille of batches with an expected offset.
    pub expectations: u64,
    /// Weights of durability none, written and synced.
    pub strengths: [u64; 3],
    /// Per mille of writes before which the kernel writes back early.
    pub write_back: u64,
    /// Longest step of the clock in ms.
    pub clock_ms_max: u64,
    /// Per mille of clock steps that go back.
    pub clock_back: u64,
    /// Kinds of steps.
    pub steps: Steps,
}

const PLAIN: Profile = Profile {
    name: "plain",
    segment_bytes_min: 4096,
    segment_bytes_max: 16_384,
    spare_segments: 1,
    tail_bytes: 8192,
    filter_bytes: 1 << 20,
    topics: 2,
    partitions_max: 2,
    cleaning: CleaningStyle::Keep,
    batch_events_max: 4,
    waiting_max: 3,
    overlaps: 100,
    payload_bytes_max: 400,
    keys: 8,
    keyed: 700,
    duplicates: 30,
    conflicts: 10,
    expectations: 30,
    strengths: [0, 0, 1],
    write_back: 0,
    clock_ms_max: 50,
    clock_back: 0,
    steps: Steps {
        append: 40,
        commit: 20,
        maintain: 10,
        read: 5,
        look_up: 5,
        restart: 1,
        clock: 5,
        define: 2,
    },
};

impl Profile {
    /// Options drawn one by one: seeds differ more from each other than steps of one run do.
    pub fn swarm(random: &mut Random) -> Self {
        let segment_bytes_min = *random.pick(&[4096, 4096, 8192, 16_384]);
        let mut weight = |often: u64| *random.pick(&[0, 1, often, often, often * 3]);
        let steps = Steps {
            append: 30 + weight(10),
            commit: 5 + weight(15),
            maintain: 1 + weight(8),
            read: weight(3),
            look_up: weight(3),
            restart: weight(1),
            clock: 1 + weight(4),
            define: weight(2),
        };
        Self {
            name: "swarm",
            segment_bytes_min,
            segment_bytes_max: segment_bytes_min * *random.pick(&[1, 2, 4]),
            spare_segments: *random.pick(&[0, 1, 1, 2]),
            tail_bytes: *random.pick(&[0, 1024, 65_536]),
            filter_bytes: *random.pick(&[0, 1 << 20]),
            topics: random.between(1, 4) as usize,
            partitions_max: *random.pick(&[1, 2, 4]),
            cleaning: *random.pick(&[
                CleaningStyle::Keep,
                CleaningStyle::Age,
                CleaningStyle::Bytes,
                CleaningStyle::Compact,
                CleaningStyle::Compact,
                CleaningStyle::Mixed,
            ]),
            batch_events_max: *random.pick(&[1, 3, 8, 20]),
            waiting_max: *random.pick(&[1, 2, 5]),
            overlaps: *random.pick(&[0, 100, 500]),
            payload_bytes_max: *random.pick(&[40, 400, 1500]),
            keys: *random.pick(&[1, 3, 10, 100]),
            keyed: *random.pick(&[0, 500, 1000]),
            duplicates: *random.pick(&[0, 20, 200]),
            conflicts: *random.pick(&[0, 10]),
            expectations: *random.pick(&[0, 30]),
            strengths: *random.pick(&[[0, 0, 1], [0, 0, 1], [1, 1, 1], [0, 3, 1], [2, 1, 0]]),
            write_back: *random.pick(&[0, 0, 100, 500]),
            clock_ms_max: *random.pick(&[0, 10, 100]),
            clock_back: *random.pick(&[0, 0, 100]),
            steps,
        }
    }

    /// The scripted workloads: each puts its weight on one part of the log.
    pub fn scripts() -> Vec<Self> {
        let read_often = Steps { read: 20, look_up: 20, ..PLAIN.steps };
        let restart_often = Steps { restart: 10, ..PLAIN.steps };
        let clean_often = Steps { maintain: 30, clock: 15, ..PLAIN.steps };
        let script = |name| Self { name, ..PLAIN };
        let cleaned = |name, cleaning| Self { cleaning, steps: clean_often, ..script(name) };
        vec![
            script("plain"),
            Self { batch_events_max: 1, waiting_max: 1, ..script("single events") },
            Self { batch_events_max: 40, payload_bytes_max: 60, ..script("large batches") },
            Self { payload_bytes_max: 3500, ..script("large events") },
            Self { waiting_max: 12, ..script("many publishers") },
            Self { waiting_max: 4, overlaps: 500, ..script("frames written beside a sync") },
            Self { topics: 8, partitions_max: 4, ..script("many topics") },
            Self { spare_segments: 0, ..script("no spare segments") },
            Self { spare_segments: 3, segment_bytes_max: 4096, ..script("many spare segments") },
            Self { tail_bytes: 0, steps: read_often, ..script("no memory tail") },
            Self { tail_bytes: 1 << 20, steps: read_often, ..script("all in memory") },
            Self { filter_bytes: 0, duplicates: 200, ..script("no filters") },
            Self { duplicates: 300, conflicts: 100, ..script("duplicates") },
            Self { expectations: 500, ..script("expected offsets") },
            Self { strengths: [0, 1, 1], ..script("written and synced") },
            Self { strengths: [1, 1, 1], ..script("every durability") },
            Self { strengths: [0, 1, 0], ..script("written only") },
            Self { steps: restart_often, ..script("restarts") },
            Self { clock_ms_max: 5000, clock_back: 300, ..script("clock jumps") },
            cleaned("retention by age", CleaningStyle::Age),
            cleaned("retention by bytes", CleaningStyle::Bytes),
            Self { keys: 2, keyed: 1000, ..cleaned("compaction", CleaningStyle::Compact) },
            Self { strengths: [1, 1, 1], ..cleaned("compaction unsynced", CleaningStyle::Compact) },
            Self { topics: 5, steps: restart_often, ..cleaned("every rule", CleaningStyle::Mixed) },
            Self { write_back: 500, strengths: [0, 1, 1], ..script("early write-back") },
        ]
    }

    /// The topics of a run.
    pub fn definitions(&self, random: &mut Random) -> Vec<TopicDefinition> {
        (0..self.topics)
            .map(|number| {
                let name = ["orders", "orders.eu", "heartbeat.received", "a"][number % 4];
                let topic = Topic::new(&format!("{name}.n{number}")).expect("the name is allowed");
                let partitions = random.between(1, self.partitions_max) as u32;
                TopicDefinition::new(topic)
                    .with_partitions(PartitionCount::new(partitions).expect("a small count"))
                    .with_cleaning(self.rules(random))
            })
            .collect()
    }

    fn rules(&self, random: &mut Random) -> Cleaning {
        let style = match self.cleaning {
            CleaningStyle::Mixed => *random.pick(&[
                CleaningStyle::Keep,
                CleaningStyle::Age,
                CleaningStyle::Bytes,
                CleaningStyle::Compact,
            ]),
            style => style,
        };
        let both = self.cleaning == CleaningStyle::Mixed && random.chance(300);
        let compaction = Some(Compaction {
            age_ms_min: *random.pick(&[0, 0, 100]),
            tombstone_ms: *random.pick(&[0, 50, 1000]),
        });
        Cleaning {
            age_ms_max: (both || style == CleaningStyle::Age).then(|| random.between(0, 500)),
            bytes_max: (style == CleaningStyle::Bytes).then(|| random.between(1000, 20_000)),
            compaction: compaction.filter(|_| both || style == CleaningStyle::Compact),
        }
    }
}
