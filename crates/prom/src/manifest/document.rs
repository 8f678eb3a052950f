//! The tables of a manifest. Doc comments are what `docs/reference/config.md` says.

use std::collections::BTreeMap;
use std::path::PathBuf;

use promethean::projection::FieldKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::quantity::{Limit, Millis, Retention};
use crate::rules::{Compaction, Rules};

/// One address, or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn all(&self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one.clone()],
            Self::Many(many) => many.clone(),
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Document {
    /// Of this format: 1.
    pub(crate) version: Option<u32>,
    pub(crate) server: ServerTable,
    pub(crate) store: StoreTable,
    pub(crate) auth: AuthTable,
    pub(crate) defaults: DefaultsTable,
    pub(crate) topic: BTreeMap<String, TopicTable>,
    pub(crate) group: BTreeMap<String, GroupTable>,
    pub(crate) views: BTreeMap<String, ViewTable>,
    pub(crate) changefeeds: BTreeMap<String, ChangefeedTable>,
    /// For `prom lint`, which reads it itself.
    lint: Option<toml::Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerTable {
    /// Addresses and ports to listen on. Default: port 7766 of this machine only.
    pub(crate) listen: Option<OneOrMany>,
    /// Addresses and ports for administration, metrics and details of health, which are then not
    /// where clients are. Default: none, they are with everything else.
    pub(crate) admin: Option<OneOrMany>,
    /// Names that the server goes by.
    pub(crate) hosts: Vec<String>,
    /// Web origins that may connect.
    pub(crate) origins: Vec<String>,
    /// Certificate chain, as PEM; read again on SIGHUP.
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, as PEM.
    pub(crate) tls_key: Option<PathBuf>,
    /// Speak plain text also where others can listen. Default: false.
    pub(crate) insecure_no_tls: bool,
    /// How long records of the audit log are kept, such as 365d. Default: 90d.
    pub(crate) audit_retention: Option<Millis>,
    /// How long connections may finish when the server stops. Default: 8s.
    pub(crate) drain_timeout: Option<Millis>,
    /// Whether publishing is limited to 1,000 events a second for each topic and so on. Default:
    /// true for `prom serve`.
    pub(crate) rate_limits: Option<bool>,
    /// WebSockets, event streams and exports of one subject at a time. Default: 50, and from this
    /// machine as many as there can be; say it if there is a proxy on this machine.
    pub(crate) connections_per_subject: Option<usize>,
    /// Credentials of one address that may be wrong in a minute; then it has to wait. Default: 10.
    /// More behind a proxy, where all clients have one address.
    pub(crate) auth_failures_per_minute: Option<u32>,
    /// Topics that there may be before publishing makes no more; those of the manifest and of `prom
    /// topic` are not held to it. Default: 1,000.
    pub(crate) topics_max: Option<usize>,
    /// Groups that there may be before subscribing makes no more. Default: 1,000.
    pub(crate) groups_max: Option<usize>,
    /// What happens to events of topics that are not there: `make` or `refuse`. Default: `refuse`
    /// for `prom serve` with topics in the manifest, otherwise `make`.
    pub(crate) unknown_topics: Option<UnknownTopics>,
    pub(crate) rates: RatesTable,
}

/// Events in a second.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RatesTable {
    /// Events that one connection may publish in a second; as with the next two, 1,000 at once, as
    /// many as a batch has, however few they are. Default: 200 for `prom serve`.
    pub(crate) publish_per_connection: Option<u32>,
    /// Events that one subject may publish, over all its connections. Default: 2,000 for `prom serve`.
    pub(crate) publish_per_subject: Option<u32>,
    /// Events that may be published to one topic. Default: 1,000 for `prom serve`.
    pub(crate) publish_per_topic: Option<u32>,
    /// Events that one connection gets; more come later. Default: as many as it takes.
    pub(crate) deliver_per_connection: Option<u32>,
    /// Events that one subject gets, over all its connections. Default: as many as it takes.
    pub(crate) deliver_per_subject: Option<u32>,
    /// Events of one topic, to all who get it. Default: as many as they take.
    pub(crate) deliver_per_topic: Option<u32>,
}

