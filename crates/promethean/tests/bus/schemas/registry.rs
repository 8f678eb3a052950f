use std::sync::Arc;

use promethean::memory::MemoryStore;
use promethean::schema::Mode;
use promethean::{
    Bus, BusOptions, Hop, Objection, PublishError, Reads, RegisterError, Sample, TopicPolicy,
    WhyRefused,
};
use serde_json::{Value, json};

use super::{beat, both, first, heartbeat, operations, register, schema, second, up};

fn refused(error: RegisterError) -> Vec<Objection> {
    match error {
        RegisterError::Refused(plan) => plan.objections,
        other => panic!("{other}"),
    }
}

async fn with_policy(bus: &Bus, policy: TopicPolicy) {
    bus.schemas().set_policy(&heartbeat(), policy).await.unwrap();
}

/// 93: registering twice is the same version, whatever the spelling.
#[tokio::test]
async fn the_same_document_is_the_same_version() {
    let bus = Bus::memory();
    let one = register(&bus, schema(&first())).await;
    assert_eq!((one.version, one.added), (1, true));
    let pretty = promethean::Registration::new(format!("{:#}", first()));
    let again = register(&bus, pretty).await;
    assert_eq!((again.version, again.added), (1, false));
    assert_eq!(again.fingerprint, one.fingerprint);
    let two = register(&bus, schema(&second()).up(up())).await;
    assert_eq!((two.version, two.added), (2, true));
    // An older document is still its version.
    assert_eq!(register(&bus, schema(&first())).await.version, 1);
    // With other casters it is not the same wish.
    let other = schema(&second()).up(Hop::Same);
    let error = bus.schemas().register(&heartbeat(), other).await.unwrap_err();
    assert!(matches!(error, RegisterError::OtherCasters(2)), "{error}");
}

/// 93: durable, and seen by another bus over the same store.
#[tokio::test]
async fn what_is_registered_is_kept() {
    let store = Arc::new(MemoryStore::new());
    let bus = Bus::with_store(store.clone(), BusOptions::default());
    both(&bus).await;
    let other = Bus::with_store(store, BusOptions::default());
    let versions = other.schemas().versions(&heartbeat()).await.unwrap();
    assert_eq!(versions.iter().map(|v| v.version).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(versions[1].up, Some(up()));
    let error = other.publish(beat(Some("2"), &json!({"host": 1}))).await.unwrap_err();
    assert!(matches!(error, PublishError::Refused(_)), "{error}");
}

/// Another hub held events to what it had seen last for up to five seconds. Time stands still here, as
/// there is always something to do: it looks because it is told, not because it is time to.
#[tokio::test(start_paused = true)]
async fn a_hub_hears_of_what_another_registers() {
    let store = Arc::new(MemoryStore::shared(Arc::new(promethean::store::SystemClock)));
    let (a, b) = (
        Bus::with_store(store.clone(), BusOptions::default()),
        Bus::with_store(store, BusOptions::default()),
    );
    let wrong = || beat(None, &json!({"host": 1}));
    b.publish(beat(None, &json!({"host": "b", "mem_mb": 1}))).await.unwrap();
    register(&a, schema(&first())).await;
    for _ in 0..1_000 {
        match b.publish(wrong()).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => return assert!(matches!(error, PublishError::Refused(_)), "{error}"),
        }
    }
    panic!("it has not heard of it");
}

#[tokio::test]
async fn what_is_registered_survives_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let bus = Bus::open(place.path()).await.unwrap();
    both(&bus).await;
    bus.publish(beat(Some("1"), &json!({"host": "a", "mem_mb": 4}))).await.unwrap();
    bus.close().await;
    drop(bus);
    let bus = Bus::open(place.path()).await.unwrap();
    let latest = bus.schemas().latest(&heartbeat()).await.unwrap().unwrap();
    assert_eq!((latest.version, latest.up), (2, Some(up())));
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let pattern = promethean::event::Pattern::new("heartbeat.*").unwrap();
    let mut replay = reader.replay(promethean::Replay::of(pattern)).await.unwrap();
    let event = replay.next().await.unwrap().unwrap().event().unwrap().unwrap();
    assert_eq!(event.payload.decode::<Value>().unwrap(), json!({"host": "a", "mem_mib": 2.0}));
}

/// 93: two registrars at once. Each document gets a version of its own, none is lost, and the
/// slower one was checked against the faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_registrars_get_different_versions() {
    for _ in 0..5 {
        let store = Arc::new(MemoryStore::new());
        let buses: Vec<Bus> =
            (0..2).map(|_| Bus::with_store(store.clone(), BusOptions::default())).collect();
        let mut tasks = Vec::new();
        for number in 0..8 {
            let bus = buses[number % 2].clone();
            // Every one adds an optional property: compatible with all others.
            let document = json!({
                "type": "object",
                "properties": {(format!("p{}", number / 2)): {"type": "integer"}}
            });
            tasks.push(tokio::spawn(async move {
                bus.schemas().register(&heartbeat(), schema(&document)).await.unwrap().version
            }));
        }
        let mut given = Vec::new();
        for task in tasks {
            given.push(task.await.unwrap());
        }
        // Four documents, each registered by both buses.
        let mut distinct = given.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct, [1, 2, 3, 4], "{given:?}");
        assert!(given.chunks(2).all(|pair| pair[0] == pair[1]), "{given:?}");
    }
}

