//! What a compact binary subprotocol could gain: the frames of publishing, delivering and acking,
//! written and read as JSON by the code that the server runs, and in a binary form with the same
//! content (fields by tag and length, numbers in as many bytes as they need, payloads as the same
//! JSON text). `cargo bench -p promethean-gateway --bench codec`.
//!
//! A payload is checked as JSON in both forms: nobody may store what is none. The share of the whole
//! path is this against what `prom bench hub --json` says an event costs from end to end.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "measures and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use promethean_event::frame::{ClientFrame, Context, DeliveryToken, write_event};
use promethean_event::{Event, EventId, NewEvent, Offset, Partition, Payload, Timestamp};

const EVENTS: usize = 100;

/// Nanoseconds for one event: the best of nine rounds, since what disturbs only adds.
fn measure(mut act: impl FnMut()) -> f64 {
    const CALLS: u32 = 400;
    let mut best = f64::INFINITY;
    for _ in 0..9 {
        let start = Instant::now();
        (0..CALLS).for_each(|_| act());
        let taken = start.elapsed().as_nanos() as f64;
        best = best.min(taken / f64::from(CALLS) / EVENTS as f64);
    }
    best
}

fn event(bytes: usize) -> Event {
    let filler = "x".repeat(bytes.saturating_sub(60));
    let payload =
        format!(r#"{{"cpu_pct":91.5,"host":{{"name":"dev"}},"note":"{filler}","pid":7}}"#);
    let payload = Payload::parse(payload).expect("it is JSON");
    let topic = "heartbeat.received".parse().expect("it is a topic");
    let mut event = NewEvent::new(
        EventId::generate(),
        Timestamp::from_millis(1_763_000_000_000),
        topic,
        payload,
    );
    event.key = Some("dev:stt:7".parse().expect("it is a key"));
    event.placed(Partition::ZERO, Offset::new(1_234_567))
}

fn token(offset: u64) -> DeliveryToken {
    DeliveryToken {
        sub: 1,
        lane: 17,
        partition: Partition::ZERO,
        offset: Offset::new(offset),
        epoch: 3,
        attempt: 1,
        round: 0,
    }
}

/// A number, seven bits at a time.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (&first, rest) = self.0.split_first().expect("there is more");
        self.0 = rest;
        first
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.number() as usize;
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }
}

/// One event of a publish.
fn put_publish(out: &mut Vec<u8>, event: &Event) {
    put_bytes(out, 1, event.id.as_bytes());
    out.push(2);
    put_number(out, event.ts.millis());
    put_bytes(out, 3, event.topic.as_str().as_bytes());
    put_bytes(out, 4, event.key.as_ref().map_or(&[][..], |key| key.as_str().as_bytes()));
    put_bytes(out, 5, event.payload.as_bytes());
    out.push(0);
}

/// The same checks as the server makes of JSON: id, names, payload.
fn take_publish(input: &mut Input<'_>, frame: &Bytes) -> NewEvent {
    let (mut id, mut ts, mut topic, mut key, mut payload) = (None, 0, None, None, None);
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).expect("it is text").to_owned();
    loop {
        match input.byte() {
            1 => id = input.bytes().try_into().ok().map(EventId::from_bytes),
            2 => ts = input.number(),
            3 => topic = text(input.bytes()).parse().ok(),
            4 => key = text(input.bytes()).parse().ok(),
            5 => payload = Payload::parse(frame.slice_ref(input.bytes())).ok(),
            _ => break,
        }
    }
    let (id, topic) = (id.expect("an id"), topic.expect("a topic"));
    let mut event =
        NewEvent::new(id, Timestamp::from_millis(ts), topic, payload.expect("a payload"));
    event.key = key;
    event
}

fn put_delivery(out: &mut Vec<u8>, event: &Event, token: &DeliveryToken) {
    put_publish(out, event);
    put_number(out, event.partition.get().into());
    put_number(out, event.offset.get());
    put_token(out, token);
    put_number(out, 5);
    put_number(out, 30_000);
}

