//! RELIABILITY 4.3, the row of key sets: an issuer over real TLS that answers as it should, and ones
//! that do not.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use promethean_gateway::access::{
    Authenticator, JwtSettings, JwtVerifier, SigningAlgorithm, TokenTable, VerifyKeys,
};
use promethean_gateway::{Access, KeySource};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::server::TestServer;

/// What an issuer says when it is asked for its keys.
#[derive(Debug, Clone)]
enum Says {
    Keys,
    /// These keys are at another address.
    Elsewhere(u16),
    Fault,
    TooMuch,
    Nonsense,
    Nothing,
}

struct Issuer {
    port: u16,
    /// How often it was asked.
    asked: Arc<AtomicUsize>,
    certificate: PathBuf,
    key: Arc<EcdsaKeyPair>,
    _folder: TempDir,
}

fn b64(text: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

fn answer(says: &Says, key: &EcdsaKeyPair) -> Option<String> {
    let point = key.public_key().as_ref();
    let keys = json!({"keys": [{
        "kty": "EC", "crv": "P-256", "kid": "k1", "x": b64(&point[1..33]), "y": b64(&point[33..]),
    }]})
    .to_string();
    let (status, more, body) = match says {
        Says::Keys => ("200 OK", String::new(), keys),
        Says::Elsewhere(port) => {
            let there = format!("location: https://localhost:{port}/keys\r\n");
            ("302 Found", there, String::new())
        }
        Says::Fault => ("500 Internal Server Error", String::new(), keys),
        Says::TooMuch => ("200 OK", String::new(), format!("{keys}{}", " ".repeat(300 * 1024))),
        Says::Nonsense => ("200 OK", String::new(), "{}".to_owned()),
        Says::Nothing => return None,
    };
    let length = body.len();
    Some(format!("HTTP/1.1 {status}\r\n{more}content-length: {length}\r\n\r\n{body}"))
}

impl Issuer {
    async fn start(says: Says) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let folder = TempDir::new().unwrap();
        let certificate = folder.path().join("cert.pem");
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        let private = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(private))
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let key = Arc::new(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap());
        let asked = Arc::<AtomicUsize>::default();
        let (counted, signing) = (Arc::clone(&asked), Arc::clone(&key));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One who does not trust the certificate leaves here.
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                counted.fetch_add(1, Ordering::SeqCst);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0
                {
                }
                match answer(&says, &signing) {
                    Some(answer) => {
                        // Whoever has enough does not read to the end.
                        let _ = stream.write_all(answer.as_bytes()).await;
                        let _ = stream.shutdown().await;
                    }
                    None => std::future::pending().await,
                }
            }
        });
        Self { port, asked, certificate, key, _folder: folder }
    }

    fn source(&self) -> KeySource {
        let address = format!("https://localhost:{}/keys?of=bus", self.port);
        KeySource::new(&address, Some(&self.certificate)).unwrap().inside(true)
    }

    fn token(&self, kid: &str) -> String {
        let exp = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + 600;
        let header = json!({"alg": "ES256", "kid": kid}).to_string();
        let claims = json!({
            "iss": "https://issuer", "aud": "bus", "sub": "ann", "exp": exp, "scope": "admin:ops.read",
        });
        let text = format!("{}.{}", b64(header), b64(claims.to_string()));
        let signature = self.key.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", b64(signature))
    }
}

async fn server(source: KeySource) -> TestServer {
    let verifier = JwtVerifier::new(JwtSettings {
        issuer: "https://issuer".into(),
        audience: "bus".into(),
        keys: VerifyKeys::Set(SigningAlgorithm::Es256),
    });
    let authenticator = Authenticator::new(TokenTable::default(), verifier.ok(), Vec::new());
    TestServer::with(Access::Required(Box::new(authenticator)), |settings| {
        settings.key_source = Some(source);
        settings.rates.auth_failures = None;
        settings.bounds.keys = Duration::from_millis(500);
    })
    .await
}

async fn lag(server: &TestServer, token: &str) -> (u16, String) {
    let bearer = format!("Bearer {token}");
    let answer = server.send("GET", "/lag", &[("authorization", &bearer)], b"").await;
    (answer.status, if answer.status == 200 { String::new() } else { answer.code() })
}

#[tokio::test]
async fn keys_are_fetched_once_for_many() {
    let issuer = Issuer::start(Says::Keys).await;
    let server = server(issuer.source()).await;
    let good = issuer.token("k1");
    assert_eq!(lag(&server, &good).await.0, 200);
    let mut client = server.plain().await;
    let auth = json!({"op": "AUTH", "token": good}).to_string();
    assert_eq!(client.ask(auth).await["op"], "OK");
    // A key that the issuer does not have is asked for once in a while only, however many want it.
    for n in 0..20 {
        let unknown = issuer.token(&format!("k{}", n + 2));
        assert_eq!(lag(&server, &unknown).await, (401, "unauthorized".into()));
    }
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
    // Somebody else's signature under a name that is known.
    let stranger = Issuer::start(Says::Nothing).await;
    assert_eq!(lag(&server, &stranger.token("k1")).await, (401, "unauthorized".into()));
}

/// Without keys nobody is let in, and nobody is told to be wrong.
#[tokio::test]
async fn issuers_that_do_not_answer_as_they_should() {
    let target = Issuer::start(Says::Keys).await;
    for says in
        [Says::Elsewhere(target.port), Says::Fault, Says::TooMuch, Says::Nonsense, Says::Nothing]
    {
        let issuer = Issuer::start(says.clone()).await;
        let server = server(issuer.source()).await;
        let token = issuer.token("k1");
        assert_eq!(lag(&server, &token).await, (503, "not_ready".into()), "{says:?}");
        let mut client = server.plain().await;
        client.say(json!({"op": "AUTH", "token": token}).to_string()).await;
        assert_eq!(client.closed().await, 1013, "{says:?}");
        assert_eq!(issuer.asked.load(Ordering::SeqCst), 1, "{says:?}");
        // A token that could not be good whatever the keys are is refused all the same.
        assert_eq!(lag(&server, "a.b.c").await.0, 401, "{says:?}");
        assert_eq!(server.get("/livez").await.status, 200);
    }
    assert_eq!(target.asked.load(Ordering::SeqCst), 0, "redirects are not followed");
}

/// An address that is looked up to be inside of a network, or one with another certificate.
#[tokio::test]
async fn issuers_that_are_not_the_one_that_is_meant() {
    let (issuer, other) = (Issuer::start(Says::Keys).await, Issuer::start(Says::Keys).await);
    let address = format!("https://localhost:{}/keys", issuer.port);
    let inside = KeySource::new(&address, Some(&issuer.certificate)).unwrap();
    let untrusted = KeySource::new(&address, Some(&other.certificate)).unwrap().inside(true);
    for source in [inside, untrusted] {
        let server = server(source).await;
        assert_eq!(lag(&server, &issuer.token("k1")).await, (503, "not_ready".into()));
    }
    assert_eq!(issuer.asked.load(Ordering::SeqCst), 0);
}
