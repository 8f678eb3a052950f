//! What an operator decides about the edge. Checked once, before anything is bound.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use promethean::store::Durability;
use promethean_event::Topic;

use crate::access::Authenticator;
use crate::audit::AuditSettings;
use crate::issuer::KeySource;
use crate::limits::AUTH_FAILURES_MAX;
use crate::quota::Rate;
use crate::shelf::Shelf;

/// The port, unless told otherwise.
pub const PORT: u16 = 7766;

/// Who gets in.
#[derive(Debug)]
pub enum Access {
    /// Whoever connects, with every right. For one's own machine.
    Anonymous,
    /// Who has a credential.
    Required(Box<Authenticator>),
}

/// Where certificate and key lie, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and a root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// What an operator has said aloud to do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waived {
    /// `--insecure-no-auth`: anybody who can reach the port may do anything.
    pub auth: bool,
    /// `--insecure-no-tls`: anybody on the way can read and change everything.
    pub tls: bool,
}

/// How many events somebody may get. `None`: as many as they take. What is beyond it is not lost: it
/// comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeliveryRates {
    /// Over one connection.
    pub connection: Option<Rate>,
    /// By one principal, over all its connections.
    pub principal: Option<Rate>,
    /// Of one topic, to all who get it.
    pub topic: Option<Rate>,
}

impl DeliveryRates {
    /// Whether there is any.
    pub(crate) const fn is_any(&self) -> bool {
        self.connection.is_some() || self.principal.is_some() || self.topic.is_some()
    }
}

/// How often somebody may publish, or be wrong. `None`: as often as they like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Events of one connection.
    pub connection: Option<Rate>,
    /// Events of one principal, over all its connections.
    pub principal: Option<Rate>,
    /// Events of one topic.
    pub topic: Option<Rate>,
    /// Credentials of one address that are not accepted. Default: 10 in a minute.
    pub auth_failures: Option<Rate>,
    /// Events that come. Default: as many as are taken.
    pub delivery: DeliveryRates,
}

impl Default for Rates {
    fn default() -> Self {
        let auth_failures = Rate::per_minute(AUTH_FAILURES_MAX).ok();
        let delivery = DeliveryRates::default();
        Self { connection: None, principal: None, topic: None, auth_failures, delivery }
    }
}

impl Rates {
    /// 200, 2,000 and 1,000 in a second, a whole batch at once: what a shared server starts with.
    pub fn cautious() -> Self {
        let per_second = |count| Rate::of_publishing(count).ok();
        Self {
            connection: per_second(200),
            principal: per_second(2_000),
            topic: per_second(1_000),
            ..Self::default()
        }
    }
}

/// Bounds that depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once. Default 10,000.
    pub connections: usize,
    /// Connections of one address at once, loopback excepted. Default 100.
    pub connections_per_ip: usize,
    /// WebSockets, event streams and exports of one subject at once, those from this machine excepted.
    /// Default 50.
    pub connections_per_subject: usize,
    /// The same of those from this machine. Default: as many as there can be.
    pub connections_per_local_subject: Option<usize>,
    /// Subscriptions of one connection. Default 100.
    pub subscriptions: usize,
    /// Bytes waiting to be sent on one connection. Default 16 MiB.
    pub outbox_bytes: usize,
    /// Bytes of all bodies that are being read or worked on. Default 256 MiB.
    pub bodies_bytes: usize,
    /// TCP and TLS must be done after this. Default 5 s.
    pub handshake: Duration,
    /// The head of a request must be there after this. Default 5 s.
    pub head: Duration,
    /// A body must go on after this. Default 5 s.
    pub body_idle: Duration,
    /// A body must be there after this. Default 30 s.
    pub body: Duration,
    /// A publish that the store has not answered after this may have happened or not; a subscription that
    /// is not there is refused. Default 30 s.
    pub publish: Duration,
    /// A WebSocket must have said who it is after this. Default 5 s.
    pub auth: Duration,
    /// A WebSocket is asked whether it lives. Default every 20 s.
    pub ping: Duration,
    /// A WebSocket that says nothing is closed after this. Default 60 s.
    pub idle: Duration,
    /// A connection that takes nothing is closed after this. Default 30 s.
    pub stalled: Duration,
    /// The keys of an issuer must be there after this. Default 5 s.
    pub keys: Duration,
    /// Acks are still taken so long after a token has expired or was taken back. Default 5 s.
    pub expired: Duration,
    /// A WebSocket whose publishes are all refused for their rate is closed after this. Default
    /// 10 s.
    pub abuse: Duration,
    /// What a client said before its Close is answered, or left, so long after it. Default 5 s.
    pub farewell: Duration,
    /// Refusals are summed up in the audit log so often. Default: every minute.
    pub refusals: Duration,
    /// Everything is finished, or cut off, so long after the server was told to stop. Default 8 s.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_ip: 100,
            connections_per_subject: 50,
            connections_per_local_subject: None,
            subscriptions: 100,
            outbox_bytes: 16 * 1024 * 1024,
            bodies_bytes: 256 * 1024 * 1024,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            body_idle: Duration::from_secs(5),
            body: Duration::from_secs(30),
            publish: Duration::from_secs(30),
            auth: Duration::from_secs(5),
            ping: Duration::from_secs(20),
            idle: Duration::from_secs(60),
            stalled: Duration::from_secs(30),
            keys: Duration::from_secs(5),
            expired: Duration::from_secs(5),
            abuse: Duration::from_secs(10),
            farewell: Duration::from_secs(5),
            refusals: Duration::from_secs(60),
            drain: Duration::from_secs(8),
        }
    }
}

