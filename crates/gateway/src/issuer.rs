//! Fetches the key set of an issuer. The address is the operator's, never a token's; beyond that
//! nothing is trusted: only TLS, no redirects, a bound on time and size, and no address inside of a
//! network unless the operator says that the issuer is there. When to fetch is decided elsewhere,
//! by [`KeySet`](crate::access::KeySet).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Scheme;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::limits::JWKS_BYTES_MAX;

/// Where the keys of an issuer are.
#[derive(Debug, Clone)]
pub struct KeySource {
    address: Uri,
    host: String,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    is_inside: bool,
}

/// Why keys cannot be fetched from there: the server does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySourceError {
    /// Not an address that keys are fetched from.
    #[error("{0:?} is not an https address such as https://issuer.example/keys, without a user")]
    Address(String),
    /// The file of certificates to trust is no good.
    #[error("{path}: {reason}")]
    Trust {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is nobody to trust.
    #[error("this machine has no certificates to trust; name a file of them")]
    NobodyTrusted,
}

/// Why they were not fetched this time. For our logs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// It took too long.
    #[error("the issuer did not answer within {0:?}")]
    Slow(Duration),
    /// Every address of the name is inside of some network.
    #[error("{0} is not an address of the internet; allow it if the issuer is inside of yours")]
    Inside(IpAddr),
    /// The name has no address, or nobody is there.
    #[error("the issuer cannot be reached")]
    Unreachable(#[source] io::Error),
    /// What is spoken there is not HTTP.
    #[error("the issuer does not speak HTTP")]
    Protocol(#[from] hyper::Error),
    /// Another answer than the keys. A redirect is one: it could lead anywhere.
    #[error("the issuer answered {0}")]
    Status(StatusCode),
    /// More than a key set can be.
    #[error("the issuer sent more than {JWKS_BYTES_MAX} bytes")]
    TooLarge,
}

impl KeySource {
    /// Checks the address. Trusted are the certificates of this machine, or those of a file.
    pub fn new(address: &str, trusted: Option<&Path>) -> Result<Self, KeySourceError> {
        let refused = || KeySourceError::Address(address.chars().take(200).collect());
        let uri: Uri = address.parse().map_err(|_| refused())?;
        let authority = uri.authority().ok_or_else(refused)?;
        if uri.scheme() != Some(&Scheme::HTTPS) || authority.as_str().contains('@') {
            return Err(refused());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| refused())?;
        Ok(Self { host, name, tls: Arc::new(trusting(trusted)?), is_inside: false, address: uri })
    }

    /// Lets the issuer be inside of a network, or on this machine.
    #[must_use]
    pub fn inside(self, is_inside: bool) -> Self {
        Self { is_inside, ..self }
    }

    /// Fetches the key set, within this time.
    pub(crate) async fn fetch(&self, patience: Duration) -> Result<Bytes, FetchError> {
        let fetched = timeout(patience, self.fetch_patiently()).await;
        fetched.map_err(|_| FetchError::Slow(patience))?
    }

    async fn fetch_patiently(&self) -> Result<Bytes, FetchError> {
        let stream = self.connect().await?;
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(self.name.clone(), stream);
        let stream = TokioIo::new(stream.await.map_err(FetchError::Unreachable)?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        let asked = async {
            let response = sender.send_request(self.request()).await?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status(response.status()));
            }
            let mut body = response.into_body();
            let mut bytes = BytesMut::new();
            while let Some(frame) = body.frame().await {
                if let Ok(piece) = frame?.into_data() {
                    bytes.extend_from_slice(&piece);
                }
                if bytes.len() > JWKS_BYTES_MAX {
                    return Err(FetchError::TooLarge);
                }
            }
            Ok(bytes.freeze())
        };
        tokio::pin!(asked);
        // The connection is driven here and ends here: nothing of it is left behind.
        tokio::select! {
            answer = &mut asked => answer,
            ended = connection => {
                ended?;
                asked.await
            }
        }
    }

    fn request(&self) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        let path = self.address.path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
        let host = self.address.authority().map_or("", |authority| authority.as_str());
        if let Ok(host) = HeaderValue::from_str(host) {
            request.headers_mut().insert(header::HOST, host);
        }
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::ACCEPT, json);
        request
    }

    /// Connects to one of the addresses of the name. They are judged after the name was looked up,
    /// and the one that was judged is the one that is used: a name may mean something else soon.
    async fn connect(&self) -> Result<TcpStream, FetchError> {
        let port = self.address.port_u16().unwrap_or(443);
        let found = tokio::net::lookup_host((self.host.as_str(), port)).await;
        let found: Vec<SocketAddr> = found.map_err(FetchError::Unreachable)?.collect();
        let mut failure =
            FetchError::Unreachable(io::Error::new(io::ErrorKind::NotFound, "no address"));
        for address in found {
            if !self.is_inside && !is_public(address.ip()) {
                failure = FetchError::Inside(address.ip());
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = FetchError::Unreachable(error),
            }
        }
        Err(failure)
    }
}

fn trusting(file: Option<&Path>) -> Result<ClientConfig, KeySourceError> {
    let mut roots = rustls::RootCertStore::empty();
    match file {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let bad = |reason: String| KeySourceError::Trust { path: path.to_owned(), reason };
            let certificates = CertificateDer::pem_file_iter(path);
            for one in certificates.map_err(|error| bad(error.to_string()))? {
                let one = one.map_err(|error| bad(error.to_string()))?;
                roots.add(one).map_err(|error| bad(error.to_string()))?;
            }
        }
    }
    if roots.is_empty() {
        return Err(KeySourceError::NobodyTrusted);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| KeySourceError::NobodyTrusted)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Whether it is an address of the internet: not of this machine, of a network inside, or of no
/// single machine at all.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        // This network, and what will never be used.
        || a == 0
        || a >= 240
        // Behind a provider's translation.
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        // For measurements.
        || (a == 198 && (b == 18 || b == 19));
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    // Only what is given out by now; not what leads to addresses of the other kind: Teredo, 6to4.
    let [first, second, ..] = address.segments();
    let is_given_out = first & 0xe000 == 0x2000;
    let is_special = match first {
        0x2001 => second < 0x0200 || second == 0x0db8,
        0x2002 | 0x3fff => true,
        _ => false,
    };
    is_given_out && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kafka CVE-2025-27817: an address of the configuration that reads files or goes anywhere.
    #[test]
    fn only_https_addresses() {
        for bad in [
            "",
            "issuer.example/keys",
            "http://issuer.example/keys",
            "file:///etc/passwd",
            "ftp://issuer.example/keys",
            "https://",
            "https://user@issuer.example/keys",
            "https://user:secret@issuer.example/keys",
            "https://issuer .example/keys",
        ] {
            let refused = KeySource::new(bad, None).err();
            assert!(matches!(refused, Some(KeySourceError::Address(_))), "{bad:?}: {refused:?}");
        }
    }

    #[test]
    fn addresses_inside_are_told_apart() {
        for inside in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.9.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "2001:db8::1",
            "2001::1",
            "2002:a00:1::",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert!(is_public(outside.parse().unwrap()), "{outside}");
        }
    }
}
