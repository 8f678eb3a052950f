//! RELIABILITY 4.3 over a real socket: JSON Web Tokens that are wrong in one thing each. All of them
//! get the same answer, and none of them takes the server down. That each is refused for its own
//! reason is checked next to the verifier.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use promethean_gateway::Access;
use promethean_gateway::access::{Authenticator, JwtSettings, JwtVerifier, TokenTable, VerifyKeys};
use serde_json::{Value, json};

use super::server::TestServer;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

fn now_s() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer", "aud": "bus", "sub": "ann", "exp": now_s() + 600,
        "iat": now_s(), "nbf": now_s(), "scope": "publish:** admin:ops.read",
    })
}

fn b64(text: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

fn signed_with(secret: &[u8], header: &str, claims: &str) -> String {
    let text = format!("{}.{}", b64(header), b64(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
    format!("{text}.{}", b64(tag))
}

fn signed(header: &str, claims: &str) -> String {
    signed_with(SECRET, header, claims)
}

fn bad_claims(bad: &mut Vec<String>) {
    let wrong = [json!(null), json!(true), json!({}), json!([]), json!(""), json!(-1), json!(1.5)];
    for name in ["iss", "aud", "exp", "sub"] {
        let mut without = claims();
        without.as_object_mut().unwrap().remove(name);
        bad.push(signed(HEADER, &without.to_string()));
        for value in &wrong {
            let mut with = claims();
            with[name] = value.clone();
            bad.push(signed(HEADER, &with.to_string()));
        }
        let twice = claims().to_string().replacen('{', &format!("{{\"{name}\":0,"), 1);
        bad.push(signed(HEADER, &twice));
    }
    let now = now_s();
    for (name, value) in [
        ("iss", json!("https://other")),
        ("aud", json!("other")),
        ("aud", json!(["bus", 7])),
        ("exp", json!((now + 600).to_string())),
        ("exp", json!(now - 1)),
        ("exp", json!(now + 25 * 3600)),
        ("exp", json!(u64::MAX)),
        ("nbf", json!(now + 60)),
        ("nbf", json!("0")),
        ("iat", json!(now + 600)),
        ("iat", json!(null)),
        ("sub", json!("x".repeat(300))),
        ("scope", json!(7)),
        ("scope", json!("admin:root")),
    ] {
        let mut with = claims();
        with[name] = value;
        bad.push(signed(HEADER, &with.to_string()));
    }
    for text in ["", "7", "[]", "null", "{", "{}"] {
        bad.push(signed(HEADER, text));
    }
}

fn bad_headers(bad: &mut Vec<String>) {
    let claims = claims().to_string();
    for alg in ["none", "None", "", "hs256", "HS384", "HS512", "RS256", "ES256", "EdDSA"] {
        bad.push(signed(&json!({"alg": alg, "typ": "JWT"}).to_string(), &claims));
    }
    // Without a signature, as some libraries take it.
    bad.push(format!("{}.{}.", b64(r#"{"alg":"none"}"#), b64(&claims)));
    for name in ["jwk", "jku", "x5u", "x5c", "crit"] {
        bad.push(signed(
            &json!({"alg": "HS256", name: "https://evil.example"}).to_string(),
            &claims,
        ));
    }
    for kid in ["../../etc/passwd", "$where", "a'--", "", "a b", &"k".repeat(200)] {
        bad.push(signed(&json!({"alg": "HS256", "kid": kid}).to_string(), &claims));
    }
    for typ in ["JWE", "logout+jwt", "dpop+jwt"] {
        bad.push(signed(&json!({"alg": "HS256", "typ": typ}).to_string(), &claims));
    }
    for text in ["", "7", "[]", "{", r#"{"typ":"JWT"}"#, r#"{"alg":"none","alg":"HS256"}"#] {
        bad.push(signed(text, &claims));
    }
}

fn bad_forms(bad: &mut Vec<String>) {
    let good = signed(HEADER, &claims().to_string());
    let (text, signature) = good.rsplit_once('.').unwrap();
    bad.extend([
        "x".to_owned(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        text.to_owned(),
        format!("{text}."),
        format!("{good}.{signature}"),
        format!("{good}="),
        format!("{text}.{}", b64([0; 32])),
        format!("{text}.{signature}{signature}"),
        format!("{good}{}", "A".repeat(9 * 1024)),
    ]);
    for secret in [&b"another secret of thirty-two byte"[..], b"", b"secret"] {
        bad.push(signed_with(secret, HEADER, &claims().to_string()));
    }
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    for index in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[index] ^= 1 << (index % 8);
        bad.push(format!("{text}.{}", b64(wrong)));
    }
}

async fn server() -> TestServer {
    let verifier = JwtVerifier::new(JwtSettings {
        issuer: "https://issuer".into(),
        audience: "bus".into(),
        keys: VerifyKeys::Secret(SECRET.to_vec()),
    })
    .unwrap();
    let authenticator = Authenticator::new(TokenTable::default(), Some(verifier), Vec::new());
    TestServer::with(Access::Required(Box::new(authenticator)), |_| {}).await
}

/// Another address of this machine for each: strangers that are wrong too often are told to wait.
fn address(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 7, (number / 200) as u8, (number % 200 + 1) as u8))
}

#[tokio::test]
async fn every_bad_token_gets_the_same_answer() {
    let server = server().await;
    let good = signed(HEADER, &claims().to_string());
    let bearer = format!("Bearer {good}");
    assert_eq!(server.send("GET", "/lag", &[("authorization", &bearer)], b"").await.status, 200);

    let mut bad = Vec::new();
    bad_claims(&mut bad);
    bad_headers(&mut bad);
    bad_forms(&mut bad);
    assert!(bad.len() >= 100, "{}", bad.len());
    let mut bodies = BTreeSet::new();
    for (number, token) in bad.iter().enumerate() {
        let request = format!(
            "GET /lag HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n",
            server.at
        );
        let answer = server.raw_from(address(number), request.as_bytes()).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{token}");
        let mut problem = answer.json();
        // Only the name of the request is its own.
        problem.as_object_mut().unwrap().remove("instance");
        problem.as_object_mut().unwrap().remove("request_id");
        bodies.insert(problem.to_string());
    }
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    for (number, token) in bad.iter().enumerate() {
        let mut client = server.plain_from(address(number)).await;
        client.say(json!({"op": "AUTH", "token": token}).to_string()).await;
        assert_eq!(client.closed().await, 3000, "{token}");
    }
    assert_eq!(server.send("GET", "/lag", &[("authorization", &bearer)], b"").await.status, 200);
}
