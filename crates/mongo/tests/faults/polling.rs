//! Hubs that cannot listen to each other look, and miss nothing.

use mongodb::Client;
use mongodb::bson::doc;
use promethean::Start;
use promethean::store::TopicDefinition;
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};

use super::late::streams;
use super::set::Set;
use crate::conformance::wait_for;
use crate::hubs::until;

#[test]
fn without_change_streams_events_still_come_from_other_hubs() {
    const EVENTS: u64 = 20;
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let (a, b) = (set.bus().await, set.bus().await);
        let topic = Topic::new("orders").unwrap();
        a.define(TopicDefinition::new(topic.clone())).await.unwrap();
        let client = Client::with_uri_str(&set.url).await.unwrap();
        let admin = client.database("admin");
        until("both listen", async || streams(&admin).await.len() == 2).await;
        // Of what hubs tell each other, and of nothing else.
        let data = doc! {
            "failCommands": ["aggregate", "getMore"], "errorCode": 280,
            "namespace": "faults.news", "appName": "promethean",
        };
        let fail = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data };
        admin.run_command(fail).await.unwrap();
        until("nobody listens", async || streams(&admin).await.is_empty()).await;
        let subscribe = b.subscribe_to(["orders", "bills"], "g").from(Start::Earliest);
        let mut stream = subscribe.stream().await.unwrap();
        // A topic that is made now is found by looking, too.
        a.define(TopicDefinition::new(Topic::new("bills").unwrap())).await.unwrap();
        for number in 0..EVENTS {
            let name = if number % 2 == 0 { "orders" } else { "bills" };
            let (ts, topic) = (Timestamp::from_millis(1), Topic::new(name).unwrap());
            let payload = Payload::of(&number).unwrap();
            let event = NewEvent::new(EventId::generate(), ts, topic, payload);
            a.publish(event.with_key(Key::new("k").unwrap())).await.unwrap();
        }
        let mut came = std::collections::BTreeSet::new();
        let taking = async {
            while came.len() < EVENTS as usize {
                let delivered = stream.next().await.unwrap().unwrap();
                came.insert(delivered.event().payload.decode::<u64>().unwrap());
                delivered.ack().await.unwrap();
            }
        };
        tokio::time::timeout(crate::hubs::PATIENCE, taking).await.unwrap();
        assert!(streams(&admin).await.is_empty(), "nobody has listened meanwhile");
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        admin.run_command(off).await.unwrap();
        until("both listen again", async || streams(&admin).await.len() == 2).await;
        drop(stream);
        a.close().await;
        b.close().await;
    });
}
