//! One transaction, tried until it is through, refused, or out of time.

use std::collections::HashSet;
use std::time::Duration;

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;

use crate::clock::{Deadline, Stopwatch};
use crate::cluster::{APP_NAME, Cluster, HANDLERS_APP_NAME, durable};
use crate::document::{unsigned, whole};
use crate::fault::{Fault, describe, too_late};
use crate::limits::{ABANDONED_AFTER, HANDLING_TIME, RETRY_MAX, RETRY_MIN};

/// What a transaction does. May be called several times: each time begins anew.
pub(crate) trait Attempt: Send {
    type Outcome: Send;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Self::Outcome>, Fault>>;

    /// Whose transactions are nobody's any more, by what its handlers' connections are called: a hub that
    /// is known to be gone, though the server may not have noticed.
    fn gone(&self) -> Option<&str> {
        None
    }

    /// Waits before it is tried again: for a time, or until there is a reason to.
    fn pause(&self, deadline: Deadline, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(deadline.pause(time))
    }
}

/// How a transaction is to end.
#[derive(Debug)]
pub(crate) enum Step<T> {
    Commit(T),
    /// Nothing is to be written after all.
    Abandon(T),
}

/// Runs a transaction within the deadline. [`Fault::Transient`] is never the answer.
pub(crate) async fn transact<A: Attempt>(
    cluster: &Cluster,
    deadline: Deadline,
    mut attempt: A,
) -> Result<A::Outcome, Fault> {
    // Since it was seen to whoever might be in the way and go on no more: what rests but for a moment
    // by then is looked at again.
    let mut unseen = Stopwatch::start();
    let mut pause = RETRY_MIN;
    loop {
        let reason = match once(cluster, deadline, &mut attempt).await {
            Err(Fault::Transient(reason)) => reason,
            other => return other,
        };
        if deadline.has_passed() {
            return Err(Fault::Refused(reason));
        }
        if unseen.elapsed() > ABANDONED_AFTER {
            end_abandoned(cluster, deadline, attempt.gone()).await;
            unseen = Stopwatch::start();
        }
        tracing::debug!(reason, "a transaction is tried again");
        attempt.pause(deadline, jittered(pause)).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// The same, begun anew while another hub is faster to make or to change what it is about.
pub(crate) async fn transact_anew<A: Attempt>(
    cluster: &Cluster,
    attempt: impl Fn() -> A,
) -> Result<A::Outcome, Fault> {
    let deadline = cluster.deadline();
    loop {
        match transact(cluster, deadline, attempt()).await {
            Err(fault @ (Fault::Duplicate(_) | Fault::Stale)) if deadline.has_passed() => {
                return Err(Fault::Refused(fault.to_string()));
            }
            Err(Fault::Duplicate(_) | Fault::Stale) => deadline.pause(RETRY_MIN).await,
            other => return other,
        }
    }
}

/// Half of it at least; those who lost together do not come back together.
fn jittered(pause: Duration) -> Duration {
    let random = u32::from(promethean_event::EventId::generate().as_bytes()[15]);
    pause / 2 + pause / 2 * random / 255
}

async fn once<A: Attempt>(
    cluster: &Cluster,
    deadline: Deadline,
    attempt: &mut A,
) -> Result<A::Outcome, Fault> {
    let session = deadline.hold(cluster.client.start_session()).await;
    let mut session = session.ok_or_else(too_late)??;
    let begin = session.start_transaction().read_concern(ReadConcern::snapshot());
    let begin = begin.write_concern(durable());
    deadline.hold(begin).await.ok_or_else(too_late)??;
    // A session that is dropped takes its transaction back, so that nothing is left behind here.
    match deadline.hold(attempt.run(&mut session)).await.ok_or_else(too_late)?? {
        Step::Abandon(outcome) => {
            if let Some(Err(error)) = deadline.hold(session.abort_transaction()).await {
                tracing::debug!(error = describe(&error), "a transaction was not taken back");
            }
            Ok(outcome)
        }
        Step::Commit(outcome) => commit(session, deadline).await.map(|()| outcome),
    }
}

/// Commits; again, which is safe, for as long as nobody knows whether it has worked.
async fn commit(mut session: ClientSession, deadline: Deadline) -> Result<(), Fault> {
    let mut pause = RETRY_MIN;
    loop {
        let Some(result) = deadline.hold(session.commit_transaction()).await else {
            let text = "MongoDB did not say in time whether it has committed";
            return Err(Fault::Unknown(text.to_owned()));
        };
        let error = match result {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // Certain: it was not committed. Only this label says so. A code does not: a server that has no
        // such transaction may have lost sight of it, and then says beside that what it could not
        // confirm.
        if error.contains_label("TransientTransactionError") {
            return Err(Fault::Transient(describe(&error)));
        }
        let unknown = error.contains_label("UnknownTransactionCommitResult");
        let fault = Fault::from(error);
        let may_be_told = unknown || matches!(fault, Fault::Transient(_));
        if !may_be_told || deadline.has_passed() {
            return Err(Fault::Unknown(fault.to_string()));
        }
        deadline.pause(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Ends transactions of ours that nobody goes on with: of a hub that was killed, say. They would
/// be in everybody's way until the server gives them up, which takes a minute.
async fn end_abandoned(cluster: &Cluster, deadline: Deadline, gone: Option<&str>) {
    let found = deadline.hold(abandoned(cluster, gone)).await;
    match found {
        Some(Ok(sessions)) if sessions.is_empty() => {}
        Some(Ok(sessions)) => {
            tracing::warn!(count = sessions.len(), "transactions that were left open are ended");
            let command = doc! { "killSessions": sessions };
            let admin = cluster.client.database("admin");
            let ended = admin.run_command(command);
            if let Some(Err(error)) = deadline.hold(ended).await {
                tracing::warn!(error = describe(&error), "they could not be ended");
            }
        }
        Some(Err(error)) => {
            tracing::warn!(error = describe(&error), "open transactions could not be listed");
        }
        None => {}
    }
}

/// Our own sessions on the primary with a transaction that nobody goes on with.
async fn abandoned(cluster: &Cluster, gone: Option<&str>) -> mongodb::error::Result<Vec<Bson>> {
    let pipeline = [
        doc! { "$currentOp": {
            "allUsers": false, "idleSessions": true, "idleConnections": true,
        } },
        doc! { "$match": { "appName": { "$regex": format!("^{APP_NAME}") } } },
        doc! { "$project": {
            "type": 1, "appName": 1, "connectionId": 1, "lsid.id": 1,
            "idle": "$transaction.timeInactiveMicros",
        } },
    ];
    let admin = cluster.client.database("admin");
    // What goes on now is no data, and not to be had by a majority.
    let mut cursor = admin.aggregate(pipeline).read_concern(ReadConcern::local()).await?;
    let (mut sessions, mut connections) = (Vec::new(), HashSet::new());
    while cursor.advance().await? {
        let found: Document = cursor.deserialize_current()?;
        match found.get_str("type") {
            Ok("idleSession") => sessions.push(found),
            _ => connections.extend(found.get("connectionId").and_then(whole)),
        }
    }
    let left = sessions.iter().filter(|session| is_abandoned(session, &connections, gone));
    let id = |session: &Document| session.get_document("lsid").ok()?.get("id").cloned();
    Ok(left.filter_map(id).map(|id| Bson::Document(doc! { "id": id })).collect())
}

/// Whether a transaction has rested for too long. One of users' code may rest for as long as that may
/// take, if the hub that it is of is connected, and not known to be gone: one that is frozen or cut off
/// is connected for long.
fn is_abandoned(session: &Document, connections: &HashSet<i64>, gone: Option<&str>) -> bool {
    let app = session.get_str("appName").unwrap_or_default();
    let is_handling = app.strip_prefix(HANDLERS_APP_NAME).is_some_and(|rest| {
        // Those of earlier versions have nothing there.
        rest.is_empty() || rest.starts_with('/')
    });
    if !is_handling && app != APP_NAME {
        return false;
    }
    let idle = session.get("idle").and_then(whole).map_or(0, unsigned);
    let idle = Duration::from_micros(idle);
    let connection = session.get("connectionId").and_then(whole);
    let is_connected = connection.is_some_and(|connection| connections.contains(&connection));
    let has_time = is_handling && is_connected && gone != Some(app);
    let enough = if has_time { HANDLING_TIME } else { ABANDONED_AFTER };
    idle > enough
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_users_has_its_time_while_its_hub_is_there() {
        let is_abandoned = |app: &str, seconds: i64, connection: i64| {
            let session = doc! {
                "appName": app, "idle": seconds * 1_000_000, "connectionId": connection,
            };
            is_abandoned(&session, &HashSet::from([7]), Some("promethean-handlers/gone"))
        };
        assert!(!is_abandoned(APP_NAME, 1, 7));
        assert!(is_abandoned(APP_NAME, 2, 7));
        assert!(!is_abandoned(HANDLERS_APP_NAME, 14, 7));
        assert!(is_abandoned(HANDLERS_APP_NAME, 16, 7));
        assert!(!is_abandoned(HANDLERS_APP_NAME, 1, 8));
        assert!(is_abandoned(HANDLERS_APP_NAME, 2, 8), "its hub has gone");
        assert!(!is_abandoned("promethean-handlers/there", 14, 7));
        assert!(is_abandoned("promethean-handlers/there", 16, 7));
        assert!(!is_abandoned("promethean-handlers/gone", 1, 7));
        assert!(is_abandoned("promethean-handlers/gone", 2, 7), "whether it is connected or not");
        assert!(!is_abandoned("promethean-elsewhere", 100, 8), "it is somebody else's");
    }
}
