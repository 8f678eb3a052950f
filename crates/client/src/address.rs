use std::net::IpAddr;

use http::Uri;

use crate::error::ConnectError;

/// The port of a server that names none.
const PORT: u16 = 7766;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_secure: bool,
    /// As it was given.
    pub(crate) url: String,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, ConnectError> {
        let wrong = |why: &str| ConnectError::Address { url: url.to_owned(), why: why.to_owned() };
        let full = if url.contains("://") { url.to_owned() } else { format!("ws://{url}") };
        let uri: Uri = full.parse().map_err(|_| wrong("it is not an address"))?;
        let is_secure = match uri.scheme_str() {
            Some("ws" | "http") => false,
            Some("wss" | "https") => true,
            _ => return Err(wrong("only ws, wss, http and https are spoken here")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { PORT });
        Ok(Self { host, port, is_secure, url: url.to_owned() })
    }

    /// As it stands in the head of a request.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            return format!("[{}]:{}", self.host, self.port);
        }
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (url, authority, is_secure) in [
            ("ws://127.0.0.1:7766", "127.0.0.1:7766", false),
            ("localhost", "localhost:7766", false),
            ("http://[::1]:80/", "[::1]:80", false),
            ("wss://bus.example", "bus.example:443", true),
            ("https://bus.example:8443/ws", "bus.example:8443", true),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.authority().as_str(), address.is_secure), (authority, is_secure));
        }
        for url in ["", "ftp://a", "ws://", "ws://a b"] {
            assert!(matches!(Address::parse(url), Err(ConnectError::Address { .. })), "{url:?}");
        }
        assert!(Address::parse("ws://[::1]").unwrap().is_loopback());
        assert!(!Address::parse("ws://bus.example").unwrap().is_loopback());
    }
}
