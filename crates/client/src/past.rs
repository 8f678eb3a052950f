//! Views of a server, as they were.

use promethean_event::{EventId, Position, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{GroupError, ReadError};
use crate::http::{Ask, Lines, broken};
use crate::views::{Document, Views, path};

/// An earlier moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// What the store had taken by then: what was known. Later events change nothing of it.
    Appended(Timestamp),
    /// What had happened by then, by event time, as it is known today: a late event changes it.
    Happened(Timestamp),
    /// Up to this event, and with it.
    Position(Position),
}

impl Moment {
    fn text(&self) -> String {
        match self {
            Self::Appended(time) | Self::Happened(time) => time.to_string(),
            Self::Position(position) => position.to_string(),
        }
    }

    /// By what time is told, if it is a time.
    const fn by(&self) -> Option<&'static str> {
        match self {
            Self::Appended(_) => Some("append"),
            Self::Happened(_) => Some("event"),
            Self::Position(_) => None,
        }
    }
}

/// An event, as the past tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct EventRef {
    /// Its id.
    pub id: EventId,
    /// Where it stands.
    pub position: Position,
    /// Its own time.
    pub ts: Timestamp,
    /// When the store took it.
    pub appended_at: Timestamp,
    /// What led to it.
    #[serde(default)]
    pub caused_by: Vec<EventId>,
}

/// A document at a moment, or why there is none.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Past<D = Document> {
    /// It was this one.
    Document {
        /// The document.
        document: Box<D>,
        /// The events that it was built from, the last one last.
        events: Vec<EventRef>,
        /// False if events between these and the moment may be gone.
        is_complete: bool,
    },
    /// It had been deleted.
    Deleted {
        /// By the last of these.
        events: Vec<EventRef>,
        /// As above.
        is_complete: bool,
    },
    /// It had never been there.
    NeverExisted,
    /// Nothing from before the moment is kept.
    BeforeHistory {
        /// The first event of the key that is kept, if there is one.
        first: Option<EventRef>,
        /// The first place that is kept.
        starts_at: Position,
    },
}

#[derive(Deserialize)]
struct Explained<D> {
    outcome: String,
    document: Option<D>,
    #[serde(default)]
    events: Vec<EventRef>,
    history_starts_at: Option<HistoryStart>,
    #[serde(default)]
    complete: bool,
}

#[derive(Deserialize)]
struct HistoryStart {
    position: Position,
    first_of_key: Option<EventRef>,
}

impl<D> Explained<D> {
    fn past(self) -> Result<Past<D>, GroupError> {
        let (events, is_complete) = (self.events, self.complete);
        match (self.outcome.as_str(), self.document, self.history_starts_at) {
            ("document", Some(document), _) => {
                Ok(Past::Document { document: Box::new(document), events, is_complete })
            }
            ("deleted", ..) => Ok(Past::Deleted { events, is_complete }),
            ("never_existed", ..) => Ok(Past::NeverExisted),
            ("before_history", _, Some(start)) => {
                let (first, starts_at) = (start.first_of_key, start.position);
                Ok(Past::BeforeHistory { first, starts_at })
            }
            (other, ..) => Err(GroupError::NotUnderstood(format!("the outcome {other:?}"))),
        }
    }
}

/// One change of a document, as JSON Patch (RFC 6902) has it, with the event behind it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// `add`, `remove` or `replace`.
    pub op: String,
    /// Where, as a JSON pointer.
    pub path: String,
    /// What is there afterwards.
    pub value: Option<Value>,
    /// What was there before, where that is told.
    pub was: Option<Value>,
    /// The last event that changed it; a step of a history is its own.
    pub event: Option<EventRef>,
}

/// Since when a member is what it is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Blame {
    /// The member, as a JSON pointer.
    pub pointer: String,
    /// What it is; nothing if it is not there any more.
    pub value: Option<Value>,
    /// What it was before.
    pub was: Option<Value>,
    /// The event since which it is so.
    pub event: Option<EventRef>,
}

/// The events of a key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct History {
    /// How many there are.
    pub events: u64,
    /// Whether none of them is gone.
    #[serde(rename = "complete")]
    pub is_complete: bool,
    /// The newest of them, newest first.
    pub steps: Vec<PastStep>,
}

/// An event of a key, and what it did.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct PastStep {
    /// The event.
    #[serde(flatten)]
    pub event: EventRef,
    /// `put`, `delete`, `stale` or `ignored`.
    pub effect: String,
    /// What has changed with it.
    pub patch: Vec<Change>,
}

#[derive(Deserialize)]
struct Compared {
    patch: Vec<Change>,
}

#[derive(Deserialize)]
struct Blamed {
    members: Vec<Blame>,
}

