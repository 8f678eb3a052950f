//! All metrics: names without prefix, unit and `_total`, which the text form adds.

/// The label of all that came after a limit was reached.
pub(super) const OTHER: &str = "other";

/// What was wrong with a publish.
pub(super) const ERROR_KINDS: [&str; 16] = [
    "event",
    "payload",
    "system_topic",
    "unknown_topic",
    "define",
    "schema",
    "empty",
    "too_large",
    "id_conflict",
    "expectation",
    "unavailable",
    "busy",
    "no_space",
    "storage_failed",
    "indeterminate",
    "closed",
];

/// Why an event became a dead letter.
pub(super) const DEAD_LETTER_REASONS: [&str; 6] =
    ["refused", "lease_expired", "member_lost", "permanent", "process_lost", OTHER];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Stands at the end of the name.
    pub(super) unit: Option<&'static str>,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    /// What dashboards from before the prefix know it by.
    pub(super) older: Option<&'static str>,
}

impl Description {
    const fn new(kind: Kind, name: &'static str, labels: &'static [&'static str]) -> Self {
        Self { name, kind, unit: None, labels, help: "", older: None }
    }

    const fn in_unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    const fn once(self, older: &'static str) -> Self {
        Self { older: Some(older), ..self }
    }
}

const NONE: &[&str] = &[];
const TOPIC: &[&str] = &["topic"];
const GROUP: &[&str] = &["group"];
const FEED: &[&str] = &["feed"];
const PAIR: &[&str] = &["topic", "group"];

const fn counter(name: &'static str, labels: &'static [&'static str]) -> Description {
    Description::new(Kind::Counter, name, labels)
}

const fn gauge(name: &'static str, labels: &'static [&'static str]) -> Description {
    Description::new(Kind::Gauge, name, labels)
}

const fn times(name: &'static str, labels: &'static [&'static str]) -> Description {
    Description::new(Kind::Histogram, name, labels).in_unit("seconds")
}

pub(super) static PUBLISHED: Description = counter("events_published", TOPIC)
    .help("Events that were stored; what was there already is not counted again")
    .once("events_published");
pub(super) static DUPLICATES: Description = counter("events_duplicate", TOPIC)
    .help("Events that were published again with the same id, so that nothing was added");
pub(super) static PUBLISH_ERRORS: Description =
    counter("publish_errors", &["kind"]).help("Publish calls that were refused or failed");
pub(super) static PUBLISH_DURATION: Description = times("publish_duration", NONE)
    .help("From a publish call to its answer, once the events are durable; without failed ones");
pub(super) static SCHEMA_EVENTS: Description = counter("schema_events", &["topic", "outcome"])
    .help("Events that met the schemas of their topic, by what came of it");
pub(super) static POLL_DURATION: Description = times("poll_duration", GROUP)
    .help("Reads of the store for a group; pages that another group has just read are not reads")
    .once("subscribe_poll_duration");
pub(super) static DELIVERED: Description = counter("events_delivered", PAIR)
    .help("Deliveries to members, all attempts")
    .once("events_delivered");
pub(super) static LATENCY: Description = times("delivery_latency", GROUP)
    .help("From the store taking an event to its first delivery")
    .once("delivery_latency");
pub(super) static HANDLER_DURATION: Description = times("handler_duration", GROUP)
    .help("Runs of a handler, failed ones included")
    .once("delivery_handler_duration");
pub(super) static INFLIGHT: Description = gauge("events_inflight", PAIR)
    .help("Events that are out to members on a lease")
    .once("events_inflight");
pub(super) static ACKED: Description =
    counter("events_acked", PAIR).help("Events that were acked").once("events_acked");
pub(super) static NACKED: Description = counter("events_nacked", PAIR)
    .help("Deliveries that their consumer refused: to be tried again, parked or skipped")
    .once("events_nacked");
pub(super) static REDELIVERIES: Description =
    counter("group_redeliveries", PAIR).help("Deliveries of an event after its first one");
pub(super) static LEASES_EXPIRED: Description =
    counter("leases_expired", PAIR).help("Leases that ran out without an answer");
pub(super) static DEAD_LETTERS: Description =
    counter("dead_letters", PAIR).help("Events that were given up on");
pub(super) static DLQ_ADDED: Description =
    counter("dlq_added", &["reason"]).help("Events that were given up on, by reason");
pub(super) static LAG_EVENTS: Description = gauge("group_lag", PAIR)
    .in_unit("events")
    .help("Events that the group has not finished, those that are out included");
pub(super) static LAG_SECONDS: Description = gauge("group_lag", PAIR)
    .in_unit("seconds")
    .help("Time between the oldest unfinished event and the newest event of the partition");
pub(super) static OLDEST_AGE: Description = gauge("group_oldest_unacked_age", PAIR)
    .in_unit("seconds")
    .help("Age of the oldest unfinished event; 0 if there is none");
pub(super) static ACK_HOLES: Description = gauge("group_ack_holes", PAIR)
    .in_unit("events")
    .help("Finished events beyond the cursor, which an unfinished one holds back");
pub(super) static MEMBERS: Description =
    gauge("group_members", GROUP).help("Members in this process");
pub(super) static GROUP_FAILED: Description =
    gauge("group_failed", GROUP).help("1 if the group has stopped after a failure, 0 otherwise");
pub(super) static OPLOG_HEADROOM: Description = gauge("changefeed_oplog_headroom", FEED)
    .in_unit("seconds")
    .help("How much further than the feed's place the history of its MongoDB reaches back");
pub(super) static FEED_STOPPED: Description = gauge("changefeed_stopped", FEED).help(
    "1 if the feed waits for somebody, because its history is lost or it failed, 0 otherwise",
);
pub(super) static STORE_FAILED: Description =
    gauge("store_failed", NONE).help("1 if the store takes no more writes, 0 otherwise");
pub(super) static SCRAPE_ERRORS: Description = counter("scrape_errors", NONE)
    .help("Groups and partitions that were left out of a scrape because they could not be read");

/// In the order in which an event meets them.
#[cfg(test)]
pub(super) static ALL: [&Description; 26] = [
    &PUBLISHED,
    &DUPLICATES,
    &PUBLISH_ERRORS,
    &PUBLISH_DURATION,
    &SCHEMA_EVENTS,
    &POLL_DURATION,
    &DELIVERED,
    &LATENCY,
    &HANDLER_DURATION,
    &INFLIGHT,
    &ACKED,
    &NACKED,
    &REDELIVERIES,
    &LEASES_EXPIRED,
    &DEAD_LETTERS,
    &DLQ_ADDED,
    &LAG_EVENTS,
    &LAG_SECONDS,
    &OLDEST_AGE,
    &ACK_HOLES,
    &MEMBERS,
    &GROUP_FAILED,
    &OPLOG_HEADROOM,
    &FEED_STOPPED,
    &STORE_FAILED,
    &SCRAPE_ERRORS,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

    fn row(metric: &Description) -> String {
        let mut name = format!("promethean_{}", metric.name);
        let mut older = metric.older.map(str::to_owned);
        for name in [Some(&mut name), older.as_mut()].into_iter().flatten() {
            if let Some(unit) = metric.unit {
                *name += &format!("_{unit}");
            }
            if metric.kind == Kind::Counter {
                *name += "_total";
            }
        }
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let older = older.map(|older| format!("`{older}`")).unwrap_or_default();
        let cells = [format!("`{name}`"), kind, labels.join(", "), metric.help.into(), older];
        let cells = cells.map(|cell| if cell.is_empty() { String::new() } else { cell + " " });
        format!("| {}|", cells.join("| "))
    }

    /// The document lists exactly what there is.
    #[test]
    fn the_document_is_the_catalogue() {
        let rows: Vec<_> = ALL.iter().map(|metric| row(metric)).collect();
        let listed: Vec<_> =
            DOCUMENT.lines().filter(|line| line.starts_with("| `promethean_")).collect();
        assert_eq!(listed, rows, "\n{}\n", rows.join("\n"));
        for word in ERROR_KINDS.iter().chain(&DEAD_LETTER_REASONS) {
            assert!(DOCUMENT.contains(&format!("`{word}`")), "{word}");
        }
    }

    /// Pitfall 45: the wrong unit and a reserved suffix in names.
    #[test]
    fn names_are_in_base_units_and_leave_suffixes_to_the_text_form() {
        let reserved = ["_total", "_bucket", "_sum", "_count", "_created", "_info", "_ms"];
        let mut seen = HashSet::new();
        for metric in ALL {
            assert!(seen.insert((metric.name, metric.unit)), "{} twice", metric.name);
            assert!(!reserved.iter().any(|suffix| metric.name.ends_with(suffix)), "{metric:?}");
            assert!(matches!(metric.unit, None | Some("seconds" | "events")), "{metric:?}");
            assert_eq!(
                metric.kind == Kind::Histogram,
                metric.name.ends_with("_duration") || metric.name.ends_with("_latency"),
                "{metric:?}"
            );
            assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{metric:?}");
        }
    }
}
