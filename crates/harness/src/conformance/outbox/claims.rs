//! The table alone, step by step.

use std::time::Duration;

use promethean::outbox::{
    AddError, AfterDead, Claim, OutboxStats, OutboxTable, Outcome, ReviveError, Row, Settlement,
};

use super::{Ending, OutboxPlace, add, event, outbox_checks};
use crate::conformance::check::Check;

outbox_checks!(
    a_committed_event_arrives_whole,
    what_is_added_again_adds_nothing,
    a_key_is_claimed_by_one_at_a_time,
    a_late_marker_is_fenced,
    a_renewed_claim_is_kept,
    a_dead_row_holds_its_key,
    those_who_go_on_pass_the_dead,
    a_malformed_row_is_told,
    what_a_worker_holds_is_given_back,
    sent_rows_are_purged_in_time,
    claims_at_once_share_nothing,
);

const LEASE: Duration = Duration::from_secs(600);

fn wish(token: &str, rows: usize) -> Claim {
    let after_dead = AfterDead::Wait;
    Claim { token: token.into(), worker: token.into(), rows, lease: LEASE, after_dead }
}

async fn claim(table: &dyn OutboxTable, token: &str, rows: usize) -> Check<Vec<Row>> {
    Ok(table.claim(wish(token, rows)).await?.rows)
}

fn numbers(rows: &[Row]) -> Check<Vec<u32>> {
    let number = |row: &Row| -> Check<u32> { Ok(row.content.clone()?.payload.decode()?) };
    rows.iter().map(number).collect()
}

fn all(rows: &[Row], outcome: &Outcome) -> Vec<Settlement> {
    rows.iter().map(|row| Settlement { seq: row.seq, outcome: outcome.clone() }).collect()
}

async fn settle(
    table: &dyn OutboxTable,
    token: &str,
    rows: &[Row],
    outcome: &Outcome,
) -> Check<[u64; 4]> {
    let settled = table.settle(token.to_owned(), all(rows, outcome)).await?;
    Ok([settled.sent, settled.failed, settled.dead, settled.fenced])
}

fn again(delay: Duration) -> Outcome {
    Outcome::Again { delay, error: "it's \"$away\"".to_owned() }
}

fn dead() -> Outcome {
    Outcome::Dead { error: "$never".to_owned() }
}

/// Pitfalls 37, 38, 40.
async fn a_committed_event_arrives_whole(place: &dyn OutboxPlace) -> Check {
    let mut full = event(1, "k\u{e9}'")?;
    full.sid = Some(promethean_event::SessionId::generate());
    full.headers.insert("x-b", "2")?;
    full.headers.insert("x-a", "$1.x")?;
    let payload = r#"{"z":1.50,"a":[9007199254740993],"$set":{"b.c":null}}"#;
    full.payload = promethean_event::Payload::parse(payload)?;
    full.caused_by = vec![event(8, "")?.id, event(9, "")?.id];
    full.tags = vec![promethean_event::Tag::new("#duck")?];
    place.add(vec![event(2, "")?], Ending::Rollback).await??;
    place.add(vec![full.clone()], Ending::Commit).await??;
    let table = place.table();
    let rows = claim(&*table, "one", 10).await?;
    let contents: Vec<_> = rows.into_iter().map(|row| row.content).collect();
    ensure_same!(contents, [Ok(full)], "what was claimed");
    Ok(())
}

async fn what_is_added_again_adds_nothing(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a")]).await?;
    add(place, &[(1, "a")]).await?;
    let stats = place.table().stats().await?;
    ensure_same!((stats.pending, stats.sent, stats.dead), (1, 0, 0), "after adding it twice");
    let other = event(1, "b")?;
    let refused = place.add(vec![other], Ending::Rollback).await?;
    let is_conflict = matches!(refused, Err(AddError::IdConflict(_)));
    ensure!(is_conflict, "another event of the same id: {refused:?}");
    let mut system = event(2, "")?;
    system.topic = promethean_event::Topic::system("$groups")?;
    let refused = place.add(vec![system], Ending::Rollback).await?;
    ensure!(matches!(refused, Err(AddError::SystemTopic(_))), "a system topic: {refused:?}");
    Ok(())
}