impl Views {
    /// The document of a key at a moment.
    pub async fn at(&self, view: &str, key: &str, at: &Moment) -> Result<Past, ReadError> {
        self.asked_at(view, key, at, None).await
    }

    /// The events of a key up to a moment, folded by a CEL expression over `state`, which is null
    /// at first, and the event: `state == null ? payload.n : state + payload.n`.
    pub async fn reduce<T: DeserializeOwned>(
        &self,
        view: &str,
        key: &str,
        at: &Moment,
        expression: &str,
    ) -> Result<Past<T>, ReadError> {
        self.asked_at(view, key, at, Some(expression)).await
    }

    async fn asked_at<T: DeserializeOwned>(
        &self,
        view: &str,
        key: &str,
        at: &Moment,
        reduce: Option<&str>,
    ) -> Result<Past<T>, ReadError> {
        let time = at.text();
        let mut query = vec![("at", time.as_str())];
        query.extend(at.by().map(|by| ("by", by)));
        query.extend(reduce.map(|reduce| ("reduce", reduce)));
        let ask = Ask::get(&path(view, "at", Some(key)), &query);
        self.bus.inner.http.ask::<Explained<T>>(ask).await?.past()
    }

    /// All documents of a view at a moment, as they come. A position is a moment of one key, and
    /// refused here.
    pub async fn at_all(&self, view: &str, at: &Moment) -> Result<PastScan, ReadError> {
        let time = at.text();
        let mut query = vec![("at", time.as_str())];
        query.extend(at.by().map(|by| ("by", by)));
        let lines = self.bus.inner.http.lines(Ask::get(&path(view, "at", None), &query)).await?;
        Ok(PastScan { lines, unknown: 0, is_over: false })
    }

    /// What has changed in a document from one moment to another. Both are times of the same kind,
    /// or positions.
    pub async fn diff(
        &self,
        view: &str,
        key: &str,
        from: &Moment,
        to: &Moment,
    ) -> Result<Vec<Change>, ReadError> {
        let kinds = [from.by(), to.by()];
        if kinds.contains(&Some("append")) && kinds.contains(&Some("event")) {
            let text = "the two moments are told by different times; take both by the same";
            return Err(GroupError::Settings(text.to_owned()));
        }
        let (since, until) = (from.text(), to.text());
        let mut query = vec![("from", since.as_str()), ("to", until.as_str())];
        query.extend(from.by().or(to.by()).map(|by| ("by", by)));
        let ask = Ask::get(&path(view, "diff", Some(key)), &query);
        Ok(self.bus.inner.http.ask::<Compared>(ask).await?.patch)
    }

    /// Since which event a member is what it is, named by a JSON pointer such as `/status`; without
    /// one, each member.
    pub async fn why(
        &self,
        view: &str,
        key: &str,
        pointer: Option<&str>,
    ) -> Result<Vec<Blame>, ReadError> {
        let query: Vec<_> = pointer.map(|pointer| ("pointer", pointer)).into_iter().collect();
        let ask = Ask::get(&path(view, "why", Some(key)), &query);
        Ok(self.bus.inner.http.ask::<Blamed>(ask).await?.members)
    }

    /// The events of a key, newest first, with what each has changed; so many at most.
    pub async fn history(&self, view: &str, key: &str, max: usize) -> Result<History, ReadError> {
        let limit = max.clamp(1, 1_000).to_string();
        let ask = Ask::get(&path(view, "history", Some(key)), &[("limit", &limit)]);
        self.bus.inner.http.ask(ask).await
    }
}

/// All documents of a view at a moment. They come in no order that means anything.
#[derive(Debug)]
pub struct PastScan {
    lines: Lines,
    unknown: u64,
    is_over: bool,
}

/// The last line of the answer.
#[derive(Deserialize)]
struct End {
    #[serde(default)]
    before_history: u64,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    // First: a document may have a member of that name, but the last line has no key.
    Document(Box<Document>),
    End { end: End },
}

impl PastScan {
    /// The next document; `None` after the last. An answer that breaks off is an error.
    pub async fn next(&mut self) -> Result<Option<Document>, ReadError> {
        if self.is_over {
            return Ok(None);
        }
        let Some(line) = self.lines.next().await? else {
            return Err(broken("there was no last line"));
        };
        let line = serde_json::from_slice(&line)
            .map_err(|error| GroupError::NotUnderstood(error.to_string()))?;
        match line {
            Line::Document(document) => Ok(Some(*document)),
            Line::End { end: End { error: Some(error), .. } } => Err(broken(&error)),
            Line::End { end } => {
                (self.unknown, self.is_over) = (end.before_history, true);
                Ok(None)
            }
        }
    }

    /// Keys of which nothing from before the moment is kept, so that what they were is not known.
    /// All of them once there are no more documents.
    pub const fn unknown(&self) -> u64 {
        self.unknown
    }
}
