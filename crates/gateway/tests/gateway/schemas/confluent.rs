//! What tools for Confluent's Schema Registry say and hear.

use serde_json::{Value, json};

use super::super::server::{Answer, TestServer};
use super::heartbeat;

const KIND: &str = "application/vnd.schemaregistry.v1+json";

async fn send(server: &TestServer, method: &str, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", KIND), ("accept", KIND)];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    server.send(method, path, &headers, body.as_bytes()).await
}

fn given(schema: &Value) -> Value {
    json!({"schemaType": "JSON", "schema": schema.to_string()})
}

fn wider() -> Value {
    let mut wider = heartbeat("m");
    wider["properties"]["m"] = json!({"type": ["number", "null"]});
    wider
}

/// Many at once, by both interfaces: each document gets one version, and nobody is sent away.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_registrars_wait_for_each_other() {
    const DOCUMENTS: usize = 12;
    let server = std::sync::Arc::new(TestServer::open().await);
    let mut tasks = Vec::new();
    for number in 0..4 * DOCUMENTS {
        let server = server.clone();
        let name = format!("p{}", number % DOCUMENTS);
        let schema = json!({"type": "object", "properties": {name: {"type": "string"}}});
        tasks.push(tokio::spawn(async move {
            let by_tool = (number / DOCUMENTS).is_multiple_of(2);
            let answer = match by_tool {
                true => send(&server, "POST", "/subjects/race/versions", &given(&schema)).await,
                false => {
                    let body = json!({"schema": schema});
                    send(&server, "POST", "/registry/race/versions", &body).await
                }
            };
            (answer.status, answer.json())
        }));
    }
    for task in tasks {
        let (status, body) = task.await.unwrap();
        assert!(matches!(status, 200 | 201), "{status} {body}");
    }
    let versions = send(&server, "GET", "/subjects/race/versions", &Value::Null).await.json();
    assert_eq!(versions, (1..=DOCUMENTS).collect::<Value>());
}

#[tokio::test]
async fn subjects_and_versions() {
    let server = TestServer::open().await;
    let register = async |subject: &str, schema: &Value| {
        send(&server, "POST", &format!("/subjects/{subject}/versions"), &given(schema)).await
    };
    let get = async |path: &str| send(&server, "GET", path, &Value::Null).await;
    assert_eq!(get("/subjects").await.json(), json!([]));
    let first = register("beat", &heartbeat("m")).await;
    assert_eq!((first.status, first.json()), (200, json!({"id": 1})));
    assert!(first.head.contains(KIND), "{}", first.head);
    assert_eq!(register("beat", &heartbeat("m")).await.json(), json!({"id": 1}));
    assert_eq!(register("beat", &wider()).await.json(), json!({"id": 2}));
    // The same document of another topic has the same number.
    assert_eq!(register("other", &wider()).await.json(), json!({"id": 2}));

    assert_eq!(get("/subjects").await.json(), json!(["beat", "other"]));
    assert_eq!(get("/subjects?subjectPrefix=be").await.json(), json!(["beat"]));
    assert_eq!(get("/subjects/beat/versions").await.json(), json!([1, 2]));
    for path in ["/subjects/beat/versions/2", "/subjects/beat/versions/latest"] {
        let shown = get(path).await.json();
        assert_eq!((&shown["id"], &shown["version"]), (&2.into(), &2.into()));
        assert_eq!((&shown["subject"], &shown["schemaType"]), (&"beat".into(), &"JSON".into()));
        let schema: Value = serde_json::from_str(shown["schema"].as_str().unwrap()).unwrap();
        assert_eq!(schema, wider());
    }
    assert_eq!(get("/subjects/beat/versions/1/schema").await.json(), heartbeat("m"));
    let found = send(&server, "POST", "/subjects/beat", &given(&wider())).await.json();
    assert_eq!((&found["id"], &found["version"]), (&2.into(), &2.into()));

    assert_eq!(get("/schemas/types").await.json(), json!(["JSON"]));
    let by_id = get("/schemas/ids/2").await.json();
    assert_eq!(by_id["schemaType"], "JSON");
    assert_eq!(get("/schemas/ids/2/schema").await.json(), wider());
    assert_eq!(get("/schemas/ids/2/subjects").await.json(), json!(["beat", "other"]));
    let places = json!([{"subject": "beat", "version": 2}, {"subject": "other", "version": 1}]);
    assert_eq!(get("/schemas/ids/2/versions").await.json(), places);
    // What it keeps is what the bus enforces.
    assert_eq!(server.post("/publish/beat", "{}").await.code(), "schema_invalid");
}

#[tokio::test]
async fn the_names_that_tools_make() {
    let server = TestServer::open().await;
    let path = "/subjects/orders-value/versions";
    assert_eq!(send(&server, "POST", path, &given(&heartbeat("m"))).await.json()["id"], 1);
    assert_eq!(server.post("/publish/orders", "{}").await.code(), "schema_invalid");
    let shown = server.get("/subjects/orders-value/versions/1").await.json();
    assert_eq!(shown["subject"], "orders-value");
    assert_eq!(server.get("/subjects/orders/versions").await.json(), json!([1]));
}

