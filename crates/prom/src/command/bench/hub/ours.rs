//! Our own WebSocket protocol (`prom.v1`), written down as briefly as the others here.

use std::net::SocketAddr;

use anyhow::{bail, ensure};

use super::seam::{Consumer, Hub, Publisher};
use super::wire::{Wire, find};

/// Most events that are out at once, and in one frame.
const IN_FLIGHT: usize = 1_000;
/// A client has to mask what it sends; which mask makes no difference here.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x96, 0x3c];

#[derive(Debug, Clone)]
pub(super) struct Ours {
    pub(super) at: SocketAddr,
    pub(super) token: String,
}

impl Hub for Ours {
    fn name(&self) -> &'static str {
        "promethean"
    }

    fn make(&self, topic: &str) -> anyhow::Result<()> {
        let mut wire = Wire::connect(self.at)?;
        let head = format!(
            "POST /topics/{topic} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}",
            self.at, self.token
        );
        wire.out.extend_from_slice(head.as_bytes());
        wire.flush()?;
        let status = wire.line()?;
        ensure!(status.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&status));
        Ok(())
    }

    fn publisher(&self, topic: &str, batch: usize) -> anyhow::Result<Box<dyn Publisher>> {
        let client = Client::connect(self)?;
        let topic = topic.to_owned();
        Ok(Box::new(Publishing { client, topic, batch, open: Vec::new(), in_open: 0, number: 0 }))
    }

    fn consumer(&self, topic: &str, group: &str) -> anyhow::Result<Box<dyn Consumer>> {
        let mut client = Client::connect(self)?;
        client.say(&format!(
            r#"{{"op":"SUBSCRIBE","topic":"{topic}","group":"{group}","opts":{{"from":"earliest","batch":true,"batch_size":{IN_FLIGHT},"max_in_flight":{IN_FLIGHT}}}}}"#
        ));
        client.wire.flush()?;
        client.next(is_ok)?;
        Ok(Box::new(Consuming { client, unanswered: 0 }))
    }
}

