//! How much longer MongoDB remembers what a feed has not read yet.

use super::hold::{Hold, Source, place};
use super::stream;
use crate::limits::FEED_AGE_ALARM_S_MIN;

impl Hold<'_> {
    /// Notes it; says so once when it is little.
    pub(super) async fn look_back(&mut self, source: &Source) {
        let history = stream::history(&source.cluster).await;
        let seconds = |from: u32, to: u32| u64::from(to.saturating_sub(from));
        let status = &mut self.status;
        status.oplog_window_seconds =
            history.map(|history| seconds(history.oldest.seconds, history.now.seconds));
        let known = history.zip(place(&status.phase));
        status.oplog_headroom_seconds =
            known.map(|(history, place)| seconds(history.oldest.seconds, place.seconds));
        let behind = known.and_then(|(history, place)| {
            let age = seconds(place.seconds, history.now.seconds);
            behind(age, seconds(history.oldest.seconds, history.now.seconds))
        });
        if let (None, Some(behind)) = (&status.behind, &behind) {
            tracing::warn!(feed = self.feed.name, behind, "a changefeed is far behind");
        }
        status.behind = behind;
    }
}

/// What to say of a feed that stands so many seconds back, where the history reaches back so many. A
/// set that was just made has little of it, and has forgotten nothing.
fn behind(age: u64, window: u64) -> Option<String> {
    let headroom = window.saturating_sub(age);
    (age >= FEED_AGE_ALARM_S_MIN && headroom < window.div_ceil(2)).then(|| {
        format!(
            "it stands {age} s back, and MongoDB's history reaches back {window} s: less than half of \
             that is left before changes are lost; resume it, or give MongoDB a larger oplog"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_half_of_the_history_is_an_alarm() {
        let hour = 3_600;
        assert_eq!(behind(0, hour), None);
        assert_eq!(behind(hour / 2, hour), None);
        let text = behind(hour / 2 + 1, hour).unwrap();
        assert!(text.contains("1801 s back") && text.contains("3600 s"), "{text}");
        assert!(behind(3 * hour, hour).is_some());
        // A set that is one minute old.
        assert_eq!(behind(50, 59), None);
    }
}
