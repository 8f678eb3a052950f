//! One transaction, tried until it is through, refused, or out of time.

use std::time::Duration;

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::ReadConcern;

use crate::clock::{Deadline, Stopwatch};
use crate::cluster::{APP_NAME, Cluster, durable};
use crate::fault::{Fault, describe, too_late};
use crate::limits::{ABANDONED_AFTER, RETRY_MAX, RETRY_MIN};

/// What a transaction does. May be called several times: each time begins anew.
pub(crate) trait Attempt: Send {
    type Outcome: Send;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Self::Outcome>, Fault>>;

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
    let begun = Stopwatch::start();
    let (mut pause, mut seen_to) = (RETRY_MIN, false);
    loop {
        let reason = match once(cluster, deadline, &mut attempt).await {
            Err(Fault::Transient(reason)) => reason,
            other => return other,
        };
        if deadline.has_passed() {
            return Err(Fault::Refused(reason));
        }
        if begun.elapsed() > ABANDONED_AFTER && !seen_to {
            seen_to = true;
            end_abandoned(cluster, deadline).await;
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
async fn end_abandoned(cluster: &Cluster, deadline: Deadline) {
    let found = deadline.hold(abandoned(cluster)).await;
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

/// Our own sessions on the primary with a transaction that has been open, and idle, for too long.
async fn abandoned(cluster: &Cluster) -> mongodb::error::Result<Vec<Bson>> {
    let idle_micros = i64::try_from(ABANDONED_AFTER.as_micros()).unwrap_or(i64::MAX);
    let pipeline = [
        doc! { "$currentOp": { "allUsers": false, "idleSessions": true } },
        doc! { "$match": {
            "type": "idleSession",
            "appName": APP_NAME,
            "transaction.timeInactiveMicros": { "$gt": idle_micros },
        } },
    ];
    let admin = cluster.client.database("admin");
    // What goes on now is no data, and not to be had by a majority.
    let mut cursor = admin.aggregate(pipeline).read_concern(ReadConcern::local()).await?;
    let mut sessions = Vec::new();
    while cursor.advance().await? {
        let found: Document = cursor.deserialize_current()?;
        if let Some(id) = found.get_document("lsid").ok().and_then(|lsid| lsid.get("id")) {
            sessions.push(Bson::Document(doc! { "id": id.clone() }));
        }
    }
    Ok(sessions)
}
