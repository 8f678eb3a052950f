use super::*;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

const NOW_S: u64 = 1_700_000_000;
const NOW_MS: u64 = NOW_S * 1000;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn verifier(keys: VerifyKeys) -> JwtVerifier {
    let settings = JwtSettings { issuer: "https://issuer".into(), audience: "bus".into(), keys };
    JwtVerifier::new(settings).unwrap()
}

fn hs() -> JwtVerifier {
    verifier(VerifyKeys::Secret(SECRET.to_vec()))
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer", "aud": "bus", "sub": "ann",
        "exp": NOW_S + 600, "iat": NOW_S, "nbf": NOW_S, "scope": "publish:a.** openid",
    })
}

fn b64(text: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

/// A token of these very texts, signed for HS256.
fn signed(header: &str, claims: &str) -> String {
    let text = format!("{}.{}", b64(header), b64(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), text.as_bytes());
    format!("{text}.{}", b64(tag))
}

const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

fn with_claims(change: impl FnOnce(&mut Value)) -> String {
    let mut claims = claims();
    change(&mut claims);
    signed(HEADER, &claims.to_string())
}

fn set(name: &str, value: Value) -> String {
    with_claims(|claims| claims[name] = value)
}

fn without(name: &str) -> String {
    with_claims(|claims| {
        claims.as_object_mut().unwrap().remove(name);
    })
}

/// An independent implementation made the token.
#[test]
fn a_good_token_is_accepted() {
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET);
    let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims(), &key).unwrap();
    let ann = hs().verify(&token, NOW_MS).unwrap();
    assert_eq!(ann.subject(), "ann");
    assert_eq!(ann.expires_at_ms(), Some((NOW_S + 600) * 1000));
    assert!(hs().verify(&token, (NOW_S + 600) * 1000).is_err());
    for good in [
        set("aud", json!(["other", "bus"])),
        without("nbf"),
        without("iat"),
        without("scope"),
        with_claims(|claims| {
            claims.as_object_mut().unwrap().remove("scope");
            claims["scopes"] = json!(["publish:a"]);
        }),
        signed(r#"{"alg":"HS256"}"#, &claims().to_string()),
        signed(r#"{"alg":"HS256","typ":"at+jwt","kid":"k1"}"#, &claims().to_string()),
    ] {
        assert!(hs().verify(&good, NOW_MS).is_ok(), "{good}");
    }
}

fn bad_claims() -> Vec<String> {
    let mut bad = Vec::new();
    for name in ["iss", "aud", "exp", "sub"] {
        bad.push(without(name));
        for value in [json!(null), json!(true), json!({}), json!([]), json!("")] {
            bad.push(set(name, value));
        }
    }
    for value in ["https://issuer/", "HTTPS://ISSUER", "https://issuer ", "issuer"] {
        bad.push(set("iss", json!(value)));
        bad.push(set("iss", json!([value, "https://issuer"])));
    }
    for value in ["Bus", "bus ", "bu", "bus,other", "*"] {
        bad.push(set("aud", json!(value)));
        bad.push(set("aud", json!([value])));
        bad.push(set("aud", json!(["bus", 7])));
    }
    let exp = NOW_S + 600;
    for value in [
        json!(exp.to_string()),
        json!(exp as f64 + 0.5),
        json!(-1),
        json!(0),
        json!(NOW_S),
        json!(NOW_S - 1),
        json!(NOW_S + 24 * 3600 + 1),
        json!(u64::MAX),
        json!(1e300),
        json!([exp]),
    ] {
        bad.push(set("exp", value));
    }
    // A whole number spelled as a fraction is none.
    bad.push(signed(HEADER, &claims().to_string().replace(&exp.to_string(), &format!("{exp}.0"))));
    for value in [json!(NOW_S + 1), json!("0"), json!(1.5), json!(-1), json!(null), json!({})] {
        bad.push(set("nbf", value));
    }
    for value in [json!(NOW_S + 61), json!("0"), json!(1.5), json!(null)] {
        bad.push(set("iat", value));
    }
    bad.push(set("sub", json!("x".repeat(300))));
    bad.push(set("sub", json!(7)));
    for value in [json!("publish"), json!("publish:"), json!("admin:root"), json!(["publish:a"])] {
        bad.push(set("scope", value));
    }
    bad.push(set("scopes", json!(["publish:a"])));
    bad.push(set("scope", json!(7)));
    for name in ["exp", "iss", "aud", "sub", "scope"] {
        let text = claims().to_string();
        let twice = text.replacen('{', &format!("{{\"{name}\":{},", claims()[name]), 1);
        bad.push(signed(HEADER, &twice));
    }
    for text in ["", "7", "[]", "null", "{", "\"a\"", "{}"] {
        bad.push(signed(HEADER, text));
    }
    bad
}

fn bad_headers() -> Vec<String> {
    let claims = claims().to_string();
    let mut bad = Vec::new();
    for alg in
        ["none", "None", "NONE", "nOnE", "", "hs256", "HS384", "HS512", "RS256", "ES256", "EdDSA"]
    {
        bad.push(signed(&json!({"alg": alg, "typ": "JWT"}).to_string(), &claims));
    }
    for alg in [json!(null), json!(["HS256"]), json!({"HS256": 1}), json!(256), json!(true)] {
        bad.push(signed(&json!({"alg": alg}).to_string(), &claims));
    }
    bad.push(signed(r#"{"typ":"JWT"}"#, &claims));
    bad.push(signed(r#"{"alg":"HS256","alg":"HS256"}"#, &claims));
    bad.push(signed(r#"{"alg":"none","alg":"HS256"}"#, &claims));
    for typ in [json!("JWE"), json!("dpop+jwt"), json!("logout+jwt"), json!(""), json!(7)] {
        bad.push(signed(&json!({"alg": "HS256", "typ": typ}).to_string(), &claims));
    }
    for name in FOREIGN_KEYS {
        bad.push(signed(&json!({"alg": "HS256", *name: "x"}).to_string(), &claims));
        bad.push(signed(&json!({"alg": "HS256", *name: null}).to_string(), &claims));
    }
    for kid in ["../../etc/passwd", "a/b", "$where", "a'--", "", "a b", "a\u{0}", "ä", "a|b", "a;b"]
    {
        bad.push(signed(&json!({"alg": "HS256", "kid": kid}).to_string(), &claims));
    }
    bad.push(signed(&json!({"alg": "HS256", "kid": "k".repeat(129)}).to_string(), &claims));
    bad.push(signed(&json!({"alg": "HS256", "kid": 7}).to_string(), &claims));
    for text in ["", "7", "[]", "null", "{", "\"HS256\""] {
        bad.push(signed(text, &claims));
    }
    bad
}

fn bad_forms() -> Vec<String> {
    let good = signed(HEADER, &claims().to_string());
    let parts: Vec<&str> = good.split('.').collect();
    let (header, body, signature) = (parts[0], parts[1], parts[2]);
    let mut bad: Vec<String> = [
        String::new(),
        ".".into(),
        "..".into(),
        "...".into(),
        "a.b.c".into(),
        format!("{header}.{body}"),
        format!("{header}.{body}."),
        format!("{header}..{signature}"),
        format!(".{body}.{signature}"),
        format!("{good}.{signature}"),
        format!("{good}="),
        format!("{good} "),
        format!(" {good}"),
        format!("{good}\n"),
        format!("Bearer {good}"),
        format!("{header}.{body}.{}", b64([0; 32])),
        format!("{header}.{body}.{}", b64([])),
        format!("{header}.{body}.{}", &signature[..signature.len() - 2]),
        format!("{header}.{body}.{signature}{signature}"),
        format!("{header}.{body}.{}", signature.to_uppercase()),
        good.replace('_', "/").replace('-', "+") + "+",
        good.clone() + &"A".repeat(TOKEN_BYTES_MAX),
    ]
    .into();
    // Other claims under a good signature.
    let other = b64(claims().to_string().replace("ann", "bob"));
    bad.push(format!("{header}.{other}.{signature}"));
    // Signed by others.
    for secret in [&b"0123456789abcdef0123456789abcdeF"[..], b"", b"secret"] {
        let text = format!("{header}.{body}");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
        bad.push(format!("{text}.{}", b64(tag)));
    }
    // Every bit of the signature counts.
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    for index in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[index] ^= 1 << (index % 8);
        bad.push(format!("{header}.{body}.{}", b64(wrong)));
    }
    bad
}

/// RELIABILITY 4.3: every one of them, one same answer, no panic.
#[test]
fn bad_tokens_are_refused() {
    let verifier = hs();
    let all = [bad_claims(), bad_headers(), bad_forms()].concat();
    assert!(all.len() >= 150, "{}", all.len());
    for token in &all {
        let result = verifier.verify(token, NOW_MS);
        assert!(matches!(result, Err(Refused::Token(_))), "{token}: {result:?}");
    }
}

#[test]
fn missing_scopes_allow_nothing() {
    let nobody = hs().verify(&without("scope"), NOW_MS).unwrap();
    assert!(nobody.policy().is_empty());
}

#[test]
fn weak_settings_do_not_start() {
    let new = |issuer: &str, audience: &str, secret: &[u8]| {
        JwtVerifier::new(JwtSettings {
            issuer: issuer.into(),
            audience: audience.into(),
            keys: VerifyKeys::Secret(secret.to_vec()),
        })
        .err()
    };
    assert_eq!(new("i", "a", &[0; 31]), Some(JwtError::ShortSecret(31)));
    assert_eq!(new("", "a", SECRET), Some(JwtError::Unpinned));
    assert_eq!(new("i", "", SECRET), Some(JwtError::Unpinned));
    assert!(!format!("{:?}", VerifyKeys::Secret(SECRET.to_vec())).contains("48"));
}

struct Issuer {
    rsa: RsaKeyPair,
    rsa_der: Vec<u8>,
    ec: EcdsaKeyPair,
}

impl Issuer {
    fn new() -> Self {
        let pair = RsaPair::generate(KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let rsa = RsaKeyPair::from_pkcs8(der.as_ref()).unwrap();
        let rsa_der = rsa.public_key().as_ref().to_vec();
        let ec = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { rsa, rsa_der, ec }
    }

    fn jwks(&self) -> String {
        let key = self.rsa.public_key();
        let (n, e) = (key.modulus(), key.exponent());
        let point = self.ec.public_key().as_ref();
        json!({"keys": [
            {"kty": "RSA", "kid": "r1", "use": "sig",
             "n": b64(n.big_endian_without_leading_zero()),
             "e": b64(e.big_endian_without_leading_zero())},
            {"kty": "EC", "crv": "P-256", "kid": "e1", "x": b64(&point[1..33]), "y": b64(&point[33..])},
        ]})
        .to_string()
    }

    fn rsa_token(&self, header: &str) -> String {
        let text = format!("{}.{}", b64(header), b64(claims().to_string()));
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        self.rsa
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .unwrap();
        format!("{text}.{}", b64(signature))
    }

    fn ec_token(&self, header: &str) -> String {
        let text = format!("{}.{}", b64(header), b64(claims().to_string()));
        let signature = self.ec.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", b64(signature))
    }
}

#[test]
fn key_sets() {
    let issuer = Issuer::new();
    let rs = verifier(VerifyKeys::Set(SigningAlgorithm::Rs256));
    let es = verifier(VerifyKeys::Set(SigningAlgorithm::Es256));
    let rsa_token = issuer.rsa_token(r#"{"alg":"RS256","kid":"r1"}"#);
    let ec_token = issuer.ec_token(r#"{"alg":"ES256","kid":"e1"}"#);
    assert_eq!(rs.verify(&rsa_token, NOW_MS).unwrap_err(), Refused::Refresh);
    assert!(rs.keys_are_old(NOW_MS));
    rs.keys_failed(NOW_MS);
    assert_eq!(rs.verify(&rsa_token, NOW_MS).unwrap_err(), Refused::Unavailable);
    rs.keys_fetched(issuer.jwks().as_bytes(), NOW_MS).unwrap();
    es.keys_fetched(issuer.jwks().as_bytes(), NOW_MS).unwrap();
    assert_eq!(rs.verify(&rsa_token, NOW_MS).unwrap().subject(), "ann");
    assert_eq!(es.verify(&ec_token, NOW_MS).unwrap().subject(), "ann");

    // HS256 with the public key as its secret: the classic confusion.
    let text = format!("{}.{}", b64(r#"{"alg":"HS256","kid":"r1"}"#), b64(claims().to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, &issuer.rsa_der);
    let confused = format!("{text}.{}", b64(hmac::sign(&key, text.as_bytes())));
    let stranger = Issuer::new();
    for (verifier, token) in [
        (&rs, confused.clone()),
        (&es, confused),
        (&rs, ec_token.clone()),
        (&es, rsa_token.clone()),
        (&rs, issuer.rsa_token(r#"{"alg":"RS256"}"#)),
        (&rs, issuer.rsa_token(r#"{"alg":"RS256","kid":"unknown"}"#)),
        (&rs, issuer.rsa_token(r#"{"alg":"RS256","kid":"e1"}"#)),
        (&rs, issuer.rsa_token(r#"{"alg":"PS256","kid":"r1"}"#)),
        (&rs, issuer.rsa_token(r#"{"alg":"RS512","kid":"r1"}"#)),
        (&rs, issuer.rsa_token(r#"{"alg":"none","kid":"r1"}"#)),
        (&rs, stranger.rsa_token(r#"{"alg":"RS256","kid":"r1"}"#)),
        (&es, stranger.ec_token(r#"{"alg":"ES256","kid":"e1"}"#)),
        (&es, issuer.ec_token(r#"{"alg":"ES256","kid":"r1"}"#)),
    ] {
        assert!(matches!(verifier.verify(&token, NOW_MS), Err(Refused::Token(_))), "{token}");
    }
    // CVE-2022-21449: a signature of zeroes.
    let (signed, _) = ec_token.rsplit_once('.').unwrap();
    let zeroes = format!("{signed}.{}", b64([0; 64]));
    assert!(es.verify(&zeroes, NOW_MS).is_err());
}