/// 93: of two documents that do not go together one wins, and the other is refused because of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slower_of_two_is_checked_against_the_faster() {
    let store = Arc::new(MemoryStore::new());
    let bus = Bus::with_store(store.clone(), BusOptions::default());
    let other = Bus::with_store(store, BusOptions::default());
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let one = tokio::spawn(async move {
        bus.schemas().register(&heartbeat(), schema(&text)).await.map(|r| r.version)
    });
    let two = other.schemas().register(&heartbeat(), schema(&number)).await.map(|r| r.version);
    let results = [one.await.unwrap(), two];
    let good: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    assert_eq!(good, [&1]);
    assert_eq!(other.schemas().versions(&heartbeat()).await.unwrap().len(), 1);
}

/// 89: an optional field may be added; a number may not become a text.
#[tokio::test]
async fn compatibility_is_decided_by_structure() {
    let bus = Bus::memory();
    let schema_of = |kind: &str| json!({"type": "object", "properties": {"a": {"type": kind}}, "additionalProperties": false});
    register(&bus, schema(&schema_of("number"))).await;
    let error = bus.schemas().register(&heartbeat(), schema(&schema_of("string"))).await;
    let error = error.unwrap_err();
    let text = error.to_string();
    for part in ["PROM-S101", "/properties/a/type", "for example {", "line", "upcaster"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let objections = refused(error);
    let Objection::Incompatible { version: 1, backward: true, findings } = &objections[0] else {
        panic!("{objections:?}");
    };
    assert!(findings[0].counter_example["a"].is_number(), "{findings:?}");
    let wider = json!({
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "string"}},
        "additionalProperties": false
    });
    let added = register(&bus, schema(&wider)).await;
    assert_eq!(added.version, 2);
    assert_eq!(added.plan.up, Some(Hop::Same));
    assert_eq!(added.plan.down, None, "readers of version 1 refuse b");
}

/// 90: the policy is the topic's, and a transitive one looks further than one version.
#[tokio::test]
async fn transitive_policies_look_at_all_versions() {
    let enums = |values: &[&str]| schema(&json!({"enum": values}));
    for (compat, good) in [(Mode::Forward, true), (Mode::ForwardTransitive, false)] {
        let bus = Bus::memory();
        with_policy(&bus, TopicPolicy { compat: Mode::None, ..TopicPolicy::default() }).await;
        register(&bus, enums(&["a"])).await;
        register(&bus, enums(&["a", "b"])).await;
        with_policy(&bus, TopicPolicy { compat, ..TopicPolicy::default() }).await;
        // Good for readers of version 2, not for those of version 1.
        let third = enums(&["b"]).up(operations(&json!([
            {"op": "convert", "pointer": "", "expression": "'b'"}
        ])));
        let result = bus.schemas().register(&heartbeat(), third).await;
        assert_eq!(result.is_ok(), good, "{compat}: {result:?}");
    }
}

/// 96: a missing hop is an error when the version is registered, whatever the policy, and force
/// does not help.
#[tokio::test]
async fn a_missing_hop_is_refused_at_registration() {
    let bus = Bus::memory();
    with_policy(&bus, TopicPolicy { compat: Mode::None, ..TopicPolicy::default() }).await;
    register(&bus, schema(&first())).await;
    for wish in [schema(&second()), schema(&second()).force("I want it")] {
        let error = bus.schemas().register(&heartbeat(), wish).await.unwrap_err();
        let objections = refused(error);
        assert!(
            matches!(objections[..], [Objection::MissingUpcaster { from: 1, to: 2 }]),
            "{objections:?}"
        );
    }
    register(&bus, schema(&second()).up(up())).await;
}

/// 96, 101: a caster that leaves the old field, or makes what the new version refuses, is found
/// before any event meets it.
#[tokio::test]
async fn casters_are_tried_before_they_are_taken() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let mut closed = second();
    closed["additionalProperties"] = json!(false);
    // Adds the new field and leaves the old one.
    let leaves = operations(&json!([{"op": "default", "pointer": "/mem_mib", "value": 1}]));
    let wish = schema(&closed).up(leaves);
    let error = bus.schemas().register(&heartbeat(), wish).await.unwrap_err();
    let objections = refused(error);
    let Objection::CastFails { from: 1, to: 2, value, reason } = &objections[0] else {
        panic!("{objections:?}");
    };
    assert!(value.get("mem_mb").is_some(), "{value}");
    assert!(reason.contains("additionalProperties"), "{reason}");
    for bad in ["value *", "value.nothing", "string(value)"] {
        let hop = operations(&json!([
            {"op": "rename", "pointer": "/mem_mb", "to": "mem_mib"},
            {"op": "convert", "pointer": "/mem_mib", "expression": bad}
        ]));
        let result = bus.schemas().register(&heartbeat(), schema(&second()).up(hop)).await;
        assert!(result.is_err(), "{bad}");
    }
    let far = register(&bus, schema(&closed).up(up())).await;
    assert!(far.plan.tried.drawn >= 100, "{:?}", far.plan.tried);
}

