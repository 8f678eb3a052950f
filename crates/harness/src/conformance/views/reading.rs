//! What readers see.

use std::sync::Arc;

use promethean::projection::query::{ListQuery, PageToken};
use promethean::projection::view_store::Order;

use super::bench_site::{Keeper, put, stamp};
use super::{ViewPlace, view_checks};
use crate::conformance::check::Check;

view_checks!(
    rows_come_by_key,
    declared_fields_are_searched_by_kind,
    pages_miss_and_repeat_nothing,
    what_is_frozen_does_not_change,
    handlers_read_what_is_committed,
);

const DOCUMENTS: [(&str, &str); 9] = [
    ("a", r#"{"host":"h1","pid":3,"load":{"cpu":0.5},"up":true}"#),
    ("b", r#"{"host":"h2","pid":1,"load":{"cpu":1.50},"up":false}"#),
    ("c", r#"{"host":"h1","pid":2,"load":{"cpu":2}}"#),
    ("d", r#"{"host":null,"pid":null}"#),
    ("e", r#"{"host":"H1","pid":9007199254740993}"#),
    ("f", r#"[{"host":"h1"}]"#),
    ("g", "7"),
    ("h", "{}"),
    ("i", r#"{"host":"h1","pid":10,"load":{},"up":true}"#),
];

async fn filled(place: &dyn ViewPlace) -> Check<Keeper> {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    let mut writes = Vec::new();
    for (n, (key, value)) in (0..).zip(DOCUMENTS) {
        writes.push((key, put(stamp(n, None), value)?));
    }
    keeper.write(writes).await?;
    Ok(keeper)
}

async fn rows_come_by_key(place: &dyn ViewPlace) -> Check {
    let keeper = filled(place).await?;
    let keys = async |after: Option<&str>, max| -> Check<String> {
        let rows = keeper.store.rows(keeper.table(), after.map(str::to_owned), max).await?;
        Ok(rows.into_iter().map(|row| row.key).collect())
    };
    ensure_same!(keys(None, 100).await?, "abcdefghi".to_owned(), "all");
    ensure_same!(keys(None, 2).await?, "ab".to_owned(), "the first two");
    ensure_same!(keys(Some("b"), 3).await?, "cde".to_owned(), "after one");
    ensure_same!(keys(Some("bb"), 1).await?, "c".to_owned(), "after one that is not there");
    ensure_same!(keys(Some("i"), 1).await?, String::new(), "after the last");
    Ok(())
}

/// The keys that a query finds, a page after the other.
async fn found(keeper: &Keeper, parameters: &[(&str, &str)]) -> Check<String> {
    let (mut keys, mut page) = (String::new(), None::<String>);
    for _ in 0..100 {
        let page_parameter = page.as_deref().map(|token| ("page", token));
        let all = parameters.iter().copied().chain(page_parameter);
        let query = ListQuery::parse(&keeper.view, all)?;
        let (limit, first) = (query.limit(), query.clone());
        let mut rows = keeper.store.list(keeper.view.clone(), Arc::new(query)).await?;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        keys.extend(rows.iter().map(|(row, _)| row.key.clone()));
        page = match rows.last() {
            Some((row, value)) if has_more => {
                Some(PageToken::after(&first, &keeper.view, value.clone(), &row.key).encode())
            }
            _ => return Ok(keys),
        };
    }
    Err("pages without an end".into())
}

async fn declared_fields_are_searched_by_kind(place: &dyn ViewPlace) -> Check {
    let keeper = filled(place).await?;
    let cases: [(&[(&str, &str)], &str); 12] = [
        (&[("host", "h1")], "aci"),
        (&[("host.ne", "h1")], "be"),
        (&[("host.lt", "h1")], "e"),
        (&[("pid.ge", "3")], "aei"),
        (&[("pid", "9007199254740993")], "e"),
        (&[("pid.gt", "9007199254740992")], "e"),
        (&[("cpu", "1.5")], "b"),
        (&[("cpu.le", "2")], "abc"),
        (&[("up", "true")], "ai"),
        (&[("up.ne", "true")], "b"),
        (&[("host", "h1"), ("pid.lt", "10")], "ac"),
        (&[("host", "$ne")], ""),
    ];
    for (parameters, expected) in cases {
        ensure_same!(found(&keeper, parameters).await?, expected.to_owned(), "{parameters:?}");
    }
    Ok(())
}

async fn pages_miss_and_repeat_nothing(place: &dyn ViewPlace) -> Check {
    let keeper = filled(place).await?;
    let cases = [
        ("_key", "abcdefghi"),
        ("-_key", "ihgfedcba"),
        ("_ts", "abcdefghi"),
        // What is not there comes first; the same value by key.
        ("pid", "dfghbcaie"),
        ("-pid", "eiacbhgfd"),
        ("host", "dfgheacib"),
        ("cpu", "defghiabc"),
        ("-up", "iabhgfedc"),
    ];
    for (sort, expected) in cases {
        for limit in ["1", "2", "4", "100"] {
            let keys = found(&keeper, &[("sort", sort), ("limit", limit)]).await?;
            ensure_same!(keys, expected.to_owned(), "by {sort}, {limit} at a time");
        }
    }
    Ok(())
}

async fn what_is_frozen_does_not_change(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    keeper.advance((0, 3), "a", "1").await??;
    let frozen = keeper.store.freeze("keeper".to_owned()).await?;
    keeper.advance((3, 5), "a", "2").await??;
    keeper.advance((5, 6), "b", "2").await??;
    let live = frozen.live.ok_or("no live build")?;
    ensure_same!(live.cursors.iter().map(|c| c.next.get()).max(), Some(3), "its cursor");
    let (rows, table) = (frozen.rows, keeper.table());
    let reading = tokio::task::spawn_blocking(move || {
        Ok::<_, promethean::projection::DatabaseError>((
            rows.rows(&table, None, 10)?,
            rows.get(&table, "a")?,
            rows.get(&table, "b")?,
        ))
    });
    let (all, a, b) = reading.await??;
    ensure_same!(all.len(), 1, "its rows");
    ensure_same!(a.map(|row| row.value.as_str().to_owned()), Some("1".to_owned()), "as it was");
    ensure!(b.is_none(), "what came later");
    Ok(())
}

async fn handlers_read_what_is_committed(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Sequence).await?;
    keeper.advance((0, 3), "a", "1").await??;
    let (store, table) = (Arc::clone(&keeper.store), keeper.table());
    let reading = tokio::task::spawn_blocking(move || store.reader()?.get(&table, "a"));
    let row = reading.await??.ok_or("no row")?;
    ensure_same!(row.value.as_str(), "1", "what a handler sees");
    Ok(())
}
