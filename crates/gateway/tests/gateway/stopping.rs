//! Stopping: what is under way is answered, leases go back, connections hear why.

use std::time::Duration;

use promethean_gateway::Access;

use super::server::TestServer;

#[tokio::test]
async fn connections_are_drained() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.drain = Duration::from_secs(2);
    })
    .await;
    let mut plain = server.plain().await;
    let mut speaks = server.negotiated().await;
    speaks.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    for n in 0..50 {
        plain.say(format!(r#"{{"op":"PUBLISH","topic":"a","payload":{n},"corr":{n}}}"#)).await;
    }
    // At least one of them has reached the server.
    assert_eq!(plain.next().await["corr"], 0);
    server.handle.stop();
    let drain = speaks.next_of("DRAIN").await;
    assert!(drain["deadline_ms"].as_u64().unwrap() <= 2_000);
    // Answered or refused, each one is heard of, and then the reason of the end.
    assert_eq!(plain.closed().await, 1012);
    assert_eq!(speaks.closed().await, 1012);
    server.running.await.unwrap();
    let group = "g".parse().unwrap();
    let lag = server.bus.lag(&group).await.unwrap();
    assert_eq!(lag.partitions.iter().map(|part| part.out).sum::<u64>(), 0);
}

#[tokio::test]
async fn a_stopped_server_takes_nothing() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    server.handle.stop();
    client.next_of("DRAIN").await;
    let refused = client.ask(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await;
    assert_eq!(refused["code"], "going_away");
    // The last subscription is ended by the client: nothing is left to wait for.
    client.say(r#"{"op":"UNSUBSCRIBE","topic":"a","group":"g"}"#).await;
    assert_eq!(client.closed().await, 1012);
    server.running.await.unwrap();
}
