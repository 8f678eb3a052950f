//! NATS JetStream, in its text protocol: a stream in files, pull consumers with explicit acks.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::seam::{Consumer, Hub, Publisher};
use super::wire::{Wire, find};

/// Events that are asked for at once; asked again when half of them have come, as its own
/// clients do. As many as may be out by default.
const PULL: usize = 1_000;

#[derive(Debug, Clone)]
pub(super) struct Nats {
    pub(super) at: SocketAddr,
    pub(super) name: &'static str,
}

impl Hub for Nats {
    fn name(&self) -> &'static str {
        self.name
    }

    fn make(&self, topic: &str) -> anyhow::Result<()> {
        let stream = stream_of(topic);
        let config = json!({ "name": stream, "subjects": [topic], "storage": "file" });
        Client::connect(self.at)?.ask(&format!("$JS.API.STREAM.CREATE.{stream}"), &config)?;
        Ok(())
    }

    fn publisher(&self, topic: &str, _batch: usize) -> anyhow::Result<Box<dyn Publisher>> {
        let mut client = Client::connect(self.at)?;
        let answers = client.inbox("answers", 2);
        let head = format!("PUB {topic} {answers} ");
        Ok(Box::new(Publishing { client, head }))
    }

    fn consumer(&self, topic: &str, group: &str) -> anyhow::Result<Box<dyn Consumer>> {
        let mut client = Client::connect(self.at)?;
        let stream = stream_of(topic);
        let config = json!({
            "stream_name": stream,
            "config": { "durable_name": group, "ack_policy": "explicit", "deliver_policy": "all" },
        });
        client.ask(&format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{group}"), &config)?;
        let pulled = client.inbox("pulled", 3);
        let name = format!("{stream}.{group}");
        let mut consuming = Consuming { client, name, pulled, wanted: 0, acks: Vec::new() };
        consuming.pull();
        consuming.client.wire.flush()?;
        Ok(Box::new(consuming))
    }
}

/// Streams have no dots in their names.
fn stream_of(topic: &str) -> String {
    topic.replace('.', "-")
}

struct Client {
    wire: Wire,
    /// Subjects are everybody's: those of answers have to be this connection's own.
    number: u64,
}

/// A message that has come: the lengths of its parts.
struct Message<'a> {
    reply: &'a [u8],
    body: &'a [u8],
    status: &'a [u8],
}

impl Client {
    fn connect(at: SocketAddr) -> anyhow::Result<Self> {
        let mut wire = Wire::connect(at)?;
        let info = wire.line()?;
        ensure!(info.starts_with(b"INFO "), "not a NATS server");
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut client = Self { wire, number };
        client.say("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n");
        client.inbox("asked", 1);
        Ok(client)
    }

    /// Makes a subject for answers to this connection.
    fn inbox(&mut self, name: &str, number: u32) -> String {
        let subject = self.subject(name);
        self.say(&format!("SUB {subject} {number}\r\n"));
        subject
    }

    fn subject(&self, name: &str) -> String {
        format!("_INBOX.{}.{name}", self.number)
    }

    fn say(&mut self, text: &str) {
        self.wire.out.extend_from_slice(text.as_bytes());
    }

    /// Asks the server itself.
    fn ask(&mut self, subject: &str, request: &Value) -> anyhow::Result<Value> {
        let request = request.to_string();
        let asked = self.subject("asked");
        self.say(&format!("PUB {subject} {asked} {}\r\n{request}\r\n", request.len()));
        self.wire.flush()?;
        loop {
            if let Some(answer) = self.message(|message| message.body.to_vec())? {
                let answer: Value = serde_json::from_slice(&answer)?;
                ensure!(answer.get("error").is_none(), "{subject}: {answer}");
                return Ok(answer);
            }
            self.wire.more()?;
        }
    }

