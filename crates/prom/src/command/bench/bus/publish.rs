use std::path::Path;

use promethean_event::NewEvent;
use promethean_log::{Append, Log};
use serde::Serialize;

use super::{open, runtime};
use crate::command::bench::events::{Source, new_log};
use crate::command::bench::measure::{Compared, Round, rate, timed};

/// Concurrent publishers of single events.
const PUBLISHERS: usize = 256;
/// Events of each in a round.
const EACH: usize = 300;

#[derive(Debug, Serialize)]
pub(super) struct Publishing {
    pub(super) publishers_256: Compared,
}

/// Many publishers, each waiting for its own event: through the bus, and straight to the log.
pub(super) fn measure(scratch: &Path, rounds: usize) -> anyhow::Result<Publishing> {
    let runtime = runtime()?;
    let (log_path, bus_path) = (scratch.join("log-alone"), scratch.join("bus"));
    let (log, _) = new_log(&log_path, 1)?;
    let opened = runtime.block_on(open(&bus_path))?;
    let mut source = Source::new(1, 20_000)?;
    let mut figures = Vec::new();
    // The first round only warms up disk and memory.
    for round in 0..=rounds {
        let work = make(&mut source)?;
        let (done, log_time) = timed(|| runtime.block_on(straight(&log, work)));
        done?;
        log.settle()?;
        let work = make(&mut source)?;
        let (done, bus_time) = timed(|| runtime.block_on(through(&opened.bus, work)));
        done?;
        opened.store.log().settle()?;
        if round > 0 {
            figures.push(Round {
                events_per_s: rate(PUBLISHERS * EACH, bus_time),
                reference_events_per_s: rate(PUBLISHERS * EACH, log_time),
            });
        }
    }
    runtime.block_on(opened.bus.close());
    log.close();
    std::fs::remove_dir_all(&log_path)?;
    std::fs::remove_dir_all(&bus_path)?;
    Ok(Publishing { publishers_256: Compared::of(figures) })
}

fn make(source: &mut Source) -> anyhow::Result<Vec<Vec<NewEvent>>> {
    (0..PUBLISHERS).map(|_| (0..EACH).map(|_| source.event()).collect()).collect()
}

async fn straight(log: &Log, work: Vec<Vec<NewEvent>>) -> anyhow::Result<()> {
    let mut tasks = Vec::new();
    for events in work {
        let log = log.clone();
        tasks.push(tokio::spawn(async move {
            for event in events {
                log.append(&Append { events: vec![event], ..Append::default() }).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn through(bus: &promethean::Bus, work: Vec<Vec<NewEvent>>) -> anyhow::Result<()> {
    let mut tasks = Vec::new();
    for events in work {
        let bus = bus.clone();
        tasks.push(tokio::spawn(async move {
            for event in events {
                bus.publish(event).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}
