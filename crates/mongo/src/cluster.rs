//! The connection: its options, what the server must be, the collections and their indexes.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Document, doc};
use mongodb::options::{
    ClientOptions, DatabaseOptions, IndexOptions, ReadConcern, ReadPreference, SelectionCriteria,
    WriteConcern,
};
use mongodb::{Client, Collection, Database, IndexModel};
use promethean::migration::Mark;
use promethean_event::EventId;

use crate::clock::Deadline;
use crate::fault::{Fault, describe, too_late};
use crate::limits::SERVER_MAJOR_MIN;
use crate::options::MongoOptions;
use crate::reading::EventSizes;

/// Why a store on MongoDB could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not a connection string.
    #[error(
        "the connection string is refused: {0}; write it as mongodb://host:port/?replicaSet=name"
    )]
    BadUrl(String),
    /// Nobody answers, or nobody who may.
    #[error("{0}; see that MongoDB runs and that the connection string is right")]
    Unreachable(String),
    /// A server that stands alone.
    #[error(
        "the MongoDB server stands alone, and has neither transactions nor change streams; make it a \
         replica set (one member is enough): start mongod with --replSet NAME, run rs.initiate() once"
    )]
    Standalone,
    /// A server that is too old.
    #[error("MongoDB {0} is too old; {SERVER_MAJOR_MIN}.0 or later is needed")]
    TooOld(String),
    /// The database is part of a move to another store, or was.
    #[error("{0}")]
    Moved(Mark),
    /// Collections or indexes could not be made.
    #[error("the collections could not be prepared: {0}")]
    Preparation(String),
}

/// The database, and its collections.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) database: Database,
    pub(crate) events: Collection<RawDocumentBuf>,
    /// Where each lane starts and ends.
    pub(crate) lanes: Collection<Document>,
    pub(crate) topics: Collection<Document>,
    pub(crate) groups: Collection<Document>,
    /// How groups stand in lanes.
    pub(crate) cursors: Collection<Document>,
    pub(crate) entries: Collection<Document>,
    /// The hubs that use the database.
    pub(crate) hubs: Collection<Document>,
    /// Numbers that are given once.
    pub(crate) counters: Collection<Document>,
    /// What hubs tell each other.
    pub(crate) news: Collection<Document>,
    /// Whose news they are.
    pub(crate) name: Arc<str>,
    pub(crate) event_sizes: Arc<EventSizes>,
    /// What the client was made of; nothing if it is the user's.
    client_options: Option<Arc<ClientOptions>>,
    deadline: Duration,
    /// When all that is asked of this one has to be done, if that is sooner.
    until: Option<Deadline>,
}

/// What a database of ours holds.
pub(crate) const COLLECTIONS: [&str; 9] =
    ["events", "lanes", "topics", "groups", "cursors", "entries", "counters", "hubs", NEWS];

const NEWS: &str = "news";

/// How other programs see us among the connections of a server.
pub(crate) const APP_NAME: &str = "promethean";
/// The same for connections by which users' code writes: its transactions may rest for longer than ours.
/// Nothing else that one can give a transaction is shown of those that rest.
pub(crate) const HANDLERS_APP_NAME: &str = "promethean-handlers";

/// By a majority, and in its journals.
pub(crate) fn durable() -> WriteConcern {
    WriteConcern::builder().w(mongodb::options::Acknowledgment::Majority).journal(true).build()
}

impl Cluster {
    /// Connects, and makes what is missing.
    pub(crate) async fn connect(url: &str, options: &MongoOptions) -> Result<Self, OpenError> {
        let cluster = Self::reach(url, options).await?;
        cluster.prepare().await?;
        Ok(cluster)
    }

    /// Connects, and sees that the server is one that will do.
    pub(crate) async fn reach(url: &str, options: &MongoOptions) -> Result<Self, OpenError> {
        let parsed = ClientOptions::parse(url).await;
        let bad_url = |error: mongodb::error::Error| {
            OpenError::BadUrl(without_password(url, &error.to_string()))
        };
        let mut client_options = parsed.map_err(bad_url)?;
        // Only what was acknowledged by a majority, and is in its journals, counts; and only what
        // cannot be taken back is read. No connection string may say otherwise.
        client_options.write_concern = Some(durable());
        client_options.read_concern = Some(ReadConcern::majority());
        client_options.selection_criteria =
            Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        client_options.retry_writes = Some(true);
        client_options.retry_reads = Some(true);
        client_options.app_name = Some(APP_NAME.to_owned());
        // A primary that is frozen is noticed by those who ask it often.
        client_options.heartbeat_freq.get_or_insert(Duration::from_secs(2));
        client_options.connect_timeout.get_or_insert(Duration::from_secs(3));
        client_options.server_selection_timeout.get_or_insert(options.deadline);
        let name = client_options.default_database.clone();
        let client = Client::with_options(client_options.clone()).map_err(bad_url)?;
        let database = client.database(name.as_deref().unwrap_or(&options.database));
        let mut cluster = Self::of(client, database, options.deadline);
        cluster.client_options = Some(Arc::new(client_options));
        cluster.check().await.map_err(|error| match error {
            OpenError::Unreachable(text) => OpenError::Unreachable(without_password(url, &text)),
            other => other,
        })?;
        Ok(cluster)
    }

