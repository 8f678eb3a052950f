//! What a manifest says that cannot work, or is probably not meant.

use std::net::SocketAddr;

use promethean::GroupSettings;
use promethean_event::{GroupName, PartitionCount, Pattern, Topic};
use promethean_gateway::access::RuleTemplate;
use serde::Serialize;

use super::Manifest;
use super::document::{AuthMode, Document, StoreKind};

/// Something about a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// The key, such as `topic."a.b".partitions`.
    pub(crate) at: String,
    pub(crate) problem: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Warning,
    Error,
}

impl Manifest {
    /// Everything that is wrong, or may be.
    pub(crate) fn check(&self) -> Vec<Finding> {
        let mut findings = Findings::default();
        let document = &self.document;
        match document.version {
            None | Some(1) => {}
            Some(other) => findings.error("version", format!("{other} is not known; write 1")),
        }
        findings.server(self);
        findings.store(document);
        findings.topics(document);
        findings.groups(document);
        findings.views(document);
        findings.changefeeds(document);
        findings.0
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, at: impl Into<String>, problem: impl Into<String>) {
        self.push(Severity::Error, at, problem);
    }

    fn warning(&mut self, at: impl Into<String>, problem: impl Into<String>) {
        self.push(Severity::Warning, at, problem);
    }

    fn push(&mut self, severity: Severity, at: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Finding { severity, at: at.into(), problem: problem.into() });
    }

    fn server(&mut self, manifest: &Manifest) {
        let (server, auth) = (&manifest.document.server, &manifest.document.auth);
        let mut open = None;
        for (at, said) in [("server.listen", &server.listen), ("server.admin", &server.admin)] {
            for address in said.iter().flat_map(super::document::OneOrMany::all) {
                match address.parse::<SocketAddr>() {
                    Ok(address) if address.ip().is_loopback() => {}
                    Ok(_) => open = open.or(Some(at)),
                    Err(_) => {
                        let how = "is not an address; write it like 127.0.0.1:7766 or 0.0.0.0:7766";
                        self.error(at, format!("{address:?} {how}"));
                    }
                }
            }
        }
        if server.tls_cert.is_some() != server.tls_key.is_some() {
            self.error("server", "tls_cert and tls_key belong together");
        }
        let is_open = open.is_some();
        if let Some(at) = open
            && server.tls_cert.is_none()
            && !server.insecure_no_tls
        {
            let problem = "others can reach this address, but no TLS is set up";
            self.error(at, format!("{problem}; give tls_cert and tls_key"));
        }
        if is_open && auth.mode == Some(AuthMode::Off) {
            self.error(
                "auth.mode",
                "off is for this machine only, but others can reach the server",
            );
        }
        match (&auth.mode, &auth.jwt) {
            (Some(AuthMode::Jwt), None) => self.error("auth", "mode jwt needs [auth.jwt]"),
            (Some(AuthMode::Off | AuthMode::Static) | None, Some(_)) => {
                self.warning("auth.jwt", "is not used unless mode = \"jwt\"");
            }
            _ => {}
        }
        if let Some(jwt) = &auth.jwt {
            let sources = [jwt.secret_file.is_some(), jwt.jwks.is_some(), jwt.jwks_url.is_some()];
            if sources.iter().filter(|is_given| **is_given).count() != 1 {
                self.error("auth.jwt", "give one of secret_file, jwks and jwks_url");
            }
            if jwt.issuer.is_empty() || jwt.audience.is_empty() {
                self.error("auth.jwt", "issuer and audience are needed");
            }
            if !matches!(jwt.algorithm.as_deref(), None | Some("RS256" | "ES256")) {
                self.error("auth.jwt.algorithm", "is RS256 or ES256");
            }
        }
        for (name, rate) in server.rates.said() {
            if rate == 0 {
                let at = format!("server.rates.{name}");
                self.error(at, "0 would let nothing through; say 1 or more, or leave it out");
            }
        }
        for rule in &auth.rules {
            if let Err(error) = RuleTemplate::read(rule) {
                self.error("auth.rules", error.to_string());
            }
        }
        let files = [&server.tls_cert, &server.tls_key, &auth.tokens];
        for file in files.into_iter().flatten() {
            let path = manifest.resolve(file);
            if !path.exists() {
                self.warning("server", format!("{} is not there", path.display()));
            }
        }
    }

    fn topics(&mut self, document: &Document) {
        for (name, table) in &document.topic {
            let at = format!("topic.{name:?}");
            if let Err(error) = Topic::new(name) {
                self.error(at.clone(), error.to_string());
            }
            let rules = table.rules(&document.defaults.topic);
            if let Err(error) = PartitionCount::new(rules.partitions) {
                self.error(format!("{at}.partitions"), error.to_string());
            }
            let delayed = table.compaction_delay.is_some() || table.tombstone_retention.is_some();
            if delayed && rules.compaction.is_none() {
                self.warning(
                    at.clone(),
                    "is not compacted, so that compaction_delay and \
                    tombstone_retention do nothing; say compaction = \"latest\"",
                );
            }
        }
    }

    fn groups(&mut self, document: &Document) {
        for (name, table) in &document.group {
            let at = format!("group.{name}");
            if let Err(error) = GroupName::new(name) {
                self.error(at.clone(), error.to_string());
            }
            let settings = serde_json::from_value::<GroupSettings>(table.settings().into());
            match settings {
                Ok(settings) => {
                    if let Err(error) = settings.check() {
                        self.error(at.clone(), error.to_string());
                    }
                }
                Err(error) => self.error(at.clone(), error.to_string()),
            }
            for text in &table.topics {
                let declared = |pattern: &Pattern| {
                    let topics = document.topic.keys().filter_map(|name| Topic::new(name).ok());
                    topics.into_iter().any(|topic| pattern.matches(&topic))
                };
                let is_unknown = Pattern::new(text).is_ok_and(|pattern| !declared(&pattern));
                if is_unknown && !document.topic.is_empty() {
                    let problem = format!("reads {text}, which no topic of the manifest matches");
                    self.warning(format!("{at}.topics"), problem);
                }
            }
        }
    }
}

