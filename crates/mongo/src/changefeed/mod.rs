//! Changefeeds: what changes in a collection of the user's, as events of a topic of any bus.
//!
//! A feed begins with what is there (the *snapshot*), and goes on with the change stream from the
//! moment before: that moment is noted first, so that nothing falls in between. What changes during
//! the snapshot comes once more from the stream, after it, so that every document ends right.
//!
//! **Publishing again adds nothing.** The id of an event is made of the feed's name and the change's
//! resume token; that of a document of the snapshot, of the snapshot and its `_id`: what was changed
//! since it was published comes by the stream. Progress is saved after the publish, and on a timer also when nothing was published, so that a quiet feed does not fall
//! out of the server's history.
//!
//! **One at a time.** Progress is a record of the bus's store, written on condition of the one
//! before. Whoever sees it unchanged for the time of a lease takes over, with the next epoch; one
//! that was only asleep fails to save, and stops. It publishes nothing before it has tried, because
//! what it has read may be older than what the other one has published.
//!
//! **A delete is a tombstone** of the document's key. An update carries the document: as it was
//! right after the change if the collection keeps post-images; otherwise as MongoDB looks it up,
//! which may be newer, and the header [`HEADER_DOCUMENT`] says so. An image that is not there, and
//! the document of a change that is too large to be sent, are looked up here.
//!
//! **Lost history stops a feed**, with the gap in its record, until somebody says how to go on
//! ([`promethean::changefeed::Recovery`]). So does another collection in the place of the one it read:
//! that was dropped or renamed, and nobody has told what became of its documents.
//!
//! Modules are listed in the order in which a change meets them.

mod change;

mod decide;

mod key;

mod guard;

mod snapshot;

mod stream;

mod origin;

mod hold;

mod publishing;

mod headroom;

mod recovery;

mod runner;

mod examine;

pub use decide::{HEADER_CLUSTER_TIME, HEADER_DOCUMENT, HEADER_OP, HEADER_OVERSIZE};
pub use examine::examine;
pub use recovery::GAP_TOPIC;
pub use runner::{Changefeed, FeedEnd, FeedOptions};

use mongodb::bson::Timestamp;
use promethean::changefeed::ClusterTime;

fn cluster_time(Timestamp { time, increment }: Timestamp) -> ClusterTime {
    ClusterTime { seconds: time, increment }
}

fn timestamp(ClusterTime { seconds, increment }: ClusterTime) -> Timestamp {
    Timestamp { time: seconds, increment }
}
