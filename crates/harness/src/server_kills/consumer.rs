use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::socket::Socket;
use super::{Failure, GROUP, Place, TOPIC, Work};
use crate::kills::{Line, Writer};

/// What a consumer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// One event per frame, acks by id.
    Plain,
    /// Batches, and acks by token.
    V1,
}

/// Takes events until the server is gone. Who acks is told when it is durable.
pub(super) async fn run(
    place: Place,
    dialect: Dialect,
    writer: Arc<Writer>,
) -> Result<(), Failure> {
    let protocol = (dialect == Dialect::V1).then_some("prom.v1");
    let Some(mut socket) = Socket::connect(&place, protocol).await? else {
        return Ok(());
    };
    let opts = json!({
        "from": "earliest", "ack_timeout_ms": 60_000, "max_attempts": 1_000,
        "max_in_flight": 16, "batch_size": 8, "batch": dialect == Dialect::V1,
    });
    let subscribe = json!({ "op": "SUBSCRIBE", "topic": TOPIC, "group": GROUP, "opts": opts });
    if socket.say(&subscribe).await.is_none() {
        return Ok(());
    }
    let mut acks = Acks { writer, asked: HashMap::new(), number: 0 };
    loop {
        let Some(frame) = socket.next().await? else {
            return Ok(());
        };
        let answer = match frame["op"].as_str() {
            Some("EVENT") => acks.take(&[&frame])?,
            Some("EVENTS") => {
                let events = frame["events"].as_array().ok_or("no events")?;
                acks.take(&events.iter().collect::<Vec<_>>())?
            }
            Some("OK") => {
                acks.confirmed(&frame)?;
                continue;
            }
            Some("HELLO") => continue,
            _ => return Err(format!("a consumer was refused: {frame}").into()),
        };
        for one in answer {
            if socket.say(&one).await.is_none() {
                return Ok(());
            }
        }
    }
}

/// What was acked, and not confirmed yet.
struct Acks {
    writer: Arc<Writer>,
    asked: HashMap<u64, Vec<u64>>,
    number: u64,
}

impl Acks {
    /// Handles events one by one; what is to be said then.
    fn take(&mut self, delivered: &[&Value]) -> Result<Vec<Value>, Failure> {
        let (mut tokens, mut by_id, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for one in delivered {
            let (event, ctx) = (&one["event"], &one["ctx"]);
            let Work { publisher, number, key } = serde_json::from_value(event["payload"].clone())?;
            let offset = event["offset"].as_u64().ok_or("an event without a place")?;
            let attempt = ctx["attempt"].as_u64().ok_or("no attempt")?.try_into()?;
            let line = Line::Delivered { publisher, number, key, offset, attempt };
            self.writer.write(&line)?;
            self.writer.write(&Line::Done { offset })?;
            if one["op"].is_null() {
                tokens.push(ctx["token"].clone());
                offsets.push(offset);
            } else {
                let corr = self.ask(vec![offset]);
                by_id.push(json!({
                    "op": "ACK", "topic": TOPIC, "group": GROUP, "id": event["id"], "corr": corr,
                }));
            }
        }
        if !tokens.is_empty() {
            let corr = self.ask(offsets);
            by_id.push(json!({ "op": "ACKS", "tokens": tokens, "corr": corr }));
        }
        Ok(by_id)
    }

    fn ask(&mut self, offsets: Vec<u64>) -> u64 {
        self.number += 1;
        self.asked.insert(self.number, offsets);
        self.number
    }

    fn confirmed(&mut self, ok: &Value) -> Result<(), Failure> {
        // The answer to SUBSCRIBE has none.
        let Some(corr) = ok["corr"].as_u64() else {
            return Ok(());
        };
        let offsets = self.asked.remove(&corr).ok_or("an answer to nothing")?;
        if let Some(accepted) = ok["accepted"].as_u64()
            && accepted != offsets.len() as u64
        {
            return Err(format!("{accepted} of {} acks were taken", offsets.len()).into());
        }
        for offset in offsets {
            self.writer.write(&Line::Acked { offset })?;
        }
        Ok(())
    }
}