impl RatesTable {
    /// Those that were said, by name.
    pub(crate) fn said(&self) -> impl Iterator<Item = (&'static str, u32)> {
        [
            ("publish_per_connection", self.publish_per_connection),
            ("publish_per_subject", self.publish_per_subject),
            ("publish_per_topic", self.publish_per_topic),
            ("deliver_per_connection", self.deliver_per_connection),
            ("deliver_per_subject", self.deliver_per_subject),
            ("deliver_per_topic", self.deliver_per_topic),
        ]
        .into_iter()
        .filter_map(|(name, rate)| Some((name, rate?)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnknownTopics {
    Make,
    Refuse,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreTable {
    /// `memory` forgets everything on exit, `log` keeps it on this machine, `mongodb` in a replica
    /// set that hubs share. Default: `log` for `prom serve`, `memory` for `prom dev`.
    pub(crate) kind: Option<StoreKind>,
    /// Directory of the log, and of what a hub has for itself. Default: `data`.
    pub(crate) path: Option<PathBuf>,
    /// Connection string of the replica set, without a password.
    pub(crate) url: Option<String>,
    /// File with the connection string, for its owner's eyes only.
    pub(crate) url_file: Option<PathBuf>,
    /// How long a hub counts as there without a word; others take over what it delivers within a
    /// second after that. Default: 5s.
    pub(crate) hub_lease: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    Memory,
    Log,
    Mongodb,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthTable {
    /// `off` lets in whoever can connect (this machine only), `static` takes tokens of a file,
    /// `jwt` tokens of an issuer besides. Default: `static`.
    pub(crate) mode: Option<AuthMode>,
    /// File of static tokens. Default: `tokens.json` in the data directory.
    pub(crate) tokens: Option<PathBuf>,
    /// Scopes of everybody besides those of the token, such as `!subscribe:secret.**` to forbid or
    /// `publish:user.{sub}.**`, in which `{sub}` is who has the token.
    pub(crate) rules: Vec<String>,
    pub(crate) jwt: Option<JwtTable>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuthMode {
    Off,
    Static,
    Jwt,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JwtTable {
    /// Issuer whose tokens are accepted.
    pub(crate) issuer: String,
    /// Audience that they must be for.
    pub(crate) audience: String,
    /// Secret for HS256, 32 bytes at least.
    pub(crate) secret_file: Option<PathBuf>,
    /// File with the key set of the issuer; read again on SIGHUP.
    pub(crate) jwks: Option<PathBuf>,
    /// Address that the key set is fetched from, `https` only; again every 10 minutes, and when a
    /// token names a key that is not in it.
    pub(crate) jwks_url: Option<String>,
    /// Certificates to trust there, as PEM. Default: those of this machine.
    pub(crate) jwks_ca: Option<PathBuf>,
    /// Whether the issuer may have an address inside of a network. Default: false.
    pub(crate) jwks_inside: bool,
    /// How the issuer signs with its key set: `RS256` or `ES256`. Default: `RS256`.
    pub(crate) algorithm: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DefaultsTable {
    pub(crate) topic: TopicTable,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TopicTable {
    /// How many partitions. Fixed once the topic is there. Default: 1.
    pub(crate) partitions: Option<u32>,
    /// Events older than this go, such as `7d`; `forever`. Default: `forever`.
    pub(crate) retention: Option<Retention>,
    /// The oldest go while a partition has more than this, such as `2GiB`; `none`. Default: `none`.
    pub(crate) retention_bytes: Option<Limit>,
    /// `latest` keeps only the newest event of each key; `off`. Default: `off`.
    pub(crate) compaction: Option<CompactionRule>,
    /// Events younger than this are not compacted. Default: `0s`.
    pub(crate) compaction_delay: Option<Millis>,
    /// Tombstones stay this long. Default: `24h`.
    pub(crate) tombstone_retention: Option<Millis>,
    /// How far an event must have travelled before its publisher is answered: `synced` survives
    /// power loss, `written` a crash of the server, `none` nothing. Default: `synced`. Read when the
    /// server starts.
    pub(crate) durability: Option<DurabilityRule>,
    /// Whether the newest state of each key is also published to `NAME.snapshot`. Default: false.
    pub(crate) snapshot: Option<bool>,
    /// How often, at most. Default: `5s`.
    pub(crate) snapshot_every: Option<Millis>,
    /// Directory of its schemas, for `prom schema` and `prom lint`.
    schema: Option<PathBuf>,
    /// It has no schema, on purpose, for `prom lint`.
    schemaless: Option<bool>,
    /// It is published elsewhere, for `prom lint`.
    external: Option<bool>,
    /// What a new version of its schema must keep, for `prom schema`.
    compat: Option<String>,
    /// Whether open objects may hold anything, for `prom schema`.
    strict: Option<bool>,
    /// Who answers for it.
    owner: Option<String>,
    /// What it is.
    description: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CompactionRule {
    Latest,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DurabilityRule {
    None,
    Written,
    Synced,
}

impl std::convert::From<DurabilityRule> for promethean::store::Durability {
    fn from(rule: DurabilityRule) -> Self {
        match rule {
            DurabilityRule::None => Self::None,
            DurabilityRule::Written => Self::Written,
            DurabilityRule::Synced => Self::Synced,
        }
    }
}

impl TopicTable {
    /// What the topic is to be, where the defaults fill in what it does not say.
    pub(crate) fn rules(&self, defaults: &Self) -> Rules {
        let compaction = self.compaction.or(defaults.compaction).unwrap_or(CompactionRule::Off);
        let delay = self.compaction_delay.or(defaults.compaction_delay);
        let tombstones = self.tombstone_retention.or(defaults.tombstone_retention);
        let compaction = match compaction {
            CompactionRule::Off => None,
            CompactionRule::Latest => Some(Compaction {
                age_ms_min: delay.map_or(Compaction::USUAL.age_ms_min, |Millis(ms)| ms),
                tombstone_ms: tombstones.map_or(Compaction::USUAL.tombstone_ms, |Millis(ms)| ms),
            }),
        };
        Rules {
            partitions: self.partitions.or(defaults.partitions).unwrap_or(1),
            retention_ms: self.retention.or(defaults.retention).and_then(|Retention(ms)| ms),
            retention_bytes: self
                .retention_bytes
                .or(defaults.retention_bytes)
                .and_then(|Limit(b)| b),
            compaction,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupTable {
    /// Topics and patterns that it reads.
    pub(crate) topics: Vec<String>,
    /// Where it begins when it is made: `earliest` or `latest`. Default: `latest`.
    pub(crate) from: Option<From>,
    /// `shared`: any member gets an event; `partitioned`: the one that owns the partition. Default:
    /// `shared`.
    mode: Option<String>,
    /// `key` keeps the order of each key, `none` keeps none. Default: `key`.
    ordered: Option<String>,
    /// What a dead letter does to later events of its key: `event` nothing, `key` they wait.
    /// Default: `event`.
    park: Option<String>,
    /// How long one event may take before it goes to another. Default: `30s`.
    ack_timeout: Option<Millis>,
    /// How long with all extensions. Default: `10m`.
    max_processing: Option<Millis>,
    /// Deliveries of one event before it is a dead letter. Default: 5.
    max_attempts: Option<u16>,
    /// Delay before the second delivery; doubles with each further one. Default: `200ms`.
    backoff: Option<Millis>,
    /// Longest such delay. Default: `60s`.
    backoff_max: Option<Millis>,
    /// How long a member may finish what it has of a partition that it loses. Default: `10s`.
    drain: Option<Millis>,
    /// Retention and compaction keep what the group has not finished. Default: false.
    hold: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangefeedTable {
    /// Connection string of the MongoDB that the collection is in; a replica set.
    pub(crate) url: String,
    /// Collection, as `database.collection`.
    pub(crate) collection: String,
    /// Topic that its changes go to.
    pub(crate) topic: String,
    /// Expression (CEL) for the key, over `document`, `before`, `key` and `op`; needs pre-images.
    /// Default: the document's `_id`.
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// Expression that is true for changes that are published. Default: all are.
    #[serde(default)]
    pub(crate) filter: Option<String>,
    /// Expression for the payload. Default: the document.
    #[serde(default)]
    pub(crate) map: Option<String>,
    /// Whether what is there already comes first. Default: true.
    #[serde(default)]
    pub(crate) snapshot: Option<bool>,
}

impl ChangefeedTable {
    /// The feed as its runner takes it.
    pub(crate) fn definition(&self) -> promethean::changefeed::Definition {
        promethean::changefeed::Definition {
            url: self.url.clone(),
            collection: self.collection.clone(),
            topic: self.topic.clone(),
            key: self.key.clone(),
            filter: self.filter.clone(),
            map: self.map.clone(),
            snapshot: self.snapshot.unwrap_or(true),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ViewTable {
    /// Topic that becomes the view: the newest event of a key is its document.
    pub(crate) topic: String,
    /// Expression (CEL) for the key, over `payload`, `key`, `headers`, `ts`, `topic` and `id`.
    /// Default: the key of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Expression for the document; `null` passes the event over. Default: the payload as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) map: Option<String>,
    /// Expression that is true for events that delete, besides `null` and `_deleted: true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tombstone: Option<String>,
    /// Expression for the version, a whole number: only a newer one counts. Default: no versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// Version of the topic's schema that events are brought to. Default: as they were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reads: Option<u32>,
    /// Fields that may be filtered and sorted by: `text`, `integer`, `number` or `bool`, or
    /// `{ type = "text", path = "/owner/name" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) fields: BTreeMap<String, FieldRule>,
    /// Indexes, each a list of fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) indexes: Vec<Vec<String>>,
    /// Events without a key: `park` makes them dead letters, `count` counts them. Default: `park`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unkeyed: Option<UnkeyedRule>,
    /// What snapshots say about caching. Default: `private, max-age=5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cache_control: Option<String>,
    /// Whether `/snap/KEY` means this view. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<bool>,
}

/// What a declared field of a view holds, and where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum FieldRule {
    Kind(FieldKind),
    Placed {
        #[serde(rename = "type")]
        kind: FieldKind,
        path: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnkeyedRule {
    Park,
    Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum From {
    Earliest,
    Latest,
}

impl GroupTable {
    /// What is said about the group, as the server has it.
    pub(crate) fn settings(&self) -> Map<String, Value> {
        let millis = |time: Option<Millis>| time.map(|Millis(ms)| json!(ms));
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        let said = [
            ("topics", Some(json!(self.topics))),
            ("mode", text(&self.mode)),
            ("ordered", text(&self.ordered)),
            ("park", text(&self.park)),
            ("ack_timeout_ms", millis(self.ack_timeout)),
            ("processing_ms_max", millis(self.max_processing)),
            ("max_attempts", self.max_attempts.map(|attempts| json!(attempts))),
            ("backoff_ms", millis(self.backoff)),
            ("backoff_ms_max", millis(self.backoff_max)),
            ("drain_ms", millis(self.drain)),
            ("hold", self.hold.map(|hold| json!(hold))),
        ];
        said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