fn put_token(out: &mut Vec<u8>, token: &DeliveryToken) {
    let DeliveryToken { sub, lane, partition, offset, epoch, attempt, round } = *token;
    for number in [sub.into(), lane.into(), partition.get().into(), offset.get(), epoch.into()] {
        put_number(out, number);
    }
    put_number(out, attempt.into());
    put_number(out, round.into());
}

fn take_token(input: &mut Input<'_>) -> DeliveryToken {
    DeliveryToken {
        sub: input.number() as u32,
        lane: input.number() as u32,
        partition: Partition::new(input.number() as u32),
        offset: Offset::new(input.number()),
        epoch: input.number() as u32,
        attempt: input.number() as u16,
        round: input.number() as u16,
    }
}

fn row(name: &str, json: f64, binary: f64) {
    println!("{name:<34}{json:>8.0} ns{binary:>8.0} ns{:>7.2}x", json / binary);
}

fn publishing(size: usize) -> (f64, f64) {
    let event = event(size);
    let one = format!(
        r#"{{"topic":"{}","payload":{},"opts":{{"id":"{}","ts":{},"key":"dev:stt:7"}}}}"#,
        event.topic,
        event.payload.as_str(),
        event.id,
        event.ts
    );
    let frame = Bytes::from(format!(
        r#"{{"op":"PUBLISH","corr":7,"events":[{}]}}"#,
        vec![one; EVENTS].join(",")
    ));
    let json = measure(|| {
        black_box(ClientFrame::parse(black_box(&frame)).1.is_ok());
    });
    let mut binary = Vec::new();
    (0..EVENTS).for_each(|_| put_publish(&mut binary, &event));
    let binary = Bytes::from(binary);
    let compact = measure(|| {
        let mut input = Input(black_box(&binary));
        let events: Vec<NewEvent> =
            (0..EVENTS).map(|_| take_publish(&mut input, &binary)).collect();
        black_box(events);
    });
    row(&format!("publish {size} B: server reads"), json, compact);
    (json, compact)
}

fn delivering(size: usize) -> (f64, f64) {
    let event = event(size);
    let ctx = Context {
        attempt: 1,
        max_attempts: 5,
        ack_deadline_ms: Some(30_000),
        token: Some(token(1_234_567)),
    };
    let mut out = Vec::new();
    let json = measure(|| {
        out.clear();
        for _ in 0..EVENTS {
            out.extend_from_slice(b"{\"event\":");
            write_event(&mut out, black_box(&event));
            out.extend_from_slice(b",\"ctx\":");
            serde_json::to_writer(&mut out, &ctx).expect("it has a JSON form");
            out.push(b'}');
        }
    });
    let mut out = Vec::new();
    let compact = measure(|| {
        out.clear();
        (0..EVENTS).for_each(|_| put_delivery(&mut out, black_box(&event), &token(1_234_567)));
    });
    row(&format!("deliver {size} B: server writes"), json, compact);
    (json, compact)
}

fn acking() -> (f64, f64) {
    let tokens: Vec<DeliveryToken> = (0..EVENTS as u64).map(|n| token(1_234_567 + n)).collect();
    let written: Vec<String> = tokens.iter().map(|token| format!("\"{token}\"")).collect();
    let frame = Bytes::from(format!(r#"{{"op":"ACKS","tokens":[{}]}}"#, written.join(",")));
    let json = measure(|| {
        black_box(ClientFrame::parse(black_box(&frame)).1.is_ok());
    });
    let mut binary = Vec::new();
    tokens.iter().for_each(|token| put_token(&mut binary, token));
    let compact = measure(|| {
        let mut input = Input(black_box(&binary));
        let tokens: Vec<DeliveryToken> = (0..EVENTS).map(|_| take_token(&mut input)).collect();
        black_box(tokens);
    });
    row("ack: server reads", json, compact);
    (json, compact)
}

fn main() {
    println!("{:<34}{:>11}{:>11}{:>8}", "for one event, in frames of 100", "JSON", "binary", "");
    let (ack_json, ack_binary) = acking();
    for size in [250, 2_000] {
        let (publish_json, publish_binary) = publishing(size);
        let (deliver_json, deliver_binary) = delivering(size);
        let json = publish_json + deliver_json + ack_json;
        row(&format!("all three, {size} B"), json, publish_binary + deliver_binary + ack_binary);
    }
}
