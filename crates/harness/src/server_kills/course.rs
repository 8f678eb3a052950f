use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::consumer::{self, Dialect};
use super::http::Http;
use super::process::Process;
use super::publisher::{Publisher, Way};
use super::{Failure, GROUP, Place, TOPIC, Work};
use crate::kills::{Line, Report, Writer, check, read};

/// How often to kill, and what.
#[derive(Debug, Clone)]
pub struct ServerKillOptions {
    /// `prom`.
    pub binary: PathBuf,
    /// Where it works, and where the history is written.
    pub folder: PathBuf,
    /// How often.
    pub kills: u32,
    /// When, by chance.
    pub seed: u64,
}

struct Course {
    binary: PathBuf,
    data: PathBuf,
    writer: Arc<Writer>,
    random: u64,
}

/// Kills, finishes, checks.
pub fn run(options: &ServerKillOptions) -> Result<Report, Failure> {
    let history = options.folder.join("history.ndjson");
    let writer = Arc::new(Writer::open(&history)?);
    let mut course = Course {
        binary: options.binary.clone(),
        data: options.folder.join("data"),
        writer: Arc::clone(&writer),
        random: options.seed | 1,
    };
    let ways = [Way::WebSocket, Way::WebSocket, Way::Http, Way::HttpBatch];
    let mut publishers: Vec<Publisher> = (0..)
        .zip(ways)
        .map(|(number, way)| Publisher::new(number, way, Arc::clone(&writer)))
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for _ in 0..options.kills {
        publishers = runtime.block_on(course.kill_once(publishers))?;
    }
    runtime.block_on(course.finish())?;
    Ok(Report { kills: options.kills, verdict: check(&read(&history)?) })
}

impl Course {
    fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Starts the server, lets clients work, and kills it a little later; now and then while it
    /// still reads what the kill before has left.
    async fn kill_once(&mut self, publishers: Vec<Publisher>) -> Result<Vec<Publisher>, Failure> {
        let mut server = Process::spawn(&self.binary, &self.data)?;
        if self.chance().is_multiple_of(5) {
            wait(Duration::from_micros(self.chance() % 60_000)).await;
            server.kill()?;
            server = Process::spawn(&self.binary, &self.data)?;
        }
        let place = server.listening(&self.data)?.ok_or("the server did not start")?;
        self.begun(&place).await?;
        let mut clients = JoinSet::new();
        for dialect in [Dialect::Plain, Dialect::V1] {
            let (place, writer) = (place.clone(), Arc::clone(&self.writer));
            clients.spawn(async move { consumer::run(place, dialect, writer).await });
        }
        let mut publishing = JoinSet::new();
        for mut publisher in publishers {
            let place = place.clone();
            publishing.spawn(async move {
                publisher.run(&place).await?;
                Ok::<_, Failure>(publisher)
            });
        }
        wait(Duration::from_micros(2_000 + self.chance() % 80_000)).await;
        server.kill()?;
        // All of them have seen the end before anything is started again: what a dead server said
        // does not mix with what the next one says.
        while let Some(ended) = clients.join_next().await {
            ended??;
        }
        let mut publishers = Vec::new();
        while let Some(ended) = publishing.join_next().await {
            publishers.push(ended??);
        }
        Ok(publishers)
    }

    async fn begun(&self, place: &Place) -> Result<(), Failure> {
        let mut http = Http::connect(place).await.ok_or("the server is not there")?;
        let path = format!("/cursors?group={GROUP}");
        let (status, answer) = http.ask("GET", &path, "").await?.ok_or("no answer")?;
        let cursor = match status {
            404 => 0,
            200 => answer["cursors"][0]["next"].as_u64().unwrap_or(0),
            _ => return Err(format!("{status} {answer}").into()),
        };
        Ok(self.writer.write(&Line::Begun { cursor })?)
    }

    /// Lets the group finish, writes down all that is stored, and stops the server in peace.
    async fn finish(&self) -> Result<(), Failure> {
        let mut server = Process::spawn(&self.binary, &self.data)?;
        let place = server.listening(&self.data)?.ok_or("the server did not start")?;
        self.begun(&place).await?;
        let (writer, of) = (Arc::clone(&self.writer), place.clone());
        let consumer = tokio::spawn(consumer::run(of, Dialect::V1, writer));
        let mut http = Http::connect(&place).await.ok_or("the server is not there")?;
        let path = format!("/lag?group={GROUP}");
        loop {
            let (_, lag) = http.ask("GET", &path, "").await?.ok_or("no answer")?;
            if lag["groups"][0]["events"].as_u64() == Some(0) {
                break;
            }
            wait(Duration::from_millis(20)).await;
            if consumer.is_finished() {
                return consumer.await?.and(Err("the last consumer ended by itself".into()));
            }
        }
        consumer.abort();
        self.stored(&mut http).await?;
        match server.stop()? {
            Some(0) => Ok(()),
            other => Err(format!("the server ended with {other:?} when it was asked to").into()),
        }
    }

    async fn stored(&self, http: &mut Http) -> Result<(), Failure> {
        let mut lines = Vec::new();
        let mut after = String::new();
        loop {
            let path = format!("/events/{TOPIC}?limit=1000{after}");
            let (_, page) = http.ask("GET", &path, "").await?.ok_or("no answer")?;
            for event in page["events"].as_array().ok_or("no page")? {
                let offset = event["offset"].as_u64().ok_or("an event without a place")?;
                let Work { publisher, number, key } =
                    serde_json::from_value(event["payload"].clone())?;
                lines.push(Line::Stored { publisher, number, key, offset });
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        self.writer.write(&Line::CaughtUp { end: lines.len() as u64 })?;
        for line in lines {
            self.writer.write(&line)?;
        }
        Ok(())
    }
}

/// A kill comes at some time, by chance.
async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}
