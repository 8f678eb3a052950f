//! Moving from embedded to remote is changing one line.

use promethean::event::Topic;

use super::serving;

#[path = "../../../../examples/rust/embedded.rs"]
#[allow(dead_code, reason = "an example's main is its own")]
mod embedded;
#[path = "../../../../examples/rust/remote.rs"]
#[allow(dead_code, reason = "an example's main is its own")]
mod remote;

#[test]
fn the_examples_differ_in_the_line_that_makes_the_bus() {
    let code = |source: &'static str| -> Vec<&str> {
        source.lines().filter(|line| !line.starts_with("//!")).collect()
    };
    let embedded = code(include_str!("../../../../examples/rust/embedded.rs"));
    let remote = code(include_str!("../../../../examples/rust/remote.rs"));
    assert_eq!(embedded.len(), remote.len());
    let other: Vec<_> = embedded.iter().zip(&remote).filter(|(one, two)| one != two).collect();
    assert_eq!(
        other,
        [(
            &"    let bus = promethean::Bus::open(place).await?;",
            &"    let bus = promethean_client::Bus::connect(place).await?;"
        )]
    );
}

#[tokio::test]
async fn both_examples_run() {
    let folder = tempfile::tempdir().unwrap();
    embedded::run(folder.path().to_str().unwrap()).await.unwrap();
    let server = serving();
    remote::run(&server.url()).await.unwrap();
}

/// A program that names the bus's types in its own signatures changes the line that imports them.
macro_rules! program {
    ($name:ident, $bus:ident) => {
        mod $name {
            use std::time::Duration;

            use $bus::event::{
                Cleaning, Compaction, Cursor, GroupName, Offset, PartitionCount, Pattern, Topic,
                TopicDefinition,
            };
            use $bus::{
                AckError, Bus, Consumer, DeadLetterQuery, Delivered, Failure, GroupError, GroupLag,
                Mode, Move, Ordered, Park, PublishError, Published, Reads, Replay,
                ReplayDeadLetters, Replayed, Start, Subscription, topic,
            };

            #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
            pub(super) struct Beat {
                pub(super) n: u32,
            }
            topic! { Beat => "beat", key = |beat| beat.n.to_string() }

            pub(super) async fn define(bus: &Bus) -> Result<(), Box<dyn std::error::Error>> {
                let compaction = Some(Compaction::default());
                let cleaning =
                    Cleaning { age_ms_max: Some(3_600_000), compaction, bytes_max: None };
                let definition = TopicDefinition::new(Topic::new("beat")?)
                    .with_partitions(PartitionCount::new(1)?)
                    .with_cleaning(cleaning);
                bus.define(definition).await?;
                Ok(())
            }

            /// How many are stored, how many keys there are, and how many events one has.
            pub(super) async fn look_back(
                bus: &Bus,
            ) -> Result<(usize, usize, usize), Box<dyn std::error::Error>> {
                let topic = Topic::new("beat")?;
                let mut replaying = bus.replay(Replay::of(Pattern::new("beat")?)).await?;
                let mut events = 0;
                while let Some(step) = replaying.next().await? {
                    events += usize::from(matches!(step, Replayed::Event(_)));
                }
                let keys = bus.keys(&topic, "", None, 100).await?;
                assert!(!keys.more);
                let past = bus.history(&topic, "1".parse()?, 10).await?;
                Ok((events, keys.events.len(), past.len()))
            }

            pub(super) async fn give_back(bus: &Bus) -> Result<usize, Box<dyn std::error::Error>> {
                let waiting = DeadLetterQuery::waiting();
                let listed = bus.dead_letters(&waiting).await?.len();
                let report = bus.replay_dead_letters(&ReplayDeadLetters::new(waiting)).await?;
                assert_eq!(report.replayed.len(), listed);
                Ok(listed)
            }

            pub(super) async fn behind(bus: &Bus) -> Result<u64, GroupError> {
                let lag: GroupLag = bus.lag(&GroupName::new("handlers")?).await?;
                Ok(lag.events())
            }

            pub(super) async fn publish(bus: &Bus, n: u32) -> Result<Published, PublishError> {
                bus.publish(&Beat { n }).tag("#t").await
            }

            pub(super) async fn stream(bus: &Bus) -> Result<Subscription<Beat>, GroupError> {
                bus.subscribe::<Beat>("readers")
                    .from(Start::Earliest)
                    .mode(Mode::Shared)
                    .ordered(Ordered::Key)
                    .park(Park::Key)
                    .reads(Reads::Written)
                    .max_attempts(2)
                    .max_in_flight(10)
                    .batch_size(5)
                    .backoff(Duration::from_millis(1), Duration::from_millis(2))
                    .drain(Duration::from_secs(1))
                    .ack_timeout(Duration::from_secs(20))
                    .hold()
                    .stream()
                    .await
            }

            pub(super) async fn take(
                stream: &mut Subscription<Beat>,
            ) -> Result<(Beat, u16), Box<dyn std::error::Error>> {
                let delivered: Delivered<Beat> = stream.next().await.ok_or("it ended")??;
                delivered.extend(Duration::from_secs(10)).await?;
                let taken = (delivered.payload()?, delivered.attempt());
                if taken.1 == 1 {
                    delivered.retry_after(Duration::from_millis(1), "once more").await?;
                } else {
                    delivered.ack().await?;
                }
                Ok(taken)
            }

            pub(super) async fn consume(bus: &Bus) -> Result<Consumer, GroupError> {
                bus.subscribe_to(["beat"], "handlers")
                    .from(Start::Earliest)
                    .concurrency(2)
                    .handle(|delivered: Delivered| async move {
                        if delivered.event().topic.as_str() != "beat" {
                            return Err(Failure::skip());
                        }
                        Ok(())
                    })
                    .await
            }

            pub(super) async fn go_back(bus: &Bus) -> Result<i64, GroupError> {
                let group = GroupName::new("handlers")?;
                let every = Pattern::new("**")?;
                let planned: Vec<Move> = bus.plan_seek(&group, &every, Start::Earliest).await?;
                let topic = Topic::new("beat").map_err(|error| panic!("{error}")).unwrap();
                let cursors = bus.get_cursor(&topic, &group).await?;
                assert_eq!(cursors.len(), planned.len());
                let cursor = Cursor { next: Offset::new(1), ..cursors[0].clone() };
                let moved = bus.set_cursor(&group, &cursor).await?;
                bus.seek(&group, &every, Start::Latest).await?;
                bus.caught_up(&group).await?;
                Ok(moved.again())
            }

            pub(super) fn is_lost(error: &AckError) -> bool {
                matches!(error, AckError::LeaseLost)
            }
        }
    };
}

