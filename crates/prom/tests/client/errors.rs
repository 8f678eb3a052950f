//! Refusals are typed, and say what to do.

use std::time::Duration;

use promethean_client::{Bus, Code, Connect, ConnectError, GroupError, PublishError, Start};

use super::{connected, event, free_port, serving};
use crate::server::Server;

fn code(error: &GroupError) -> &Code {
    match error {
        GroupError::Refused(refusal) => &refusal.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let url = format!("ws://127.0.0.1:{}", free_port());
    let connect = Connect::new(&url).patience(Duration::from_millis(200));
    let error = connect.connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("prom dev"), "{error}");
    let error = Bus::connect("gopher://a").await.unwrap_err();
    assert!(matches!(error, ConnectError::Address { .. }));
    let error = Connect::new("ws://bus.example").token("t").connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::PlainText(_)));
}

#[tokio::test]
async fn credentials() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let server = Server::start(&["serve", "--listen", "127.0.0.1:0", "--data", data]);
    let error = Connect::new(&server.url()).token("nonsense").connect().await.unwrap_err();
    let ConnectError::Refused(refusal) = error else { panic!("{error:?}") };
    assert_eq!(refusal.code, Code::Unauthorized);
    // Without one the door is open, but nothing can be done.
    let bus = connected(&server).await;
    let error = bus.publish(event("a", "1")).await.unwrap_err();
    let PublishError::Refused(refusal) = error else { panic!("{error:?}") };
    assert_eq!(refusal.code, Code::Unauthorized);
}

#[tokio::test]
async fn groups_with_other_settings_and_names_that_are_none() {
    let server = serving();
    let bus = connected(&server).await;
    let _first = bus.subscribe_to(["a"], "g").max_attempts(3).stream().await.unwrap();
    let error = bus.subscribe_to(["a"], "g").max_attempts(4).stream().await.unwrap_err();
    assert_eq!(code(&error), &Code::Conflict);
    assert!(error.to_string().contains("max_attempts is 3, not 4"), "{error}");
    let error = bus.subscribe_to(["a"], "no group").stream().await.unwrap_err();
    assert!(matches!(error, GroupError::Name(_)));
    let error = bus.subscribe_to(["A b"], "g").stream().await.unwrap_err();
    assert!(matches!(error, GroupError::Pattern(_)));
    let wish = bus.subscribe_to(["a"], "h").from(Start::Earliest).filter_by("payload.(");
    assert_eq!(code(&wish.stream().await.unwrap_err()), &Code::InvalidFilter);
    let error = bus.lag(&"nobody".parse().unwrap()).await.unwrap_err();
    assert_eq!(code(&error), &Code::NotFound);
}

#[tokio::test]
async fn events_that_are_none() {
    let server = serving();
    let bus = connected(&server).await;
    let error = bus.publish_batch(Vec::new()).await.unwrap_err();
    assert_eq!(error, PublishError::Count(0));
    let large = format!("\"{}\"", "x".repeat(1_048_500));
    let error = bus.publish(event("a", &large)).await.unwrap_err();
    assert!(matches!(error, PublishError::TooLarge { .. }), "{error:?}");
    let taken = bus.publish(event("a", "1")).await.unwrap().id;
    let error = bus.publish(event("a", "2")).id(taken).await.unwrap_err();
    let PublishError::Refused(refusal) = error else { panic!("{error:?}") };
    assert_eq!(refusal.code, Code::IdConflict);
    bus.close().await;
    let error = bus.publish(event("a", "1")).await.unwrap_err();
    assert_eq!(error, PublishError::Connection(ConnectError::Closed));
}
