use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use promethean::event::{Key, Payload};
use promethean::{Delivered, Start};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::{bus_with, event};

type Spans = Arc<Mutex<Vec<BTreeMap<String, String>>>>;

/// Keeps the spans of the bus up to a level, with all their fields.
struct Listener {
    spans: Spans,
    most: Level,
}

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most && metadata.target().starts_with("promethean")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(BTreeMap::new());
        span.record(&mut fields);
        fields.0.insert("name".to_owned(), span.metadata().name().to_owned());
        let mut spans = self.spans.lock().unwrap();
        spans.push(fields.0);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Publishes one event and two together, to a handler, and gives the spans that were made.
async fn spans_up_to(most: Level) -> (Vec<BTreeMap<String, String>>, String) {
    let spans = Spans::default();
    let listener = Listener { spans: Arc::clone(&spans), most };
    let _listening = tracing::subscriber::set_default(listener);
    let bus = bus_with("orders").await;
    let traces = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&traces);
    let consumer = bus
        .subscribe_to(["orders"], "billing")
        .from(Start::Earliest)
        .handle(move |delivered: Delivered| {
            let trace = delivered.event().headers.get("traceparent").map(str::to_owned);
            seen.lock().unwrap().push(trace);
            async { Ok(()) }
        })
        .await
        .unwrap();
    let mut secret = event("orders");
    secret.key = Some(Key::new("key-of-a-customer").unwrap());
    secret.payload = Payload::of(&"payload-of-a-customer").unwrap();
    secret.headers.insert("traceparent", TRACE).unwrap();
    let id = secret.id.to_string();
    bus.publish(secret).await.unwrap();
    bus.publish_batch(vec![event("orders"), event("orders")]).await.unwrap();
    bus.caught_up(consumer.group()).await.unwrap();
    consumer.stop().await.unwrap();
    assert_eq!(traces.lock().unwrap().first(), Some(&Some(TRACE.to_owned())), "passes through");
    let made = spans.lock().unwrap().clone();
    (made, id)
}

#[tokio::test]
async fn spans_carry_the_names_of_the_conventions_and_no_secrets() {
    let (spans, id) = spans_up_to(Level::TRACE).await;
    let named = |name: &str| -> Vec<_> { spans.iter().filter(|s| s["name"] == name).collect() };
    let (publish, process) = (named("publish"), named("process"));
    assert_eq!((publish.len(), process.len()), (2, 3));
    for span in publish.iter().chain(&process) {
        assert_eq!(span["messaging.system"], "promethean");
        assert_eq!(span["messaging.destination.name"], "orders");
    }
    assert_eq!(publish[0]["messaging.operation.type"], "send");
    assert_eq!(publish[0]["messaging.message.id"], id);
    assert!(!publish[1].contains_key("messaging.message.id"));
    assert_eq!(publish[1]["messaging.batch.message_count"], "2");
    assert_eq!(process[0]["messaging.operation.type"], "process");
    assert_eq!(process[0]["messaging.message.id"], id);
    assert_eq!(process[0]["messaging.consumer.group.name"], "billing");
    assert_eq!(process[0]["messaging.promethean.attempt"], "1");
    assert!(!format!("{spans:?}").contains("customer"));
}

#[tokio::test]
async fn nothing_is_made_above_debug_level() {
    let (spans, _) = spans_up_to(Level::INFO).await;
    assert!(spans.is_empty(), "{spans:?}");
}
