use promethean::projection::query::{
    Access, Conditions, ListQuery, Outcome, QueryError, Validator,
};
use promethean::projection::{Changelog, Field, Projection, View};

use super::scenario::{Scenario, TOPIC};

fn view() -> View {
    View::new("processes")
        .field(Field::text("status"))
        .field(Field::integer("pid"))
        .field(Field::number("cpu"))
        .field(Field::bool("up"))
        .field(Field::text("owner").at(["meta", "owner's"]))
        .index(["status", "pid"])
}

async fn filled() -> (Scenario, Projection) {
    let scenario = Scenario::new().await;
    let projection = scenario.views.changelog(Changelog::new(view(), TOPIC)).await.unwrap();
    for n in 0..60 {
        let cpu = match n % 4 {
            0 => String::new(),
            1 => format!(",\"cpu\":{}", f64::from(n) / 7.0),
            2 => format!(",\"cpu\":{n}"),
            _ => ",\"cpu\":\"text\"".to_owned(),
        };
        let status = if n % 2 == 0 { "alive" } else { "stale" };
        let payload = format!(
            r#"{{"status":"{status}","pid":{},"up":{},"meta":{{"owner's":"o{}"}}{cpu}}}"#,
            n % 10,
            n % 3 == 0,
            n % 2
        );
        scenario.publish(&format!("k{n:02}"), &payload).await;
    }
    scenario.publish("odd", r#"{"pid":"1","up":1}"#).await;
    projection.caught_up().await.unwrap();
    (scenario, projection)
}

async fn keys(projection: &Projection, parameters: &[(&str, &str)]) -> Vec<String> {
    let query = ListQuery::parse(&view(), parameters.iter().copied()).unwrap();
    let page = projection.list("processes", query).await.unwrap();
    page.documents.into_iter().map(|document| document.key).collect()
}

/// Pitfall 147: values have the kind of their field.
#[tokio::test]
async fn filters_are_typed() {
    let (_scenario, projection) = filled().await;
    assert_eq!(keys(&projection, &[("pid", "1"), ("limit", "3")]).await, ["k01", "k11", "k21"]);
    assert_eq!(keys(&projection, &[("up", "true"), ("pid.ge", "9")]).await, ["k09", "k39"]);
    assert_eq!(keys(&projection, &[("owner", "o1")]).await.len(), 30);
    assert_eq!(keys(&projection, &[("status.ne", "alive")]).await.len(), 30);
    assert_eq!(keys(&projection, &[("status", "' OR 1=1 --")]).await.len(), 0);
    let between = [("cpu.gt", "1.9"), ("cpu.le", "3")];
    assert_eq!(keys(&projection, &between).await, ["k02", "k17", "k21"]);
}

/// Pitfalls 146 and 148: what is not declared, not typed, not within bounds is refused, and the
/// answer says what is allowed.
#[test]
fn everything_else_is_refused() {
    let refused = |name, value| ListQuery::parse(&view(), [(name, value)]).unwrap_err();
    for (name, value) in [
        ("$where", "1"),
        ("status[$ne]", "x"),
        ("status\" OR 1=1 --", "x"),
        ("doc", "{}"),
        ("_pos", "x"),
        ("Status", "x"),
        ("", ""),
        ("sort", "doc"),
        ("sort", "--pid"),
        ("sort", "pid; DROP TABLE processes"),
    ] {
        let error = refused(name, value);
        assert!(matches!(error, QueryError::UnknownField { .. }), "{name}={value}: {error}");
        assert!(error.to_string().contains("status, pid, cpu, up, owner"), "{error}");
    }
    assert!(matches!(refused("pid.like", "1"), QueryError::UnknownComparison(_)));
    for (name, value) in
        [("pid", "abc"), ("pid", "1.5"), ("pid", ""), ("cpu", "NaN"), ("cpu", "inf"), ("up", "1")]
    {
        assert!(matches!(refused(name, value), QueryError::Value { .. }), "{name}={value}");
    }
    let long = "x".repeat(1025);
    assert!(matches!(refused("status", &long), QueryError::Value { .. }));
    for limit in ["abc", "-5", "0", "1001", "NaN", "1e3", ""] {
        assert!(matches!(refused("limit", limit), QueryError::Limit(_)), "{limit}");
    }
    let many = std::iter::repeat_n(("pid", "1"), 17);
    assert!(matches!(ListQuery::parse(&view(), many), Err(QueryError::Limit(_))));
}

/// Pitfall 148: pages neither repeat nor leave out anything, whatever they are sorted by, also
/// where values are the same, missing, or of several kinds, and while rows come and go.
#[tokio::test]
async fn pages_are_whole() {
    let (scenario, projection) = filled().await;
    for sort in ["_key", "-_key", "_ts", "pid", "-pid", "cpu", "-cpu", "-status", "owner"] {
        let everything = keys(&projection, &[("sort", sort), ("limit", "1000")]).await;
        assert_eq!(everything.len(), 61);
        let mut found = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut parameters = vec![("sort", sort), ("limit", "7")];
            parameters.extend(token.as_deref().map(|token| ("page", token)));
            let query = ListQuery::parse(&view(), parameters).unwrap();
            let page = projection.list("processes", query).await.unwrap();
            found.extend(page.documents.into_iter().map(|document| document.key));
            match page.next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        assert_eq!(found, everything, "{sort}");
    }
    // A token knows its query.
    let query = ListQuery::parse(&view(), [("pid", "1"), ("limit", "2")]).unwrap();
    let token = projection.list("processes", query).await.unwrap().next.unwrap();
    let other = ListQuery::parse(&view(), [("pid", "2"), ("page", token.as_str())]);
    assert!(matches!(other, Err(QueryError::Page(_))));
    // What went before the page's end does not move the next page.
    scenario.publish("k01", "null").await;
    projection.caught_up().await.unwrap();
    let query = ListQuery::parse(&view(), [("pid", "1"), ("page", token.as_str())]).unwrap();
    let page = projection.list("processes", query).await.unwrap();
    assert_eq!(page.documents[0].key, "k21");
}

/// One validator for `GET` and `HEAD`: it changes with the document and with the definition.
#[tokio::test]
async fn the_tag_of_a_document_changes_when_it_does() {
    let (scenario, projection) = filled().await;
    let tag = async |projection: &Projection| {
        let document = projection.get("processes", "k01").await.unwrap().unwrap();
        Validator::of(&document, &projection.progress().definition, None).etag()
    };
    let first = tag(&projection).await;
    projection.rebuild().await.unwrap();
    assert_eq!(tag(&projection).await, first, "the same definition, the same document");
    let conditions = Conditions { if_none_match: &[&first], ..Conditions::default() };
    assert_eq!(conditions.evaluate(Access::Read, Some(&first)), Outcome::NotModified);
    scenario.publish("k01", "{}").await;
    projection.caught_up().await.unwrap();
    let second = tag(&projection).await;
    assert_eq!(conditions.evaluate(Access::Read, Some(&second)), Outcome::Proceed);
    let scenario = scenario.reopened().await;
    let changed = Changelog::new(view(), TOPIC).version(2);
    let projection = scenario.views.changelog(changed).await.unwrap();
    projection.caught_up().await.unwrap();
    assert_ne!(tag(&projection).await, second);
}
