//! Waking those who wait for growth. A mark holds two counters: frames of the log with events of
//! users, and changes of the topics.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use promethean_log::{self as log, Log};

use super::journal::Journal;
use super::translate::lane;
use crate::store::Growth;

const TOPICS_BITS: u32 = 24;
const TOPICS_MASK: u64 = (1 << TOPICS_BITS) - 1;

pub(super) async fn grown(log: &Log, journal: &Journal, mark: u64) -> Growth {
    let (frames, topics) = (mark >> TOPICS_BITS, mark & TOPICS_MASK);
    loop {
        let mut changed = pin!(journal.topics_changed());
        // Listening before looking: what happens in between is heard.
        changed.as_mut().enable();
        let now = journal.topics_version() & TOPICS_MASK;
        let growth = poll_fn(|context| {
            let growth = log.poll_growth(frames, context);
            if growth.is_pending() && now != topics {
                let unchanged =
                    log::Growth { mark: frames, lanes: Some(Vec::new()), closed: false };
                return Poll::Ready(Some(unchanged));
            }
            match growth {
                Poll::Ready(growth) => Poll::Ready(Some(growth)),
                Poll::Pending => changed.as_mut().poll(context).map(|()| None),
            }
        });
        let Some(growth) = growth.await else { continue };
        let lanes = growth
            .lanes
            .map(|lanes| lanes.into_iter().map(|(grown, end)| (lane(grown), end)).collect());
        return Growth {
            mark: growth.mark << TOPICS_BITS | now,
            lanes,
            topics_changed: now != topics,
            hubs_changed: false,
            closed: growth.closed,
        };
    }
}