/// Pitfall 41: while a row of a key is out, nobody gets a later one.
async fn a_key_is_claimed_by_one_at_a_time(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "a"), (3, "b"), (4, ""), (5, "a")]).await?;
    let table = &*place.table();
    let one = claim(table, "one", 1).await?;
    ensure_same!(numbers(&one)?, [1], "the first claim");
    let two = claim(table, "two", 10).await?;
    ensure_same!(numbers(&two)?, [3, 4], "what is left for others");
    settle(table, "one", &one, &Outcome::Sent).await?;
    let three = claim(table, "three", 1).await?;
    ensure_same!(numbers(&three)?, [2], "the next of the key");
    ensure!(claim(table, "four", 10).await?.is_empty(), "the key is out");
    // Backing off holds the key like a claim.
    settle(table, "three", &three, &again(LEASE * 2)).await?;
    let nothing = table.claim(wish("five", 10)).await?;
    ensure!(nothing.rows.is_empty(), "the key waits: {:?}", nothing.rows);
    let free_in = nothing.free_in.ok_or("nobody knows when the next comes free")?;
    ensure!(free_in <= LEASE, "the claim of two ends before the wait of three: {free_in:?}");
    place.pass(LEASE).await?;
    ensure_same!(numbers(&claim(table, "six", 10).await?)?, [3, 4], "the lease has run out");
    place.pass(LEASE).await?;
    let rows = claim(table, "seven", 10).await?;
    ensure_same!(numbers(&rows)?, [2, 3, 4, 5], "the wait is over, and the other lease");
    let attempts: Vec<_> = rows.iter().map(|row| row.attempts).collect();
    ensure_same!(attempts, [1, 0, 0, 0], "a failure is an attempt, a lost lease is none");
    Ok(())
}

/// Pitfall 42: who comes too late marks nothing, whatever it wants to mark.
async fn a_late_marker_is_fenced(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "")]).await?;
    let table = &*place.table();
    let one = claim(table, "one", 10).await?;
    place.pass(LEASE).await?;
    let two = claim(table, "two", 10).await?;
    ensure_same!(numbers(&two)?, [1, 2], "taken over");
    for outcome in [Outcome::Sent, again(LEASE), dead(), Outcome::Released] {
        let settled = settle(table, "one", &one, &outcome).await?;
        ensure_same!(settled, [0, 0, 0, 2], "{outcome:?} by the first one");
    }
    ensure_same!(table.renew("one".into(), LEASE).await?, 0, "rows renewed by the first one");
    ensure_same!(table.give_back("one".into()).await?, 0, "rows given back by the first one");
    ensure!(claim(table, "three", 10).await?.is_empty(), "they are still the second one's");
    let settled = settle(table, "two", &two, &Outcome::Sent).await?;
    ensure_same!(settled, [2, 0, 0, 0], "by the second one");
    let settled = settle(table, "two", &two, &Outcome::Sent).await?;
    ensure_same!(settled, [0, 0, 0, 2], "twice is late, too");
    Ok(())
}

/// Pitfall 42: a renewed claim outlives its first lease.
async fn a_renewed_claim_is_kept(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "")]).await?;
    let table = &*place.table();
    claim(table, "one", 10).await?;
    place.pass(LEASE / 2).await?;
    ensure_same!(table.renew("one".into(), LEASE).await?, 2, "rows renewed");
    place.pass(LEASE / 2).await?;
    ensure!(claim(table, "two", 10).await?.is_empty(), "the lease was renewed");
    place.pass(LEASE / 2).await?;
    ensure_same!(numbers(&claim(table, "two", 10).await?)?, [1, 2], "it has run out");
    Ok(())
}

