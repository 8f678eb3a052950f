//! What of a MongoDB deployment should be otherwise before it is relied on.

mod version;

mod indexes;

mod sharding;

use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress};

use promethean::store::Clock;

use crate::cluster::{Cluster, OpenError};
use crate::document::{unsigned, whole};
use crate::fault::describe;
use crate::limits::{
    CATCH_UP_MS_MAX, CLOCK_SKEW_MS_MAX, OPLOG_HOURS_MIN, OPLOG_SILENCE_S_MAX, PROJECTION_AWAY_MAX,
};
use crate::options::MongoOptions;
use crate::views;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, as one word.
    pub check: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found, and what to do.
    pub text: String,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It could not be found out.
    Unknown,
    /// It works, but should be otherwise.
    Warning,
    /// Events may be lost, or nothing works.
    Error,
}

/// Looks at a deployment. Nothing is changed or made.
pub async fn examine(url: &str, options: MongoOptions) -> Result<Vec<Finding>, OpenError> {
    let cluster = Cluster::reach(url, &options).await?;
    let parsed = ClientOptions::parse(url).await.ok();
    let mut findings = Findings::default();
    findings.version(&cluster).await;
    findings.members(&cluster).await;
    findings.journal(&cluster).await;
    findings.oplog(&cluster).await;
    findings.silence(&cluster).await;
    findings.clock(&cluster, &*options.clock).await;
    findings.indexes(&cluster).await;
    findings.sharding(&cluster).await;
    findings.retention(&cluster).await;
    findings.projections(&cluster).await;
    findings.access(&cluster).await;
    if let Some(parsed) = parsed {
        findings.network(&parsed);
    }
    Ok(findings.0)
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.0.push(Finding { check, verdict, text: text.into() });
    }

    async fn version(&mut self, cluster: &Cluster) {
        match admin(cluster, doc! { "buildInfo": 1 }).await {
            Ok(build) => {
                let (verdict, text) = version::judge(build.get_str("version").unwrap_or_default());
                self.add("version", verdict, text);
            }
            Err(text) => self.add("version", Verdict::Unknown, text),
        }
    }

    async fn members(&mut self, cluster: &Cluster) {
        let config = match admin(cluster, doc! { "replSetGetConfig": 1 }).await {
            Ok(config) => config,
            Err(text) => return self.add("members", Verdict::Unknown, text),
        };
        let config = config.get_document("config").cloned().unwrap_or_default();
        let members = config.get_array("members").cloned().unwrap_or_default();
        let members: Vec<&Document> = members.iter().filter_map(|m| m.as_document()).collect();
        let is_arbiter = |m: &&&Document| m.get_bool("arbiterOnly").unwrap_or(false);
        let arbiters = members.iter().filter(is_arbiter).count();
        let bearing = members.len() - arbiters;
        match (bearing, arbiters) {
            (0 | 1, _) => self.add(
                "members",
                Verdict::Error,
                "one member holds all data: if it is lost, so are the events; have three",
            ),
            (2, _) => self.add(
                "members",
                Verdict::Error,
                "two members hold data: nothing can be written while one is away; have three",
            ),
            (_, 1..) => self.add(
                "members",
                Verdict::Warning,
                "there is an arbiter, which votes and holds nothing; have members with data instead",
            ),
            (count, _) => self.add("members", Verdict::Good, format!("{count} members hold data")),
        }
        if matches!(config.get_bool("writeConcernMajorityJournalDefault"), Ok(false)) {
            let text = "majority writes are answered before they are in the journal by default; set \
                        writeConcernMajorityJournalDefault to true";
            self.add("journal_default", Verdict::Warning, text);
        }
        self.catch_up(&config);
        self.healthy(cluster, bearing).await;
    }

    /// A member that was elected asks all others what they have. For word of one that is frozen or cut
    /// off it waits until the heartbeat is given up, if it is not told to wait for less.
    fn catch_up(&mut self, config: &Document) {
        let settings = config.get_document("settings").cloned().unwrap_or_default();
        match settings.get("catchUpTimeoutMillis").and_then(whole) {
            Some(0..=CATCH_UP_MS_MAX) => {
                let text = "a new primary does not wait for a member that has frozen";
                self.add("catch_up", Verdict::Good, text);
            }
            _ => {
                let text = format!(
                    "after a primary has frozen, or was cut off, the new one may wait for it for ten \
                     seconds before it takes writes: c = rs.conf(); \
                     c.settings.catchUpTimeoutMillis = {CATCH_UP_MS_MAX}; rs.reconfig(c) (what a \
                     majority has acknowledged is not lost by it)"
                );
                self.add("catch_up", Verdict::Warning, text);
            }
        }
    }

    async fn healthy(&mut self, cluster: &Cluster, bearing: usize) {
        let status = match admin(cluster, doc! { "replSetGetStatus": 1 }).await {
            Ok(status) => status,
            Err(text) => return self.add("majority", Verdict::Unknown, text),
        };
        let members = status.get_array("members").cloned().unwrap_or_default();
        // 1 is the primary, 2 a secondary.
        let is_up = |m: &&Document| matches!(m.get_i32("state"), Ok(1 | 2));
        let up = members.iter().filter_map(|m| m.as_document()).filter(is_up).count();
        if up == bearing {
            self.add("majority", Verdict::Good, format!("all {up} members with data are up"));
        } else if up > bearing / 2 {
            let text =
                format!("{up} of {bearing} members are up; a majority, but see to the others");
            self.add("majority", Verdict::Warning, text);
        } else {
            let text = format!("{up} of {bearing} members are up: no majority can confirm a write");
            self.add("majority", Verdict::Error, text);
        }
    }

    async fn journal(&mut self, cluster: &Cluster) {
        match admin(cluster, doc! { "serverStatus": 1 }).await {
            Ok(status) => {
                let engine = status.get_document("storageEngine").cloned().unwrap_or_default();
                if engine.get_bool("persistent").unwrap_or(true) {
                    self.add("journal", Verdict::Good, "writes are confirmed by the journal");
                } else {
                    let text = "the storage engine keeps everything in memory only";
                    self.add("journal", Verdict::Error, text);
                }
            }
            Err(text) => self.add("journal", Verdict::Unknown, text),
        }
    }

    async fn oplog(&mut self, cluster: &Cluster) {
        let oplog = cluster.client.database("local").collection::<Document>("oplog.rs");
        let end = async |order: i32| {
            let found = oplog.find_one(doc! {}).sort(doc! { "$natural": order });
            let found = cluster.ask(found.projection(doc! { "ts": 1 })).await.ok()??;
            found.get_timestamp("ts").ok().map(|ts| ts.time)
        };
        match (end(1).await, end(-1).await) {
            (Some(first), Some(last)) => {
                let hours = last.saturating_sub(first) / 3600;
                if hours >= OPLOG_HOURS_MIN {
                    self.add("oplog", Verdict::Good, format!("the oplog reaches back {hours} h"));
                } else {
                    let text = format!(
                        "the oplog reaches back {hours} h only (a new set begins there): see that it \
                         comes to {OPLOG_HOURS_MIN} h, or set its size or minimum retention"
                    );
                    self.add("oplog", Verdict::Warning, text);
                }
            }
            _ => self.add("oplog", Verdict::Unknown, "the oplog may not be read by this user"),
        }
    }

    /// A member copies from another one, mostly the primary. While it waits for one that says nothing,
    /// without having gone, no majority can have what a new primary writes.
    async fn silence(&mut self, cluster: &Cluster) {
        const NAME: &str = "oplogNetworkTimeoutBufferSeconds";
        let asked = admin(cluster, doc! { "getParameter": 1, NAME: 1 }).await;
        let seconds = match asked.map(|answer| answer.get_i32(NAME)) {
            Ok(Ok(seconds)) => seconds,
            Ok(Err(_)) => return self.add("failover", Verdict::Unknown, format!("no {NAME}")),
            Err(text) => return self.add("failover", Verdict::Unknown, text),
        };
        if seconds <= OPLOG_SILENCE_S_MAX {
            let text = "members notice soon that the one they copy from has frozen";
            return self.add("failover", Verdict::Good, text);
        }
        let text = format!(
            "after a member has frozen, or was cut off, majority writes may wait for 17 s or more, \
             because others copy from it: start all with --setParameter {NAME}={OPLOG_SILENCE_S_MAX} \
             (it is {seconds}; it cannot be changed while they run)"
        );
        self.add("failover", Verdict::Warning, text);
    }

    /// Append times, and with them retention, go by the clocks of hubs.
    async fn clock(&mut self, cluster: &Cluster, clock: &dyn Clock) {
        let before = clock.now().millis();
        let hello = match admin(cluster, doc! { "hello": 1 }).await {
            Ok(hello) => hello,
            Err(text) => return self.add("clock", Verdict::Unknown, text),
        };
        let after = clock.now().millis();
        let Ok(there) = hello.get_datetime("localTime") else {
            return self.add("clock", Verdict::Unknown, "the server does not tell its time");
        };
        let there = unsigned(there.timestamp_millis());
        // Between the two it was asked: what lies there is no difference.
        let apart_ms = before.saturating_sub(there).max(there.saturating_sub(after));
        if apart_ms <= CLOCK_SKEW_MS_MAX {
            return self.add("clock", Verdict::Good, "this machine and MongoDB have the same time");
        }
        let text = format!(
            "the clocks of this machine and of MongoDB are {apart_ms} ms apart; retention and times \
             of events go by those of hubs: keep all machines in step, by NTP"
        );
        self.add("clock", Verdict::Warning, text);
    }

    /// Whether groups have lost events because they were too slow for the retention of a topic.
    async fn retention(&mut self, cluster: &Cluster) {
        let too_slow = [
            doc! { "$lookup": {
                "from": "lanes", "localField": "lane", "foreignField": "_id", "as": "lane",
            } },
            doc! { "$unwind": "$lane" },
            doc! { "$match": { "$expr": { "$lt": ["$floor", "$lane.start"] } } },
            doc! { "$limit": 1_i64 },
        ];
        let reading = async {
            let mut cursor = cluster.cursors.aggregate(too_slow).await?;
            Ok(if cursor.advance().await? { Some(cursor.deserialize_current()?) } else { None })
        };
        match cluster.ask(reading).await {
            Ok(None) => {
                let text = "no group is behind what retention has kept";
                self.add("retention", Verdict::Good, text);
            }
            Ok(Some(found)) => {
                let group = found.get_str("group").unwrap_or("?");
                let lane = found.get_document("lane").cloned().unwrap_or_default();
                let topic = lane.get_str("topic").unwrap_or("?");
                let text = format!(
                    "group {group} was too slow for the retention of {topic}: events that it has not \
                     seen are gone; keep them for longer, or have more members"
                );
                self.add("retention", Verdict::Warning, text);
            }
            Err(fault) => self.add("retention", Verdict::Unknown, fault.to_string()),
        }
    }

    /// Whether there are projections that hold back retention and that nobody keeps.
    async fn projections(&mut self, cluster: &Cluster) {
        let unkept = match views::unkept(cluster).await {
            Ok(unkept) => unkept,
            Err(fault) => return self.add("projections", Verdict::Unknown, fault.to_string()),
        };
        if unkept.is_empty() {
            self.add("projections", Verdict::Good, "no projection waits for a hub");
        }
        for (name, days) in unkept {
            let days_max = PROJECTION_AWAY_MAX.as_secs() / (24 * 60 * 60);
            let text = format!(
                "no hub has kept projection {name} for {days} days; what it has not read is held                  against retention and compaction for {days_max}: start it, or forget it"
            );
            self.add("projections", Verdict::Warning, text);
        }
    }

    async fn access(&mut self, cluster: &Cluster) {
        let status = match admin(cluster, doc! { "connectionStatus": 1 }).await {
            Ok(status) => status,
            Err(text) => return self.add("auth", Verdict::Unknown, text),
        };
        let info = status.get_document("authInfo").cloned().unwrap_or_default();
        let users = info.get_array("authenticatedUsers").map_or(0, Vec::len);
        if users > 0 {
            self.add("auth", Verdict::Good, "this connection is authenticated");
        } else {
            let text = "whoever reaches MongoDB may do anything there; turn authorization on, and \
                        give hubs a user with readWrite on their database";
            self.add("auth", Verdict::Error, text);
        }
    }

    fn network(&mut self, options: &ClientOptions) {
        let is_local = |address: &ServerAddress| match address {
            ServerAddress::Tcp { host, .. } => {
                host == "localhost"
                    || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
            _ => true,
        };
        let local = options.hosts.iter().filter(|host| is_local(host)).count();
        if local == options.hosts.len() {
            let text = "all members are on this machine, and go with it";
            self.add("hosts", Verdict::Warning, text);
        } else if local > 0 {
            let text = "some members are named by a loopback address, which other hubs cannot use";
            self.add("hosts", Verdict::Error, text);
        } else {
            let text = format!("{} hosts are named", options.hosts.len());
            self.add("hosts", Verdict::Good, text);
        }
        let has_tls = matches!(options.tls, Some(mongodb::options::Tls::Enabled(_)));
        match (has_tls, local == options.hosts.len()) {
            (true, _) => self.add("tls", Verdict::Good, "the connection is encrypted"),
            (false, true) => {
                self.add("tls", Verdict::Warning, "plain text, which stays on this machine");
            }
            (false, false) => {
                let text = "events and passwords cross the network in plain text; set tls=true";
                self.add("tls", Verdict::Error, text);
            }
        }
    }
}

/// The answer of the server, or why there is none.
async fn admin(cluster: &Cluster, command: Document) -> Result<Document, String> {
    let admin = cluster.client.database("admin");
    let answer = cluster.deadline().hold(admin.run_command(command)).await;
    let answer = answer.ok_or_else(|| "MongoDB did not answer in time".to_owned())?;
    answer.map_err(|error| describe(&error))
}