/// A version is tried on what is really stored: an event that its schema allowed and that the
/// lenient reading of open objects takes to be impossible.
#[tokio::test]
async fn stored_events_speak_against_a_version() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let odd = json!({"host": "a", "mem_mb": 1, "zone": 7});
    bus.publish(beat(Some("1"), &odd)).await.unwrap();
    let mut zoned = first();
    zoned["properties"]["zone"] = json!({"type": "string"});
    let error = bus.schemas().register(&heartbeat(), schema(&zoned)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("stored event 0 of partition 0"), "{text}");
    assert!(matches!(refused(error)[..], [Objection::BreaksEvent { .. }]));
    let plan = bus.schemas().plan(&heartbeat(), &schema(&zoned)).await.unwrap();
    assert_eq!((plan.tried.stored, plan.version, plan.is_good()), (1, 2, false));
    // The lenient reading says what it takes for granted.
    assert!(plan.compared.iter().any(|c| c.backward && c.compatible && !c.notes.is_empty()));
    let blind = schema(&zoned).sample(Sample::None);
    assert!(bus.schemas().plan(&heartbeat(), &blind).await.unwrap().is_good());
    let forced = register(&bus, schema(&zoned).force("zones are being cleaned up")).await;
    let kept = bus.schemas().version(&heartbeat(), forced.version).await.unwrap().unwrap();
    assert_eq!(kept.forced.as_deref(), Some("zones are being cleaned up"));
}

#[tokio::test]
async fn a_version_that_breaks_a_declared_reader_is_refused() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let stream =
        bus.subscribe_to(["heartbeat.**"], "old").reads(Reads::Version(1)).stream().await.unwrap();
    let error = bus.schemas().register(&heartbeat(), schema(&second()).up(up())).await;
    let objections = refused(error.unwrap_err());
    assert!(
        matches!(&objections[..], [Objection::BreaksGroup { group, reads: 1, .. }] if group.as_str() == "old"),
        "{objections:?}"
    );
    drop(stream);
    register(&bus, schema(&second()).up(up()).down(super::down())).await;
}

#[tokio::test]
async fn bad_documents_and_wishes_get_clear_errors() {
    let bus = Bus::memory();
    let schemas = bus.schemas();
    for text in ["", "[]", r#"{"type": 7}"#, r#"{"$ref": "https://example.com/a"}"#] {
        let error = schemas.register(&heartbeat(), promethean::Registration::new(text)).await;
        assert!(matches!(error, Err(RegisterError::Document(_))), "{text}");
    }
    let large = format!(r#"{{"description": "{}"}}"#, "x".repeat(300_000));
    let error = schemas.register(&heartbeat(), promethean::Registration::new(large)).await;
    assert!(matches!(error, Err(RegisterError::TooLarge)));
    let error = schemas.register(&heartbeat(), schema(&first()).up(Hop::Same)).await;
    assert!(matches!(error, Err(RegisterError::NothingBefore)));
    let error = schemas.register(&heartbeat(), schema(&first()).version(2)).await;
    assert!(matches!(error, Err(RegisterError::OtherVersion { version: 1, wanted: 2 })));
}

/// Another hub's registration is found when an event needs it, without waiting for a refresh.
#[tokio::test(start_paused = true)]
async fn an_unknown_version_is_looked_up_before_it_is_refused() {
    let store = Arc::new(MemoryStore::new());
    let here = Bus::with_store(store.clone(), BusOptions::default());
    register(&here, schema(&first())).await;
    let there = Bus::with_store(store, BusOptions::default());
    register(&there, schema(&second()).up(up())).await;
    let good = json!({"host": "a", "mem_mib": 1});
    here.publish(beat(Some("2"), &good)).await.unwrap();
    let error = here.publish(beat(Some("3"), &good)).await.unwrap_err();
    let PublishError::Refused(refusal) = error else { panic!("{error}") };
    let known = WhyRefused::UnknownVersion { version: 3, known: vec![1, 2] };
    assert_eq!(refusal.events[0].why, known);
}

#[tokio::test]
async fn personal_data_and_examples_are_told() {
    let bus = Bus::memory();
    let mut document = first();
    document["properties"]["host"]["x-pii"] = json!("host name");
    document["examples"] = json!([{"host": "a", "mem_mb": 1}]);
    register(&bus, schema(&document)).await;
    let kept = bus.schemas().latest(&heartbeat()).await.unwrap().unwrap().document;
    assert_eq!(kept.personal()[0].path, "/host");
    assert_eq!(kept.examples(), [&json!({"host": "a", "mem_mb": 1})]);
    assert_eq!(kept.annotations().len(), 1);
}