/// How the edge is set up.
#[derive(Debug)]
pub struct Settings {
    /// Where to listen. Default: port 7766 of this machine only.
    pub listen: Vec<SocketAddr>,
    /// Where administration is, if it is not to be where clients are: resources that only
    /// administrators may use, metrics, and details of health. Default: with everything else.
    pub admin: Vec<SocketAddr>,
    /// Who gets in.
    pub access: Access,
    /// Where the keys of the issuer of JSON Web Tokens are fetched. Default: nowhere.
    pub key_source: Option<KeySource>,
    /// Certificate and key. Default: none, plain text.
    pub tls: Option<TlsFiles>,
    /// What was waived. Default: nothing.
    pub waived: Waived,
    /// Web origins that may connect, exactly as browsers write them. Default: only pages of the
    /// server itself.
    pub origins: Vec<String>,
    /// Names that the server goes by, besides those of this machine.
    pub hosts: Vec<String>,
    /// How often somebody may publish. Default: as often as they like.
    pub rates: Rates,
    /// Topics whose publishers are answered earlier than when their events are synced. Default: none.
    pub durabilities: HashMap<Topic, Durability>,
    /// Views, causes and jobs. Default: none.
    pub shelf: Shelf,
    /// How the audit log is kept.
    pub audit: AuditSettings,
    /// Other bounds.
    pub bounds: Bounds,
}

/// Why the server does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Nowhere to listen.
    #[error("there is no address to listen on")]
    NoAddress,
    /// Reachable from elsewhere without protection.
    #[error(
        "{address} can be reached from other machines, but {missing}; set it up, or say \
         --insecure-no-auth and --insecure-no-tls to do without"
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
        /// What is missing.
        missing: &'static str,
    },
}