impl Findings {
    fn changefeeds(&mut self, document: &Document) {
        for (name, table) in &document.changefeeds {
            if let Err(error) = table.definition().feed(name) {
                self.error(format!("changefeeds.{name}"), error.to_string());
            }
        }
    }

    fn store(&mut self, document: &Document) {
        let store = &document.store;
        let is_mongodb = store.kind == Some(StoreKind::Mongodb);
        match (&store.url, &store.url_file) {
            (None, None) if is_mongodb => {
                let problem = "give url, or url_file if there is a password in it";
                self.error("store", format!("where MongoDB is was not said; {problem}"));
            }
            (Some(_), Some(_)) => self.error("store", "give url or url_file, not both"),
            (Some(_), _) | (_, Some(_)) if !is_mongodb => {
                self.error("store.kind", "url is for MongoDB; write kind = \"mongodb\"");
            }
            (Some(url), _) if has_password(url) => {
                let problem = "a password does not belong into a manifest";
                self.error("store.url", format!("{problem}; use url_file or PROM_STORE_FILE"));
            }
            _ => {}
        }
    }

    fn views(&mut self, document: &Document) {
        for (name, table) in &document.views {
            let at = format!("views.{name}");
            if let Some(problem) = table.problem(name) {
                self.error(at.clone(), problem);
            }
            let is_known = document.topic.contains_key(&table.topic);
            if !is_known && !document.topic.is_empty() {
                let problem = format!("reads {}, which is no topic of the manifest", table.topic);
                self.warning(format!("{at}.topic"), problem);
            }
        }
        let defaults = document.views.values().filter(|table| table.default == Some(true));
        if defaults.count() > 1 {
            self.error("views", "more than one view is the default");
        }
    }
}

/// Whether a connection string has a password in it.
fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let hosts = rest.split(['/', '?']).next().unwrap_or(rest);
    hosts.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<(Severity, String)> {
        let document =
            super::super::reading::read(std::path::Path::new("prom.toml"), text, [].into_iter());
        let manifest =
            Manifest { path: "prom.toml".into(), document: document.unwrap(), modified: None };
        manifest.check().into_iter().map(|found| (found.severity, found.at)).collect()
    }

    #[test]
    fn good_manifests_have_no_findings() {
        assert_eq!(problems(""), []);
        let text =
            "version = 1\n[topic.\"a.b\"]\npartitions = 8\n[group.ops]\ntopics = [\"a.*\"]\n";
        assert_eq!(problems(text), []);
    }

    #[test]
    fn what_cannot_work_is_an_error() {
        for (text, at) in [
            ("version = 2", "version"),
            ("[topic.\"A b\"]", "topic.\"A b\""),
            ("[topic.a]\npartitions = 0", "topic.\"a\".partitions"),
            ("[group.g]\ntopics = []", "group.g"),
            ("[group.g]\ntopics = [\"a..b\"]", "group.g"),
            ("[group.g]\ntopics = [\"a\"]\nmode = \"both\"", "group.g"),
            ("[server]\nlisten = \"here\"", "server.listen"),
            ("[server]\nlisten = \"0.0.0.0:1\"", "server.listen"),
            ("[server]\nadmin = \"7767\"", "server.admin"),
            ("[server]\nadmin = \"0.0.0.0:1\"", "server.admin"),
            ("[auth]\nmode = \"jwt\"", "auth"),
            ("[server]\ntls_cert = \"a\"", "server"),
            ("[views.v]\ntopic = \"A b\"", "views.v"),
            ("[views.v]\ntopic = \"a\"\nmap = \"paylod.x\"", "views.v"),
            ("[views.\"A\"]\ntopic = \"a\"", "views.A"),
            ("[views.v]\ntopic = \"a\"\nindexes = [[\"x\"]]", "views.v"),
        ] {
            let found = problems(text);
            assert!(found.contains(&(Severity::Error, at.to_owned())), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_probably_not_meant_is_a_warning() {
        let text = "[topic.a]\ncompaction_delay = \"1h\"\n[group.g]\ntopics = [\"b\"]\n";
        let found = problems(text);
        assert_eq!(found.iter().filter(|(severity, _)| *severity == Severity::Warning).count(), 2);
    }
}