fn is_ok(frame: &[u8]) -> anyhow::Result<()> {
    ensure!(frame.starts_with(br#"{"op":"OK""#), "refused: {}", String::from_utf8_lossy(frame));
    Ok(())
}

/// A WebSocket after its HELLO.
#[derive(Debug)]
pub(super) struct Client {
    wire: Wire,
}

impl Client {
    pub(super) fn connect(hub: &Ours) -> anyhow::Result<Self> {
        let mut wire = Wire::connect(hub.at)?;
        let head = format!(
            "GET /ws HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: upgrade\r\n\
             upgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-protocol: prom.v1\r\n\r\n",
            hub.at, hub.token
        );
        wire.out.extend_from_slice(head.as_bytes());
        wire.flush()?;
        let status = wire.line()?;
        ensure!(status.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&status));
        while !wire.line()?.is_empty() {}
        let mut client = Self { wire };
        client.next(|frame| {
            ensure!(frame.starts_with(br#"{"op":"HELLO""#), "the server said no HELLO");
            Ok(())
        })?;
        Ok(client)
    }

    fn say(&mut self, text: &str) {
        self.frame(0x81, text.as_bytes());
    }

    fn frame(&mut self, head: u8, body: &[u8]) {
        let out = &mut self.wire.out;
        out.push(head);
        match body.len() {
            short @ 0..126 => out.push(0x80 | short as u8),
            middle @ 126..65_536 => {
                out.push(0x80 | 126);
                out.extend_from_slice(&(middle as u16).to_be_bytes());
            }
            long => {
                out.push(0x80 | 127);
                out.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(&MASK);
        let from = out.len();
        out.extend_from_slice(body);
        let [a, b, c, d] = MASK;
        let mask = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let (eights, rest) = out.get_mut(from..).unwrap_or_default().as_chunks_mut::<8>();
        for eight in eights {
            *eight = (u64::from_ne_bytes(*eight) ^ mask).to_ne_bytes();
        }
        rest.iter_mut().zip(MASK.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    }

    /// Waits for the next text and shows it.
    fn next<T>(&mut self, seen: impl FnOnce(&[u8]) -> anyhow::Result<T>) -> anyhow::Result<T> {
        loop {
            let Some((opcode, head, length)) = self.whole() else {
                self.wire.more()?;
                continue;
            };
            let frame = self.wire.come().get(head..head + length).unwrap_or_default();
            match opcode {
                1 => {
                    let shown = seen(frame);
                    self.wire.advance(head + length);
                    return shown;
                }
                9 => {
                    let body = frame.to_vec();
                    self.frame(0x8a, &body);
                    self.wire.flush()?;
                }
                8 => bail!("closed: {}", String::from_utf8_lossy(frame)),
                _ => {}
            }
            self.wire.advance(head + length);
        }
    }

    /// Whether a whole frame has come: its opcode, and the lengths of its head and of its body.
    fn whole(&self) -> Option<(u8, usize, usize)> {
        let come = self.wire.come();
        let (first, second) = (*come.first()?, *come.get(1)?);
        let (head, length) = match second & 0x7f {
            126 => (4, u16::from_be_bytes(come.get(2..4)?.try_into().ok()?).into()),
            127 => (10, u64::from_be_bytes(come.get(2..10)?.try_into().ok()?) as usize),
            short => (2, usize::from(short)),
        };
        (come.len() >= head + length).then_some((first & 0x0f, head, length))
    }
}

struct Publishing {
    client: Client,
    topic: String,
    batch: usize,
    open: Vec<u8>,
    in_open: usize,
    number: usize,
}

impl Publishing {
    fn shut(&mut self) {
        if self.in_open == 0 {
            return;
        }
        // The answer says how many it was for: that is what the number is used for here.
        let tail = format!(r#"],"corr":{}}}"#, self.in_open);
        self.open.extend_from_slice(tail.as_bytes());
        self.client.frame(0x81, &self.open);
        self.open.clear();
        self.in_open = 0;
    }
}

impl Publisher for Publishing {
    fn put(&mut self, payload: &[u8]) {
        self.number += 1;
        let topic = self.topic.as_bytes();
        let open = &mut self.open;
        if self.batch == 1 {
            let parts: [&[u8]; 5] = [
                br#"{"op":"PUBLISH","topic":""#,
                topic,
                br#"","payload":"#,
                payload,
                br#","corr":1}"#,
            ];
            parts.iter().for_each(|part| open.extend_from_slice(part));
            self.client.frame(0x81, open);
            open.clear();
            return;
        }
        let begin: &[u8] = if self.in_open == 0 { br#"{"op":"PUBLISH","events":["# } else { b"," };
        let parts = [begin, br#"{"topic":""#, topic, br#"","payload":"#, payload, b"}"];
        parts.iter().for_each(|part| open.extend_from_slice(part));
        self.in_open += 1;
        if self.in_open == self.batch {
            self.shut();
        }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.shut();
        self.client.wire.flush()
    }

    fn answered(&mut self) -> anyhow::Result<usize> {
        let one = |frame: &[u8]| {
            is_ok(frame)?;
            number_after(frame, br#""corr":"#)
        };
        let mut count = self.client.next(one)?;
        while self.client.whole().is_some() {
            count += self.client.next(one)?;
        }
        Ok(count)
    }
}

/// The number that follows the first occurrence of a name.
fn number_after(frame: &[u8], name: &[u8]) -> anyhow::Result<usize> {
    let Some(at) = find(frame, name) else {
        bail!("no number in {}", String::from_utf8_lossy(frame));
    };
    let digits = frame.get(at + name.len()..).unwrap_or_default();
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0')))
}

struct Consuming {
    client: Client,
    /// Acks that were sent and not answered yet.
    unanswered: usize,
}

impl Consuming {
    /// One frame: events are acked one by one, in one frame for all of them.
    fn one(&mut self, each: &mut dyn FnMut(&[u8])) -> anyhow::Result<usize> {
        let mut acks = br#"{"op":"ACKS","tokens":["#.to_vec();
        let (mut count, mut answered) = (0, 0);
        self.client.next(|frame| {
            if !frame.starts_with(br#"{"op":"EVENTS""#) {
                is_ok(frame)?;
                answered = number_after(frame, br#""accepted":"#)?;
                return Ok(());
            }
            let mut rest = frame;
            while let Some(at) = find(rest, br#""payload":"#) {
                rest = rest.get(at + 10..).unwrap_or_default();
                let Some(end) = find(rest, br#""token":"#) else { break };
                each(rest.get(..end).unwrap_or_default());
                let token = rest.get(end + 8..).unwrap_or_default();
                let close = find(token, b"}").unwrap_or(0);
                acks.extend_from_slice(token.get(..close).unwrap_or_default());
                acks.push(b',');
                rest = token;
                count += 1;
            }
            Ok(())
        })?;
        self.unanswered -= answered;
        if count > 0 {
            acks.pop();
            acks.extend_from_slice(br#"],"corr":0}"#);
            self.client.frame(0x81, &acks);
            self.client.wire.flush()?;
            self.unanswered += count;
        }
        Ok(count)
    }
}

impl Consumer for Consuming {
    fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> anyhow::Result<usize> {
        self.one(each)
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        while self.unanswered > 0 {
            self.one(&mut |_| {})?;
        }
        Ok(())
    }
}