    fn of(client: Client, database: Database, deadline: Duration) -> Self {
        Self {
            events: database.collection("events"),
            lanes: database.collection("lanes"),
            topics: database.collection("topics"),
            groups: database.collection("groups"),
            cursors: database.collection("cursors"),
            entries: database.collection("entries"),
            hubs: database.collection("hubs"),
            counters: database.collection("counters"),
            news: database.collection(NEWS),
            name: EventId::generate().to_string().into(),
            event_sizes: Arc::default(),
            client,
            database,
            client_options: None,
            deadline,
            until: None,
        }
    }

    /// The same database by connections of its own, for transactions in which users' code runs.
    pub(crate) fn for_handlers(&self) -> Self {
        let Some(options) = &self.client_options else { return self.clone() };
        let mut options = ClientOptions::clone(options);
        options.app_name = Some(self.handlers_app_name());
        // A client has been made of these before.
        let Ok(client) = Client::with_options(options) else { return self.clone() };
        let database = client.database(self.database.name());
        Self::of(client, database, self.deadline)
    }

    /// What those connections are called, of this hub and of no other.
    pub(crate) fn handlers_app_name(&self) -> String {
        format!("{HANDLERS_APP_NAME}/{}", self.name)
    }

    /// A database of the user's, by the user's client, with the concerns that ours has.
    pub(crate) fn over(database: &Database) -> Self {
        let client = database.client().clone();
        let options = DatabaseOptions::builder()
            .write_concern(durable())
            .read_concern(ReadConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .build();
        let database = client.database_with_options(database.name(), options);
        Self::of(client, database, MongoOptions::default().deadline)
    }

    /// Makes a collection; one that is there stays.
    pub(crate) async fn make_collection(&self, name: &str) -> Result<(), Fault> {
        match self.ask(self.database.create_collection(name)).await {
            Err(Fault::Refused(text)) if text.contains("already exists") => Ok(()),
            other => other,
        }
    }

    /// How long something may take.
    pub(crate) const fn patience(&self) -> Duration {
        self.deadline
    }

    /// The moment by which something that begins now has to be done.
    pub(crate) fn deadline(&self) -> Deadline {
        let usual = Deadline::after(self.deadline);
        self.until.map_or(usual, |until| until.min(usual))
    }

    /// The same for something that has to be done by a moment, however many calls it takes.
    pub(crate) fn until(&self, deadline: Deadline) -> Self {
        Self { until: Some(deadline), ..self.clone() }
    }

    /// What a call of the driver comes to, in time.
    pub(crate) async fn ask<T>(
        &self,
        call: impl IntoFuture<Output = mongodb::error::Result<T>>,
    ) -> Result<T, Fault> {
        let answer = self.deadline().hold(call).await;
        Ok(answer.ok_or_else(too_late)??)
    }

    async fn check(&self) -> Result<(), OpenError> {
        let admin = self.client.database("admin");
        let ask = async |command: Document| {
            let answer = self.deadline().hold(admin.run_command(command)).await;
            let answer = answer.ok_or_else(|| {
                OpenError::Unreachable("MongoDB did not answer in time".to_owned())
            })?;
            answer.map_err(|error| OpenError::Unreachable(describe(&error)))
        };
        let hello = ask(doc! { "hello": 1 }).await?;
        let in_set = hello.contains_key("setName");
        if !in_set && hello.get_str("msg").ok() != Some("isdbgrid") {
            return Err(OpenError::Standalone);
        }
        let build = ask(doc! { "buildInfo": 1 }).await?;
        check_version(build.get_str("version").unwrap_or_default())
    }

    /// Whether the database has our collections.
    pub(crate) async fn is_prepared(&self) -> Result<bool, OpenError> {
        let names = self.ask(self.database.list_collection_names()).await;
        let names = names.map_err(|fault| OpenError::Unreachable(fault.to_string()))?;
        // What hubs tell each other may be missing: earlier ones told it otherwise.
        let mut needed = COLLECTIONS.iter().filter(|name| **name != NEWS);
        Ok(needed.all(|name| names.iter().any(|there| there == name)))
    }

    /// Makes collections and indexes. Those that are there stay.
    async fn prepare(&self) -> Result<(), OpenError> {
        let failed = |fault: Fault| OpenError::Preparation(fault.to_string());
        let names = self.ask(self.database.list_collection_names()).await;
        let names = names.map_err(failed)?;
        // Before the first transaction: in one, making a collection would be another conflict.
        for name in COLLECTIONS {
            if !names.iter().any(|there| there == name) {
                self.make_collection(name).await.map_err(failed)?;
            }
        }
        for name in COLLECTIONS {
            let indexes = indexes_of(name);
            if !indexes.is_empty() {
                let collection = self.database.collection::<Document>(name);
                self.ask(collection.create_indexes(indexes)).await.map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// The name of the index that orders a lane.
pub(crate) const BY_OFFSET: &str = "by_offset";
pub(crate) const BY_ID: &str = "by_id";
pub(crate) const BY_KEY: &str = "by_key";
pub(crate) const BY_TIME: &str = "by_time";
pub(crate) const TOMBSTONES: &str = "tombstones";

/// What a message says, without the password of the connection string: it may be shown to anybody.
fn without_password(url: &str, text: &str) -> String {
    let after = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A password with an unescaped `@` in it is one of those that are refused.
    let password = after.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    match password {
        Some((_, password)) if !password.is_empty() => text.replace(password, "***"),
        _ => text.to_owned(),
    }
}

/// Whether a server of this version will do. One that does not say which it has will not.
fn check_version(version: &str) -> Result<(), OpenError> {
    let major = version.split('.').next().and_then(|major| major.parse::<i64>().ok());
    match major {
        Some(SERVER_MAJOR_MIN..) => Ok(()),
        _ => Err(OpenError::TooOld(version.to_owned())),
    }
}

/// The indexes of a collection of ours, besides that of `_id`.
pub(crate) fn indexes_of(collection: &str) -> Vec<IndexModel> {
    match collection {
        "events" => event_indexes(),
        "topics" => vec![index("topic_by_name", doc! { "name": 1 }, true)],
        "cursors" => vec![
            index("cursors_of_group", doc! { "group": 1, "lane": 1 }, true),
            index("cursors_of_topic", doc! { "topic_id": 1 }, false),
        ],
        "entries" => vec![index("entries_of_space", doc! { "space": 1, "key": 1 }, true)],
        _ => Vec::new(),
    }
}

/// The fields by which documents of a collection must not be there twice. The `_id` of an event says
/// nothing.
pub(crate) fn unique_fields(collection: &str) -> Vec<Vec<String>> {
    let is_unique = |index: &IndexModel| {
        index.options.as_ref().is_some_and(|options| options.unique == Some(true))
    };
    let by_id = (collection != "events").then(|| vec!["_id".to_owned()]);
    let indexes = indexes_of(collection).into_iter().filter(is_unique);
    by_id.into_iter().chain(indexes.map(|index| index.keys.keys().cloned().collect())).collect()
}

fn event_indexes() -> Vec<IndexModel> {
    let tombstones = IndexOptions::builder()
        .name(TOMBSTONES.to_owned())
        .partial_filter_expression(doc! { "tombstone": true })
        .build();
    vec![
        index(BY_OFFSET, doc! { "topic": 1, "topic_id": 1, "partition": 1, "offset": 1 }, true),
        index(BY_ID, doc! { "topic": 1, "topic_id": 1, "id": 1 }, true),
        index(BY_KEY, doc! { "topic": 1, "topic_id": 1, "key": 1, "offset": -1 }, false),
        index(
            BY_TIME,
            doc! { "topic": 1, "topic_id": 1, "partition": 1, "appendedAt": 1, "offset": 1 },
            false,
        ),
        IndexModel::builder()
            .keys(doc! { "topic": 1, "topic_id": 1, "partition": 1, "offset": 1, "tombstone": 1 })
            .options(tombstones)
            .build(),
    ]
}

fn index(name: &str, keys: Document, unique: bool) -> IndexModel {
    let options = IndexOptions::builder().name(name.to_owned());
    // A name that was given back is no name: a topic that is being removed has none.
    let options = match (name, unique) {
        ("topic_by_name", _) => options
            .unique(true)
            .partial_filter_expression(doc! { "name": { "$type": "string" } })
            .build(),
        (_, true) => options.unique(true).build(),
        (_, false) => options.build(),
    };
    IndexModel::builder().keys(keys).options(options).build()
}

#[cfg(test)]
mod tests {
    use super::{OpenError, check_version, without_password};

    #[test]
    fn servers_that_are_too_old_are_refused_with_what_is_needed() {
        for version in ["5.0.0", "5.0.0-rc1", "6.0.27", "10.1.2"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["4.4.29", "4.9.0-alpha", "3.6.23", "", "five.0"] {
            let refused = check_version(version).unwrap_err();
            assert!(matches!(&refused, OpenError::TooOld(found) if found == version), "{version}");
            assert!(refused.to_string().contains("5.0 or later is needed"), "{refused}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let url = "mongodb://hub:s3cr@t/1@db1/prom?replicaSet=prom";
        let shown = without_password(url, "no password s3cr@t/1 here: s3cr@t/1");
        assert_eq!(shown, "no password *** here: ***");
        for url in ["mongodb://db1/prom", "mongodb://hub@db1/prom", "mongodb://hub:@db1/"] {
            assert_eq!(without_password(url, "db1 is away"), "db1 is away");
        }
    }
}
