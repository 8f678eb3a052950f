//! TLS, with a certificate of an authority that only this client knows.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use promethean_client::{Connect, ConnectError, Start};

use super::event;
use crate::server::Server;

/// Those of the TypeScript client's tests: an authority, and a server of this machine.
const CERTIFICATES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/typescript/test/certificates");

#[tokio::test]
async fn wss_with_an_authority_of_ones_own() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("server.key");
    fs::copy(Path::new(CERTIFICATES).join("server.key"), &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let (certificate, authority) =
        (format!("{CERTIFICATES}/server.pem"), format!("{CERTIFICATES}/ca.pem"));
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--data", &data];
    arguments.extend(["--tls-cert", &certificate, "--tls-key", key.to_str().unwrap()]);
    let server = Server::start(&arguments);
    let url = format!("wss://{}", server.at);
    let stranger = Connect::new(&url).connect().await.unwrap_err();
    assert!(matches!(&stranger, ConnectError::Tls(why) if why.contains("certificate")));
    let connect = Connect::new(&url).token_file(format!("{data}/admin.token")).trust(authority);
    let bus = connect.connect().await.unwrap();
    bus.publish(event("a", "1")).await.unwrap();
    let mut stream = bus.subscribe_to(["a"], "g").from(Start::Earliest).stream().await.unwrap();
    stream.next().await.unwrap().unwrap().ack().await.unwrap();
    let lag = bus.lag(&"g".parse().unwrap()).await.unwrap();
    assert_eq!(lag.events(), 0, "HTTP goes over TLS as well");
}
