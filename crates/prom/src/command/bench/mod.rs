//! `prom bench`: speed, as ratios to a reference that was measured in the same run.

mod bus;

mod events;

mod hub;

mod log;

mod measure;

mod mongo;

mod place;

mod views;

use clap::Subcommand;

use super::Status;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// The event log against a plain file: writing, reading, look-ups, opening, memory, disk.
    Log(log::LogBench),
    /// The bus against the log alone: publishing, groups, latency, idle subscriptions.
    Bus(bus::BusBench),
    /// The server over loopback, and NATS JetStream and Redis Streams in turn with it.
    Hub(hub::HubBench),
    /// Views against SQLite and a constant answer: projecting, snapshots, the past.
    Views(views::ViewsBench),
    /// The store on MongoDB against the driver alone: appending, consuming, changefeeds, latency.
    Mongo(mongo::MongoBench),
}

pub(crate) fn run(command: BenchCommand, output: &Output) -> anyhow::Result<Status> {
    match command {
        BenchCommand::Log(bench) => log::run(&bench, output),
        BenchCommand::Bus(bench) => bus::run(&bench, output),
        BenchCommand::Hub(bench) => hub::run(&bench, output),
        BenchCommand::Views(bench) => views::run(&bench, output),
        BenchCommand::Mongo(bench) => mongo::run(&bench, output),
    }
}
