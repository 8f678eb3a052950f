//! TLS of the real server, and a certificate that is exchanged while it runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::server::Server;

/// Writes a new certificate of `localhost` and its key.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    let key = folder.join("key.pem");
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    made.cert.der().clone()
}

/// Asks whether the server is ready, if it has this certificate.
async fn ask(at: &str, trusted: &CertificateDer<'static>) -> Result<String, std::io::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(at).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let head = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut heard = String::new();
    // The other side may leave without saying so.
    let _ = stream.read_to_string(&mut heard).await;
    Ok(heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_exchanged_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let first = certify(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, cert, key) = (path("data"), path("cert.pem"), path("key.pem"));
    let arguments = [
        "serve",
        "--data",
        &data,
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    let server = Server::start(&arguments);
    assert!(ask(&server.at, &first).await.unwrap().starts_with("HTTP/1.1 200"));

    // Plain text on this port is closed, without an answer.
    let mut plain = TcpStream::connect(&server.at).await.unwrap();
    plain.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard).await;
    assert!(!heard.starts_with(b"HTTP"), "{heard:?}");

    // A file that is no certificate changes nothing.
    std::fs::write(&cert, "nonsense").unwrap();
    server.reload();
    assert!(ask(&server.at, &first).await.is_ok());

    let second = certify(folder.path());
    assert_ne!(first, second);
    server.reload();
    let mut tries = 0;
    while ask(&server.at, &second).await.is_err() {
        tries += 1;
        assert!(tries < 1_000, "the new certificate never came");
    }
    assert!(ask(&server.at, &first).await.is_err());
    assert_eq!(tokio::task::spawn_blocking(move || server.stop()).await.unwrap(), Some(0));
}
