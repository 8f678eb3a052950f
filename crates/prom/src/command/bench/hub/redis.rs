//! Redis Streams, in RESP: XADD, XREADGROUP, XACK.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};

use super::seam::{Consumer, Hub, Publisher};
use super::wire::{Wire, find};

/// Entries that are asked for at once.
const COUNT: &str = "1000";

#[derive(Debug, Clone)]
pub(super) struct Redis {
    pub(super) at: SocketAddr,
}

impl Hub for Redis {
    fn name(&self) -> &'static str {
        "redis everysec"
    }

    fn make(&self, _topic: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn publisher(&self, topic: &str, _batch: usize) -> anyhow::Result<Box<dyn Publisher>> {
        let wire = Wire::connect(self.at)?;
        let mut head = b"*5\r\n".to_vec();
        bulk(&mut head, b"XADD");
        bulk(&mut head, topic.as_bytes());
        bulk(&mut head, b"*");
        bulk(&mut head, b"d");
        Ok(Box::new(Publishing { wire, head }))
    }

    fn consumer(&self, topic: &str, group: &str) -> anyhow::Result<Box<dyn Consumer>> {
        let mut wire = Wire::connect(self.at)?;
        command(&mut wire.out, &["XGROUP", "CREATE", topic, group, "0", "MKSTREAM"]);
        wire.flush()?;
        let answer = wire.line()?;
        ensure!(answer == b"+OK", "{}", String::from_utf8_lossy(&answer));
        let mut read = Vec::new();
        let words =
            ["XREADGROUP", "GROUP", group, "c", "COUNT", COUNT, "BLOCK", "60000", "STREAMS"];
        command(&mut read, &[&words[..], &[topic, ">"]].concat());
        let mut ack = Vec::new();
        bulk(&mut ack, b"XACK");
        bulk(&mut ack, topic.as_bytes());
        bulk(&mut ack, group.as_bytes());
        let mut consuming = Consuming { wire, read, ack, acks_out: 0, asked: false };
        consuming.ask()?;
        Ok(Box::new(consuming))
    }
}

fn bulk(out: &mut Vec<u8>, word: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn command(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| bulk(out, word.as_bytes()));
}

struct Publishing {
    wire: Wire,
    head: Vec<u8>,
}

impl Publisher for Publishing {
    fn put(&mut self, payload: &[u8]) {
        self.wire.out.extend_from_slice(&self.head);
        bulk(&mut self.wire.out, payload);
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.wire.flush()
    }

    fn answered(&mut self) -> anyhow::Result<usize> {
        let mut count = 0;
        loop {
            match string(self.wire.come())? {
                Some((_, bytes)) => {
                    self.wire.advance(bytes);
                    count += 1;
                }
                None if count > 0 => return Ok(count),
                None => self.wire.more()?,
            }
        }
    }
}

/// The bulk string that begins here, if it has come as a whole, and how long it is in all.
fn string(come: &[u8]) -> anyhow::Result<Option<(&[u8], usize)>> {
    let Some((length, begin)) = counted(come, b'$')? else {
        return Ok(None);
    };
    let end = begin + length;
    let text = come.get(begin..end).filter(|_| come.len() >= end + 2);
    Ok(text.map(|text| (text, end + 2)))
}

/// The number after a sign, and where its line ends.
fn counted(come: &[u8], sign: u8) -> anyhow::Result<Option<(usize, usize)>> {
    let Some(end) = find(come.get(..64).unwrap_or(come), b"\r\n") else {
        ensure!(come.len() < 64, "not understood: {}", String::from_utf8_lossy(come));
        return Ok(None);
    };
    let line = come.get(..end).unwrap_or_default();
    match line.split_first() {
        Some((first, digits)) if *first == sign => {
            let number = std::str::from_utf8(digits)?.parse();
            Ok(Some((number.with_context(|| format!("{line:?}"))?, end + 2)))
        }
        _ => bail!("not understood: {}", String::from_utf8_lossy(line)),
    }
}

struct Consuming {
    wire: Wire,
    read: Vec<u8>,
    ack: Vec<u8>,
    /// XACKs without their answers.
    acks_out: usize,
    /// Whether an XREADGROUP is out.
    asked: bool,
}

impl Consuming {
    fn ask(&mut self) -> anyhow::Result<()> {
        self.wire.out.extend_from_slice(&self.read);
        self.asked = true;
        self.wire.flush()
    }

    fn count(&mut self, sign: u8) -> anyhow::Result<usize> {
        loop {
            if let Some((count, bytes)) = counted(self.wire.come(), sign)? {
                self.wire.advance(bytes);
                return Ok(count);
            }
            self.wire.more()?;
        }
    }

    fn acked(&mut self) -> anyhow::Result<()> {
        for _ in 0..std::mem::take(&mut self.acks_out) {
            self.count(b':')?;
        }
        Ok(())
    }

    /// Skips the next string, or shows it.
    fn next(&mut self, seen: &mut dyn FnMut(&[u8])) -> anyhow::Result<()> {
        loop {
            if let Some((text, bytes)) = string(self.wire.come())? {
                seen(text);
                self.wire.advance(bytes);
                return Ok(());
            }
            self.wire.more()?;
        }
    }
}

impl Consumer for Consuming {
    fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> anyhow::Result<usize> {
        if !self.asked {
            self.ask()?;
        }
        self.acked()?;
        // One stream: its name, and its entries.
        self.count(b'*')?;
        self.count(b'*')?;
        self.next(&mut |_| {})?;
        let entries = self.count(b'*')?;
        let mut ids = Vec::with_capacity(entries * 24);
        for _ in 0..entries {
            self.count(b'*')?;
            self.next(&mut |id| bulk(&mut ids, id))?;
            self.count(b'*')?;
            self.next(&mut |_| {})?;
            self.next(each)?;
        }
        self.asked = false;
        let out = &mut self.wire.out;
        out.extend_from_slice(format!("*{}\r\n", entries + 3).as_bytes());
        out.extend_from_slice(&self.ack);
        out.append(&mut ids);
        self.acks_out += 1;
        // The next question goes with the acks.
        self.ask()?;
        Ok(entries)
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        self.acked()
    }
}
