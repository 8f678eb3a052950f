//! Every bound of the store.

use std::time::Duration;

/// A payload that would be larger as BSON is kept as text. A document may have 16 MiB at most.
pub(crate) const PAYLOAD_BSON_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Requests that wait for the writer at most.
pub(crate) const REQUESTS_WAITING_MAX: usize = 65_536;
/// Events that go into one transaction at most, if they are of several requests.
pub(crate) const COMMIT_EVENTS_MAX: usize = 4_000;
/// And bytes, about.
pub(crate) const COMMIT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Changes that are remembered so that one who waits for growth is told which lanes grew.
pub(crate) const RECENT_LANES_MAX: usize = 4096;
/// Events of one commit that other hubs are told themselves, and not only that they are there.
pub(crate) const TAIL_EVENTS_MAX: usize = 8;
/// And bytes of their documents, of one lane.
pub(crate) const TAIL_BYTES_MAX: usize = 8 * 1024;
/// Lanes of which told events are remembered.
pub(crate) const TAILS_MAX: usize = 1_024;
/// How long told events are good for: after that they may have been deleted.
pub(crate) const TAIL_TIME: Duration = Duration::from_secs(1);
/// How long they stay in the database at least.
pub(crate) const TAIL_KEPT: Duration = Duration::from_secs(60);
/// Events of a commit that what is to be told of it goes with: whoever listens has each of them looked
/// at by the server. Of more, it is told behind it.
pub(crate) const NEWS_WITHIN_EVENTS_MAX: usize = 64;
/// How long a hub waits to tell again what it could not.
pub(crate) const NEWS_PAUSE: Duration = Duration::from_millis(100);
/// How long what a hub has told stays in the database at least.
pub(crate) const NEWS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How often the ends of lanes are looked at even if all is told: a hub that was killed may have kept
/// its last commit to itself.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Lanes whose ends are remembered.
pub(crate) const LANES_KNOWN_MAX: usize = 65_536;
/// Groups whose state is remembered.
pub(crate) const GROUPS_KNOWN_MAX: usize = 4_096;
/// Events that are asked for by one command at most.
pub(crate) const READ_EVENTS_MAX: usize = 1_000;
/// And at least: of other topics they may be smaller.
pub(crate) const READ_EVENTS_MIN: usize = 64;
/// Commands that a page is read by, about.
pub(crate) const READS_IN_PAGE: usize = 4;
/// How large an event is taken to be before any was read.
pub(crate) const EVENT_BYTES_GUESSED: usize = 512;
/// Look-ups that are under way at once for one call.
pub(crate) const LOOKUPS_AT_ONCE: usize = 16;
/// Events of one key that are passed over before the next key is looked for by itself.
pub(crate) const KEY_REPEATS_MAX: usize = 32;
/// Events that are deleted by one command at most.
pub(crate) const DELETE_EVENTS_MAX: u64 = 10_000;
/// Ids that are looked for by one command at most.
pub(crate) const IDS_AT_ONCE: usize = 1_000;
/// The first pause before a transaction that lost against another one is tried again.
pub(crate) const RETRY_MIN: Duration = Duration::from_millis(2);
/// The longest one.
pub(crate) const RETRY_MAX: Duration = Duration::from_millis(250);
/// How much longer it is waited for somebody who is in the way at a lane, and will be heard of.
pub(crate) const UNHEARD: u32 = 16;
/// How long the server waits for a change before it says that there is none.
pub(crate) const STREAM_AWAIT: Duration = Duration::from_secs(1);
/// How long a change stream may say nothing at all before it is opened anew, maybe elsewhere.
pub(crate) const STREAM_SILENCE_MAX: Duration = Duration::from_secs(4);
/// How far back the oplog should reach, so that a hub that was away finds its place again.
pub(crate) const OPLOG_HOURS_MIN: u32 = 24;
/// How much longer than it should take a member of the set may wait for another one to answer.
pub(crate) const OPLOG_SILENCE_S_MAX: i32 = 1;
/// How long a member that was elected may wait for what others have, before it takes writes.
pub(crate) const CATCH_UP_MS_MAX: i64 = 1_000;
/// How far the clock of a hub may be from that of the server.
pub(crate) const CLOCK_SKEW_MS_MAX: u64 = 1_000;
/// The least version of the server: earlier ones refuse names with dots, and lack much else.
pub(crate) const SERVER_MAJOR_MIN: i64 = 5;
/// A transaction that nothing has happened in for so long is nobody's any more. Ours take
/// milliseconds between their commands; those in which users' code runs have [`HANDLING_TIME`], for as
/// long as their hub is connected.
pub(crate) const ABANDONED_AFTER: Duration = Duration::from_secs(1);
/// How long what a projection has not read is kept although no hub keeps the projection: over a
/// deployment or an outage, and not for ever if it was given up.
pub(crate) const PROJECTION_AWAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long the making of a view's indexes is waited for before it is looked at again.
pub(crate) const VIEW_INDEX_WAIT: Duration = Duration::from_secs(600);
/// How long the events of one transaction of a user's may be worked on before the rest is left to
/// the next one. Servers end a transaction after a minute.
pub(crate) const HANDLING_TIME: Duration = Duration::from_secs(15);
/// And the transaction as a whole, tries included.
pub(crate) const HANDLING_TIME_MAX: Duration = Duration::from_secs(50);
/// Bytes of documents after which a page of a feed's snapshot ends. What the driver has fetched beside
/// them may be 16 MiB.
pub(crate) const FEED_PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of changes after which what a feed has read is published.
pub(crate) const FEED_BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of payloads after which a feed begins another batch. One has as much again at most, and the
/// rest of the events takes room, too.
pub(crate) const FEED_CHUNK_BYTES: usize = promethean_event::limits::BATCH_BYTES_MAX / 4;
/// A feed that stands back less than that is not told to be behind, however short the history is.
pub(crate) const FEED_AGE_ALARM_S_MIN: u64 = 60;

const _: () = assert!(ABANDONED_AFTER.as_secs() < HANDLING_TIME.as_secs());
const _: () = assert!(HANDLING_TIME.as_secs() * 2 <= HANDLING_TIME_MAX.as_secs());
