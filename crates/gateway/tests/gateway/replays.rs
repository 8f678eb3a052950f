//! Bulk replay over a real socket, and who may do it.

use std::time::Duration;

use promethean::Bus;
use promethean_gateway::{Access, Shelf};
use serde_json::json;

use super::server::{TestServer, tokens};

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_planned_done_and_shown() {
    let bus = Bus::memory();
    let jobs = Shelf::jobs_of(&bus);
    let server = TestServer::over(bus, Access::Anonymous, |settings| {
        settings.shelf.jobs = Some(jobs);
    })
    .await;
    for n in 0..5 {
        server.post(&format!("/publish/orders?key=k{n}"), &format!("{{\"n\":{n}}}")).await;
    }
    let body = json!({ "from": "orders", "to": "copy", "where": "payload.n > 1" }).to_string();
    let plan = server.post("/replays?dry_run=true", &body).await;
    assert_eq!((plan.status, &plan.json()["wanted"]), (200, &json!(3)), "{}", plan.body);
    assert_eq!(server.get("/events/copy").await.status, 404);
    for (name, at, wanted) in [("since", "1h ago", 5), ("since", "now", 0), ("until", "1h ago", 0)]
    {
        let body = json!({ "from": "orders", "to": "copy", name: at }).to_string();
        let plan = server.post("/replays?dry_run=true", &body).await;
        assert_eq!((plan.status, &plan.json()["wanted"]), (200, &json!(wanted)), "{}", plan.body);
    }
    let begun = server.post("/replays", &body).await;
    assert_eq!(begun.status, 201, "{}", begun.body);
    let id = begun.json()["id"].as_str().unwrap().to_owned();
    let done = async {
        loop {
            let job = server.get(&format!("/jobs/{id}")).await.json();
            if job["state"] == "done" {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(20), done).await.unwrap();
    assert_eq!(done["published"], 3);
    assert_eq!(server.get("/jobs").await.json()["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(server.post(&format!("/jobs/{id}/cancel"), "").await.code(), "conflict");
    for (body, said) in [
        (json!({ "from": "orders", "to": "x", "wher": "1" }), "wher"),
        (json!({ "from": "orders", "to": "x", "where": "nothing" }), "where"),
        (json!({ "from": "orders", "to": "x", "map": "nothing" }), "map"),
        (json!({ "from": "**", "to": "x" }), "among the topics"),
        (json!({ "from": "orders" }), "group"),
        (json!({ "from": "orders", "to": "x", "since": "soon" }), "yesterday 14:00"),
        (json!({ "from": "orders", "to": "x", "until": -1 }), "-1"),
    ] {
        let refused = server.post("/replays", &body.to_string()).await;
        assert_eq!(refused.code(), "bad_request", "{body}");
        assert!(refused.json()["detail"].as_str().unwrap().contains(said), "{}", refused.body);
    }
    let nobody = json!({ "from": "orders", "group": "nobody" }).to_string();
    assert_eq!(server.post("/replays", &nobody).await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_reads_the_source_and_writes_the_target_replays() {
    let bus = Bus::memory();
    let jobs = Shelf::jobs_of(&bus);
    let (access, secrets) = tokens(&[
        &["subscribe:orders", "publish:copy", "publish:orders"],
        &["subscribe:orders"],
        &["publish:copy", "publish:orders"],
        &["admin:ops"],
    ]);
    let server = TestServer::over(bus, access, |settings| settings.shelf.jobs = Some(jobs)).await;
    let send = async |method: &str, path: &str, who: usize, body: &str| {
        let bearer = format!("Bearer {}", secrets[who]);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        server.send(method, path, &headers, body.as_bytes()).await
    };
    assert_eq!(send("POST", "/publish/orders", 0, "{}").await.status, 201);
    let body = json!({ "from": "orders", "to": "copy" }).to_string();
    for who in [1, 2, 3] {
        assert_eq!(send("POST", "/replays", who, &body).await.code(), "forbidden", "{who}");
        let plan = send("POST", "/replays?dry_run=true", who, &body).await;
        assert_eq!(plan.code(), "forbidden", "a plan shows events: {who}");
    }
    let everything = json!({ "from": "orders.**", "to": "copy" }).to_string();
    assert_eq!(send("POST", "/replays", 0, &everything).await.code(), "forbidden");
    assert_eq!(send("POST", "/replays", 0, &body).await.status, 201);
    assert_eq!(send("GET", "/jobs", 0, "").await.code(), "forbidden");
    assert_eq!(send("GET", "/jobs", 3, "").await.status, 200);
}

/// What a filter cannot decide about was not replayed, and nobody knew.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_takes_what_a_filter_cannot_decide_about() {
    let bus = Bus::memory();
    let jobs = Shelf::jobs_of(&bus);
    let server = TestServer::over(bus, Access::Anonymous, |settings| {
        settings.shelf.jobs = Some(jobs);
    })
    .await;
    let much = "x".repeat(17_000);
    for text in ["x", "y", much.as_str()] {
        let answer = server.post("/publish/orders", &json!({ "a": text }).to_string()).await;
        assert_eq!(answer.status, 201);
    }
    let body = json!({ "from": "orders", "to": "copy", "where": "payload.a == 'x'" }).to_string();
    let plan = server.post("/replays?dry_run=true", &body).await;
    assert_eq!((plan.status, &plan.json()["wanted"]), (200, &json!(2)), "{}", plan.body);
    let metrics = server.get("/metrics").await.body;
    let counted = r#"filter_undecided_total{topic="orders",group=""} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}