program!(over_embedded, promethean);
program!(over_remote, promethean_client);

macro_rules! promethean_ack {
    (over_embedded) => {
        promethean::AckError::AlreadyDone
    };
    (over_remote) => {
        promethean_client::AckError::AlreadyDone
    };
}

macro_rules! runs {
    ($program:ident, $bus:expr) => {{
        let bus = $bus;
        $program::define(&bus).await.unwrap();
        for n in 0..3 {
            $program::publish(&bus, n).await.unwrap();
        }
        let mut stream = $program::stream(&bus).await.unwrap();
        let mut taken = Vec::new();
        for _ in 0..6 {
            let (beat, attempt) = $program::take(&mut stream).await.unwrap();
            taken.push((beat.n, attempt));
        }
        taken.sort();
        assert_eq!(taken, [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]);
        drop(stream);
        let consumer = $program::consume(&bus).await.unwrap();
        bus.caught_up(consumer.group()).await.unwrap();
        assert_eq!($program::go_back(&bus).await.unwrap(), 2);
        assert_eq!($program::behind(&bus).await.unwrap(), 0);
        consumer.stop().await.unwrap();
        assert_eq!($program::look_back(&bus).await.unwrap(), (3, 3, 1));
        assert_eq!($program::give_back(&bus).await.unwrap(), 0);
        let topic: Topic = "beat".parse().unwrap();
        let keys = vec!["1".parse().unwrap(), "7".parse().unwrap()];
        let latest = bus.latest_by_key(&topic, keys).await.unwrap();
        assert!(latest[0].is_some() && latest[1].is_none());
        assert!(!$program::is_lost(&promethean_ack!($program)));
        bus.close().await;
    }};
}

#[tokio::test]
async fn the_same_source_runs_over_both() {
    runs!(over_embedded, promethean::Bus::memory());
    let server = serving();
    runs!(over_remote, promethean_client::Bus::connect(&server.url()).await.unwrap());
}