    /// Shows the next message, if it has come as a whole.
    fn message<T>(&mut self, seen: impl FnOnce(&Message<'_>) -> T) -> anyhow::Result<Option<T>> {
        loop {
            let come = self.wire.come();
            let Some(end) = find(come, b"\r\n") else {
                return Ok(None);
            };
            let line = come.get(..end).unwrap_or_default();
            if line.starts_with(b"MSG ") || line.starts_with(b"HMSG ") {
                let shown = whole(come, line)?.map(|(message, bytes)| (seen(&message), bytes));
                return Ok(shown.map(|(value, bytes)| {
                    self.wire.advance(bytes);
                    value
                }));
            }
            let asked = line == b"PING";
            ensure!(!line.starts_with(b"-ERR"), "{}", String::from_utf8_lossy(line));
            self.wire.advance(end + 2);
            if asked {
                self.say("PONG\r\n");
                self.wire.flush()?;
            }
        }
    }
}

/// `MSG subject sid [reply] bytes`, or `HMSG subject sid [reply] head bytes`; and how long it is.
fn whole<'a>(come: &'a [u8], line: &'a [u8]) -> anyhow::Result<Option<(Message<'a>, usize)>> {
    let mut words: [&[u8]; 6] = [&[]; 6];
    let mut count = 0;
    for (word, place) in line.split(|&byte| byte == b' ').zip(words.iter_mut()) {
        *place = word;
        count += 1;
    }
    let [kind, _, _, third, fourth, fifth] = words;
    let has_head = kind == b"HMSG";
    let (reply, head, length): (&[u8], &[u8], &[u8]) = match (has_head, count) {
        (false, 4) => (&[], b"0", third),
        (false, 5) => (third, b"0", fourth),
        (true, 5) => (&[], third, fourth),
        (true, 6) => (third, fourth, fifth),
        _ => bail!("not understood: {}", String::from_utf8_lossy(line)),
    };
    let (head, length) = (number(head)?, number(length)?);
    let begin = line.len() + 2;
    if come.len() < begin + length + 2 {
        return Ok(None);
    }
    let status = come.get(begin..begin + head).unwrap_or_default();
    let body = come.get(begin + head..begin + length).unwrap_or_default();
    Ok(Some((Message { reply, body, status }, begin + length + 2)))
}

fn number(digits: &[u8]) -> anyhow::Result<usize> {
    Ok(std::str::from_utf8(digits)?.parse()?)
}

struct Publishing {
    client: Client,
    head: String,
}

impl Publisher for Publishing {
    fn put(&mut self, payload: &[u8]) {
        let out = &mut self.client.wire.out;
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(payload.len().to_string().as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.client.wire.flush()
    }

    fn answered(&mut self) -> anyhow::Result<usize> {
        let mut count = 0;
        loop {
            let answer = self.client.message(|message| {
                find(message.body, b"\"seq\"")
                    .map(drop)
                    .with_context(|| String::from_utf8_lossy(message.body).into_owned())
            })?;
            match answer {
                Some(answer) => {
                    answer?;
                    count += 1;
                }
                None if count > 0 => return Ok(count),
                None => self.client.wire.more()?,
            }
        }
    }
}

struct Consuming {
    client: Client,
    name: String,
    pulled: String,
    /// Events that were asked for and have not come.
    wanted: usize,
    acks: Vec<u8>,
}

impl Consuming {
    fn pull(&mut self) {
        let request = json!({ "batch": PULL, "expires": 60_000_000_000u64 }).to_string();
        let (name, pulled) = (&self.name, &self.pulled);
        let line = format!(
            "PUB $JS.API.CONSUMER.MSG.NEXT.{name} {pulled} {}\r\n{request}\r\n",
            request.len()
        );
        self.client.say(&line);
        self.wanted += PULL;
    }
}

impl Consumer for Consuming {
    fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> anyhow::Result<usize> {
        let mut count = 0;
        loop {
            let acks = &mut self.acks;
            let taken = self.client.message(|message| {
                if message.reply.is_empty() {
                    // The end of a pull.
                    return !message.status.is_empty();
                }
                each(message.body);
                acks.extend_from_slice(b"PUB ");
                acks.extend_from_slice(message.reply);
                acks.extend_from_slice(b" 4\r\n+ACK\r\n");
                count += 1;
                true
            })?;
            match taken {
                Some(_) => {}
                None if count > 0 => break,
                None => self.client.wire.more()?,
            }
        }
        self.wanted = self.wanted.saturating_sub(count);
        self.client.wire.out.append(&mut self.acks);
        if self.wanted < PULL / 2 {
            self.pull();
        }
        self.client.wire.flush()?;
        Ok(count)
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        let (stream, group) = self.name.split_once('.').context("a stream and a consumer")?;
        let subject = format!("$JS.API.CONSUMER.INFO.{stream}.{group}");
        loop {
            let state = self.client.ask(&subject, &json!({}))?;
            if state.get("num_ack_pending") == Some(&json!(0)) {
                return Ok(());
            }
        }
    }
}