/// Pitfall 39: dead is not the end.
async fn a_dead_row_holds_its_key(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "a"), (3, "b")]).await?;
    let table = &*place.table();
    let rows = claim(table, "one", 1).await?;
    ensure_same!(settle(table, "one", &rows, &dead()).await?, [0, 0, 1, 0], "given up");
    let listed = place.dead().await?;
    let listed: Vec<_> = listed.iter().map(|dead| (&*dead.error, dead.attempts)).collect();
    ensure_same!(listed, [("$never", 1)], "what is told of it");
    let rows = claim(table, "two", 10).await?;
    ensure_same!(numbers(&rows)?, [3], "its key waits");
    settle(table, "two", &rows, &Outcome::Sent).await?;
    let id = event(1, "a")?.id;
    place.retry(id).await?;
    let twice = place.retry(id).await;
    ensure!(matches!(twice, Err(ReviveError::NotDead(_))), "it is dead no more: {twice:?}");
    let rows = claim(table, "three", 1).await?;
    ensure_same!(numbers(&rows)?, [1], "in its old place");
    settle(table, "three", &rows, &dead()).await?;
    place.discard(id).await?;
    ensure_same!(numbers(&claim(table, "four", 10).await?)?, [2], "what waited behind it");
    let stats = table.stats().await?;
    ensure_same!((stats.pending, stats.sent, stats.dead), (1, 1, 0), "how it stands");
    Ok(())
}

async fn those_who_go_on_pass_the_dead(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "a")]).await?;
    let table = &*place.table();
    let rows = claim(table, "one", 1).await?;
    settle(table, "one", &rows, &dead()).await?;
    ensure!(claim(table, "two", 10).await?.is_empty(), "those who wait");
    let go_on = Claim { after_dead: AfterDead::GoOn, ..wish("three", 10) };
    ensure_same!(numbers(&table.claim(go_on).await?.rows)?, [2], "those who go on");
    Ok(())
}

async fn a_malformed_row_is_told(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "a")]).await?;
    place.spoil(event(1, "a")?.id).await?;
    let rows = claim(&*place.table(), "one", 10).await?;
    let (first, second) = (rows.first().ok_or("no row")?, rows.get(1).ok_or("one row")?);
    ensure!(first.content.is_err(), "a row that is none: {:?}", first.content);
    ensure!(second.content.is_ok(), "the other one: {:?}", second.content);
    ensure_same!(first.order, second.order, "whose order they are part of");
    Ok(())
}

async fn what_a_worker_holds_is_given_back(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "b")]).await?;
    let table = &*place.table();
    claim(table, "one", 1).await?;
    claim(table, "two", 1).await?;
    ensure_same!(table.give_back("one".into()).await?, 1, "rows given back");
    ensure_same!(numbers(&claim(table, "three", 10).await?)?, [1], "what is free again");
    Ok(())
}

/// Pitfall 43.
async fn sent_rows_are_purged_in_time(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, ""), (2, ""), (3, ""), (4, "")]).await?;
    let table = &*place.table();
    let rows = claim(table, "one", 3).await?;
    settle(table, "one", &rows, &Outcome::Sent).await?;
    ensure_same!(table.purge(LEASE, 10).await?, 0, "before their time");
    place.pass(LEASE).await?;
    let purged = [table.purge(LEASE, 2).await?, table.purge(LEASE, 2).await?];
    ensure_same!(purged, [2, 1], "some at a time");
    let OutboxStats { pending, sent, .. } = table.stats().await?;
    ensure_same!((pending, sent), (1, 0), "what was never sent stays");
    Ok(())
}

/// Pitfalls 41, 43: many claim at the same moment.
async fn claims_at_once_share_nothing(place: &dyn OutboxPlace) -> Check {
    let events: Vec<_> = (0..40).zip(["a", "b", "c", ""].into_iter().cycle()).collect();
    add(place, &events).await?;
    let table = place.table();
    let claims = (0..6).map(|n| {
        let table = std::sync::Arc::clone(&table);
        tokio::spawn(async move { table.claim(wish(&format!("worker {n}"), 7)).await })
    });
    let mut owners = std::collections::HashMap::new();
    let mut taken = Vec::new();
    for (owner, claim) in claims.collect::<Vec<_>>().into_iter().enumerate() {
        let rows = claim.await??.rows;
        for key in rows.iter().filter_map(|row| row.order.clone()) {
            let before = *owners.entry(key.clone()).or_insert(owner);
            ensure!(before == owner, "two hold rows of {key:?} at once");
        }
        taken.extend(numbers(&rows)?);
    }
    let all = taken.len();
    taken.sort_unstable();
    taken.dedup();
    ensure_same!(taken.len(), all, "rows that were claimed twice");
    ensure!(taken.len() >= 10, "only {} rows were claimed", taken.len());
    Ok(())
}
