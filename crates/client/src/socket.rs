//! Streams to a server: TCP, TLS, WebSocket.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, http::HeaderValue};

use crate::address::Address;
use crate::error::{ConnectError, Refusal};
use crate::limits::SERVER_FRAME_BYTES_MAX;

/// What bytes go over.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Bytes for S {}

pub(crate) type Stream = Box<dyn Bytes>;
pub(crate) type Socket = WebSocketStream<Stream>;

/// Trusts whom the machine trusts, and those who were named.
pub(crate) fn trusting(files: &[PathBuf]) -> Result<Arc<ClientConfig>, ConnectError> {
    let tls = |why: String| ConnectError::Tls(why);
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for file in files {
        let wrong = |error: String| tls(format!("{}: {error}", file.display()));
        let certificates = CertificateDer::pem_file_iter(file)
            .map_err(|error| wrong(error.to_string()))?
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(error.to_string()))?;
        if certificates.is_empty() {
            return Err(wrong("there is no certificate in it".to_owned()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
    }
    if roots.is_empty() {
        return Err(tls("this machine has no certificates to trust".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A stream to the server.
pub(crate) async fn stream(
    address: &Address,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Stream, ConnectError> {
    let failed = |error: io::Error| ConnectError::Unreachable {
        url: address.url.clone(),
        why: error.to_string(),
    };
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(address.host.clone())
        .map_err(|error| ConnectError::Tls(error.to_string()))?;
    let connector = TlsConnector::from(Arc::clone(tls));
    let connected = connector.connect(name, stream).await.map_err(|error| {
        let why = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match why {
            Some(why @ rustls::Error::InvalidCertificate(_)) => ConnectError::Tls(why.to_string()),
            _ => failed(error),
        }
    })?;
    Ok(Box::new(connected))
}

/// A WebSocket to the server.
pub(crate) async fn open(
    address: Address,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Socket, ConnectError> {
    let stream = stream(&address, tls.as_ref()).await?;
    let wrong = |why: String| ConnectError::Address { url: address.url.clone(), why };
    let mut request = format!("ws://{}/ws", address.authority())
        .into_client_request()
        .map_err(|error| wrong(error.to_string()))?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", HeaderValue::from_static("prom.v1"));
    let agent = concat!("promethean-client/", env!("CARGO_PKG_VERSION"));
    headers.insert("user-agent", HeaderValue::from_static(agent));
    let config = WebSocketConfig::default()
        .max_message_size(Some(SERVER_FRAME_BYTES_MAX))
        .max_frame_size(Some(SERVER_FRAME_BYTES_MAX));
    let opening = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    match opening {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => {
            let body = response.body().as_deref().unwrap_or_default();
            Err(refused(response.status().as_u16(), body))
        }
        Err(error) => {
            Err(ConnectError::Unreachable { url: address.url.clone(), why: error.to_string() })
        }
    }
}

/// What an upgrade, or a request, was refused with.
fn refused(status: u16, body: &[u8]) -> ConnectError {
    ConnectError::Refused(problem(status, body))
}

/// A problem document (RFC 9457), or what can be said without one.
pub(crate) fn problem(status: u16, body: &[u8]) -> Refusal {
    #[derive(serde::Deserialize)]
    struct Problem {
        code: String,
        #[serde(default)]
        title: String,
        #[serde(default)]
        detail: Option<String>,
        #[serde(default)]
        retry_ms: Option<u64>,
    }
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        let text = problem.detail.unwrap_or(problem.title);
        return Refusal::new(&problem.code, text, problem.retry_ms);
    }
    let code = match status {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        421 => "host_refused",
        429 => "rate_limited",
        503 => "not_ready",
        400..500 => "bad_request",
        _ => "internal",
    };
    Refusal::new(code, format!("the server answered {status}"), None)
}

/// Why a server closed a connection: the reason is a code of the protocol, if there is one.
pub(crate) fn closed(url: &str, frame: Option<&tungstenite::protocol::CloseFrame>) -> ConnectError {
    match frame.map(|frame| (u16::from(frame.code), frame.reason.as_str())) {
        Some((code, reason)) if !reason.is_empty() => {
            let text = format!("the server closed the connection ({code})");
            ConnectError::Refused(Refusal::new(reason, text, None))
        }
        Some((3000, _)) => {
            let text = "the server closed the connection (3000)";
            ConnectError::Refused(Refusal::new("unauthorized", text, None))
        }
        _ => {
            let why = "the connection was closed".to_owned();
            ConnectError::Unreachable { url: url.to_owned(), why }
        }
    }
}
