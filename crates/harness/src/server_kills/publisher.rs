use std::collections::VecDeque;
use std::sync::Arc;

use promethean_event::EventId;
use serde_json::{Value, json};

use super::http::Http;
use super::socket::Socket;
use super::{Failure, Place, TOPIC, Work};
use crate::kills::{Line, Writer};

/// Publishes under way on one WebSocket.
const WINDOW: usize = 16;

/// How a publisher speaks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    WebSocket,
    Http,
    /// Several events in one request, all or none.
    HttpBatch,
}

/// A publisher that outlives its servers: it knows what was not answered.
pub(super) struct Publisher {
    number: u32,
    way: Way,
    next: u64,
    open: VecDeque<(Work, EventId)>,
    writer: Arc<Writer>,
}

impl Publisher {
    pub(super) fn new(number: u32, way: Way, writer: Arc<Writer>) -> Self {
        Self { number, way, next: 0, open: VecDeque::new(), writer }
    }

    /// Publishes until the server is gone.
    pub(super) async fn run(&mut self, place: &Place) -> Result<(), Failure> {
        let ended = match self.way {
            Way::WebSocket => self.over_websocket(place).await?,
            Way::Http => self.over_http(place, 1).await?,
            Way::HttpBatch => self.over_http(place, 3).await?,
        };
        // Whether it could not begin or was cut off makes no difference.
        ended.map_or(Ok(()), |()| Err("a publisher ended by itself".into()))
    }

    fn begin(&mut self) -> Result<(Work, EventId), Failure> {
        let work = Work::of(self.number, self.next);
        self.next += 1;
        let Work { publisher, number, key } = work;
        self.writer.write(&Line::Publishing { publisher, number, key })?;
        let begun = (work, EventId::generate());
        self.open.push_back(begun);
        Ok(begun)
    }

    fn answered(&mut self, offset: Option<u64>) -> Result<(), Failure> {
        let (work, _) = self.open.pop_front().ok_or("an answer to nothing")?;
        let offset = offset.ok_or("an answer without a place")?;
        let Work { publisher, number, .. } = work;
        Ok(self.writer.write(&Line::Published { publisher, number, offset })?)
    }

    async fn over_websocket(&mut self, place: &Place) -> Result<Option<()>, Failure> {
        let Some(mut socket) = Socket::connect(place, Some("prom.v1")).await? else {
            return Ok(None);
        };
        for one in self.open.clone() {
            if socket.say(&frame(one)).await.is_none() {
                return Ok(None);
            }
        }
        loop {
            while self.open.len() < WINDOW {
                let begun = self.begin()?;
                if socket.say(&frame(begun)).await.is_none() {
                    return Ok(None);
                }
            }
            let Some(answer) = socket.next().await? else {
                return Ok(None);
            };
            match answer["op"].as_str() {
                Some("HELLO") => {}
                Some("OK") => {
                    let wanted = self.open.front().map(|(work, _)| work.number);
                    if answer["corr"].as_u64() != wanted {
                        return Err(format!("answered out of order: {answer}").into());
                    }
                    self.answered(answer["places"][0]["offset"].as_u64())?;
                }
                _ => return Err(format!("a publish was refused: {answer}").into()),
            }
        }
    }

    async fn over_http(&mut self, place: &Place, batch: usize) -> Result<Option<()>, Failure> {
        let Some(mut http) = Http::connect(place).await else {
            return Ok(None);
        };
        loop {
            while self.open.len() < batch {
                self.begin()?;
            }
            let envelopes: Vec<Value> = self.open.iter().map(|one| envelope(*one)).collect();
            let body = Value::from(envelopes).to_string();
            let path = format!("/publish/{TOPIC}");
            let Some((status, answer)) = http.ask("POST", &path, &body).await? else {
                return Ok(None);
            };
            let receipts = answer["events"].as_array().filter(|_| status == 201);
            let receipts = receipts.ok_or_else(|| format!("refused: {status} {answer}"))?;
            for receipt in receipts {
                self.answered(receipt["offset"].as_u64())?;
            }
        }
    }
}

fn envelope((work, id): (Work, EventId)) -> Value {
    json!({ "payload": work, "key": format!("key-{}", work.key), "id": id })
}

fn frame((work, id): (Work, EventId)) -> Value {
    let opts = json!({ "key": format!("key-{}", work.key), "id": id });
    json!({ "op": "PUBLISH", "topic": TOPIC, "payload": work, "opts": opts, "corr": work.number })
}
