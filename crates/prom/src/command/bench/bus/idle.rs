use std::time::Duration;

use anyhow::Context;
use promethean::{Bus, Start};
use serde::{Deserialize, Serialize};

use super::runtime;
use crate::command::Status;
use crate::output::Output;

/// How long the idle process is watched.
const WATCHED: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Idle {
    pub(super) subscriptions: usize,
    /// Memory that they take.
    pub(super) mib: f64,
    /// What the process used while nothing happened.
    pub(super) cpu_s: f64,
    pub(super) watched_s: f64,
}

/// In a process of its own, so that nothing else counts.
pub(super) fn measure(subscriptions: usize) -> anyhow::Result<Idle> {
    let binary = std::env::current_exe()?;
    let output = std::process::Command::new(binary)
        .args(["bench", "bus", "--json", "--idle-of", &subscriptions.to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "the measured process failed: {text}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

pub(super) fn print(subscriptions: usize, output: &Output) -> anyhow::Result<Status> {
    let runtime = runtime()?;
    let idle = runtime.block_on(watch(subscriptions))?;
    output.result(&idle, |idle| format!("{idle:?}\n"))?;
    Ok(Status::Done)
}

async fn watch(subscriptions: usize) -> anyhow::Result<Idle> {
    let bus = Bus::memory();
    let before = memory_mib()?;
    let mut consumers = Vec::with_capacity(subscriptions);
    for number in 0..subscriptions {
        let (topic, group) = (format!("idle.{}", number % 100), format!("group-{number}"));
        let subscribe = bus.subscribe_to([topic.as_str()], &group).from(Start::Earliest);
        consumers.push(subscribe.handle(|_| std::future::ready(Ok(()))).await?);
    }
    let mib = memory_mib()? - before;
    let cpu = cpu_s()?;
    tokio::time::sleep(WATCHED).await;
    let cpu_s = cpu_s()? - cpu;
    drop(consumers);
    Ok(Idle { subscriptions, mib, cpu_s, watched_s: WATCHED.as_secs_f64() })
}

fn memory_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS is there")?;
    let kib: f64 = line.split_whitespace().nth(1).context("a figure")?.parse()?;
    Ok(kib / 1024.0)
}

/// User and system time of this process so far.
fn cpu_s() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().context("a process has a name")?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| -> anyhow::Result<f64> {
        Ok(fields.get(index).context("a figure")?.parse::<f64>()?)
    };
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}
