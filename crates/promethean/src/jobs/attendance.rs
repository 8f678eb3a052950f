//! Jobs of hubs that are gone. A hub that does a job writes after each piece of it; who finds a job
//! unchanged for longer than any piece takes goes on with it. By a conditional write: of several that
//! notice at once, one gets it, and one that was only asleep fails to write and stops. What it does
//! until then adds nothing, since what jobs publish has ids made of their sources.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use promethean_event::EventId;

use super::record::{JobRecord, JobState};
use super::runner::{JobError, Jobs};
use crate::clock::Stopwatch;

/// A job that nothing was written of for so long is nobody's: three times the lease of a hub. A piece
/// of one takes a second at most, unless the store is away, and then for others, too.
pub const JOB_LEASE: Duration = Duration::from_secs(15);
/// Jobs are looked at so often.
const LOOK: Duration = Duration::from_secs(2);

/// Jobs as they were seen last: their versions, and since when they have had them.
#[derive(Debug, Default)]
struct Seen(HashMap<EventId, (u64, Stopwatch)>);

impl Seen {
    /// The jobs among these that run nowhere any more.
    fn silent(&mut self, jobs: &[JobRecord], lease: Duration) -> Vec<JobRecord> {
        let running = |job: &&JobRecord| job.state == JobState::Running;
        self.0.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        let mut silent = Vec::new();
        for job in jobs.iter().filter(running) {
            let seen = self.0.entry(job.id).or_insert_with(|| (job.version, Stopwatch::start()));
            if seen.0 != job.version {
                *seen = (job.version, Stopwatch::start());
            } else if seen.1.nanos() >= u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX) {
                silent.push(job.clone());
            }
        }
        silent
    }
}

impl Jobs {
    /// Takes jobs over that are silent for the lease ([`JOB_LEASE`]), where hubs share a store; for
    /// as long as it is awaited.
    pub async fn attend(&self, lease: Duration) -> Infallible {
        if self.bus().store().claims().is_none() {
            return std::future::pending().await;
        }
        let mut seen = Seen::default();
        let mut ticks = tokio::time::interval(LOOK.min(lease / 3));
        loop {
            ticks.tick().await;
            let jobs = match self.list().await {
                Ok(jobs) => jobs,
                Err(error) => {
                    tracing::debug!(%error, "jobs cannot be looked at");
                    continue;
                }
            };
            for job in seen.silent(&jobs, lease) {
                let id = job.id;
                match self.take_over(job).await {
                    Ok(()) => {}
                    Err(JobError::Elsewhere) => {
                        tracing::debug!(job = %id, "another hub was faster")
                    }
                    Err(error) => tracing::warn!(job = %id, %error, "a job cannot be gone on with"),
                }
            }
        }
    }

    async fn take_over(&self, mut job: JobRecord) -> Result<(), JobError> {
        if self.runs_here(job.id) {
            return Ok(());
        }
        job.taken_over += 1;
        job.updated_at = self.bus().inner.groups.site().clock.now().millis();
        self.keep(&mut job).await?;
        tracing::info!(job = %job.id, "a replay is gone on with, whose hub was silent");
        self.run(job)
    }
}