#[tokio::test]
async fn error_codes() {
    let server = TestServer::open().await;
    let ask = async |method: &str, path: &str, body: &Value| {
        let answer = send(&server, method, path, body).await;
        let code = answer.json()["error_code"].as_u64().unwrap();
        assert!(answer.json()["message"].is_string());
        (answer.status, code)
    };
    let none = &Value::Null;
    assert_eq!(ask("GET", "/subjects/none/versions", none).await, (404, 40401));
    assert_eq!(ask("GET", "/schemas/ids/9", none).await, (404, 40403));
    let bad = json!({"schemaType": "JSON", "schema": "{\"type\": \"no\"}"});
    assert_eq!(ask("POST", "/subjects/a/versions", &bad).await, (422, 42201));
    let avro = json!({"schemaType": "AVRO", "schema": "\"string\""});
    assert_eq!(ask("POST", "/subjects/a/versions", &avro).await, (422, 42201));
    let mut referring = given(&heartbeat("m"));
    referring["references"] = json!([{"name": "x", "subject": "x", "version": 1}]);
    assert_eq!(ask("POST", "/subjects/a/versions", &referring).await, (422, 42201));
    assert_eq!(ask("GET", "/subjects/A%20B/versions", none).await, (422, 42208));

    send(&server, "POST", "/subjects/a/versions", &given(&heartbeat("m"))).await;
    assert_eq!(ask("GET", "/subjects/a/versions/9", none).await, (404, 40402));
    assert_eq!(ask("GET", "/subjects/a/versions/x", none).await, (422, 42202));
    assert_eq!(ask("POST", "/subjects/a", &given(&wider())).await, (404, 40403));
    assert_eq!(ask("POST", "/subjects/a/versions", &given(&heartbeat("n"))).await, (409, 409));
    assert_eq!(ask("PUT", "/config", &json!({"compatibility": "SOME"})).await, (422, 42203));
    assert_eq!(ask("GET", "/config/a", none).await, (404, 40408));
    assert_eq!(ask("PUT", "/mode", &json!({"mode": "IMPORT"})).await, (422, 42205));
    assert_eq!(ask("PUT", "/mode", &json!({"mode": "x"})).await, (422, 42204));
    assert_eq!(ask("DELETE", "/subjects/a/versions/1", none).await, (422, 42205));
    assert_eq!(ask("DELETE", "/subjects/a", none).await, (422, 42205));
}

#[tokio::test]
async fn compatibility_and_config() {
    let server = TestServer::open().await;
    let get = async |path: &str| send(&server, "GET", path, &Value::Null).await.json();
    let put = async |path: &str, level: &str| {
        send(&server, "PUT", path, &json!({"compatibility": level})).await.json()
    };
    let ask = async |path: &str, schema: &Value| {
        let path = format!("/compatibility/subjects/{path}");
        send(&server, "POST", &path, &given(schema)).await.json()
    };
    assert_eq!(get("/config").await, json!({"compatibilityLevel": "BACKWARD"}));
    send(&server, "POST", "/subjects/a/versions", &given(&heartbeat("m"))).await;
    assert_eq!(ask("a/versions/latest", &wider()).await, json!({"is_compatible": true}));
    let no = ask("a/versions/1?verbose=true", &heartbeat("n")).await;
    assert_eq!(no["is_compatible"], false);
    assert!(no["messages"][0].as_str().unwrap().contains("PROM-S104"), "{no}");
    assert_eq!(ask("new/versions", &heartbeat("n")).await["is_compatible"], true);

    let full = json!({"compatibility": "FULL_TRANSITIVE"});
    assert_eq!(put("/config/a", "FULL_TRANSITIVE").await, full);
    assert_eq!(get("/config/a").await, json!({"compatibilityLevel": "FULL_TRANSITIVE"}));
    assert_eq!(ask("a/versions", &wider()).await["is_compatible"], false);
    assert_eq!(put("/config", "NONE").await, json!({"compatibility": "NONE"}));
    let cleared = send(&server, "DELETE", "/config/a", &Value::Null).await.json();
    assert_eq!(cleared, json!({"compatibilityLevel": "FULL_TRANSITIVE"}));
    let global = get("/config/a?defaultToGlobal=true").await;
    assert_eq!(global, json!({"compatibilityLevel": "NONE"}));
    assert_eq!(ask("a/versions", &heartbeat("n")).await["is_compatible"], true);
    assert_eq!(get("/mode").await, json!({"mode": "READWRITE"}));
    assert_eq!(get("/mode/a").await, json!({"mode": "READWRITE"}));

    send(&server, "POST", "/subjects/a/versions", &given(&wider())).await;
    let gone = send(&server, "DELETE", "/subjects/a/versions/1", &Value::Null).await;
    assert_eq!((gone.status, gone.json()), (200, json!(1)));
    assert_eq!(get("/subjects/a/versions").await, json!([2]));
    assert_eq!(get("/subjects/a/versions?deleted=true").await, json!([1, 2]));
}