impl Settings {
    /// This machine only.
    pub fn local(access: Access) -> Self {
        Self {
            listen: vec![
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
                SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), PORT),
            ],
            admin: Vec::new(),
            access,
            key_source: None,
            tls: None,
            waived: Waived::default(),
            origins: Vec::new(),
            hosts: Vec::new(),
            rates: Rates::default(),
            durabilities: HashMap::new(),
            shelf: Shelf::default(),
            audit: AuditSettings::default(),
            bounds: Bounds::default(),
        }
    }

    /// All of its addresses.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listen.iter().chain(&self.admin).copied()
    }

    /// Fails closed: an address that others can reach needs credentials and TLS.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.listen.is_empty() {
            return Err(SettingsError::NoAddress);
        }
        let open = matches!(self.access, Access::Anonymous) && !self.waived.auth;
        let plain = self.tls.is_none() && !self.waived.tls;
        let missing = match (open, plain) {
            (false, false) => return Ok(()),
            (true, true) => "neither authentication nor TLS is set up",
            (true, false) => "no authentication is set up",
            (false, true) => "no TLS is set up",
        };
        match self.addresses().find(|address| !address.ip().is_loopback()) {
            Some(address) => Err(SettingsError::Unprotected { address, missing }),
            None => Ok(()),
        }
    }

    /// Whether the server goes by the name of a `Host` header.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if name == "localhost" || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            return true;
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            let bound = |at: SocketAddr| at.ip() == address || at.ip().is_unspecified();
            return address.is_loopback() || self.addresses().any(bound);
        }
        // A page that got here by a name of its own (DNS rebinding) has no token.
        let has_token = matches!(self.access, Access::Required(_));
        has_token && self.hosts.is_empty() && self.addresses().any(|at| !at.ip().is_loopback())
    }

    /// Whether a page of this origin may talk to the server that it calls `host`.
    pub(crate) fn is_origin(&self, origin: &str, host: Option<&str>) -> bool {
        let scheme = if self.tls.is_some() { "https://" } else { "http://" };
        let own = host.is_some_and(|host| origin.strip_prefix(scheme) == Some(host));
        own || self.origins.iter().any(|known| known == origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, access: Access) -> Settings {
        Settings { listen: vec![address.parse().unwrap()], ..Settings::local(access) }
    }

    fn required() -> Access {
        Access::Required(Box::default())
    }

    #[test]
    fn what_others_can_reach_is_protected() {
        assert_eq!(Settings::local(Access::Anonymous).check(), Ok(()));
        let tls = Some(TlsFiles { certificate: "c".into(), key: "k".into() });
        let mut open = at("0.0.0.0:1", Access::Anonymous);
        let refused = open.check().unwrap_err().to_string();
        assert!(refused.contains("--insecure-no-auth") && refused.contains("--insecure-no-tls"));
        open.waived.auth = true;
        assert!(open.check().is_err());
        open.waived.tls = true;
        assert_eq!(open.check(), Ok(()));
        assert!(at("[::]:1", required()).check().is_err());
        assert!(at("192.168.1.1:1", required()).check().is_err());
        assert_eq!(Settings { tls: tls.clone(), ..at("0.0.0.0:1", required()) }.check(), Ok(()));
        assert!(Settings { tls, ..at("0.0.0.0:1", Access::Anonymous) }.check().is_err());
        let mut apart = Settings::local(Access::Anonymous);
        apart.admin = vec!["127.0.0.1:1".parse().unwrap()];
        assert_eq!(apart.check(), Ok(()));
        apart.admin.push("0.0.0.0:1".parse().unwrap());
        assert!(apart.check().is_err(), "administration is not less protected");
        let nowhere = Settings { listen: vec![], ..Settings::local(Access::Anonymous) };
        assert_eq!(nowhere.check(), Err(SettingsError::NoAddress));
    }

    #[test]
    fn hosts() {
        let local = Settings::local(Access::Anonymous);
        for host in ["localhost", "LOCALHOST:7766", "127.0.0.1:7766", "[::1]:7766", "127.0.0.2"] {
            assert!(local.is_host(host), "{host}");
        }
        for host in ["evil.example", "evil.example:7766", "localhost.evil.example", "10.0.0.1", ""]
        {
            assert!(!local.is_host(host), "{host}");
        }
        let named = Settings { hosts: vec!["bus.example".into()], ..at("0.0.0.0:1", required()) };
        assert!(named.is_host("bus.example:443") && !named.is_host("other.example"));
        assert!(at("0.0.0.0:1", required()).is_host("any.example"));
    }

    #[test]
    fn origins() {
        let mut local = Settings::local(Access::Anonymous);
        local.origins.push("https://app.example".into());
        let host = Some("localhost:7766");
        assert!(local.is_origin("http://localhost:7766", host));
        assert!(local.is_origin("https://app.example", host));
        for origin in [
            "null",
            "",
            "http://evil.example",
            "https://app.example.evil.example",
            "http://localhost:7767",
            "https://localhost:7766",
            "http://app.example",
        ] {
            assert!(!local.is_origin(origin, host), "{origin}");
        }
    }
}
