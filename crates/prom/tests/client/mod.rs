//! The Rust client against the real binary.

mod consuming;

mod errors;

mod publishing;

mod relay;

mod resources;

mod same_program;

mod secure;

mod views;

use promethean_client::Bus;
use promethean_client::event::{EventId, NewEvent, Payload, Timestamp};

use crate::server::Server;

/// A server that keeps nothing.
fn serving() -> Server {
    Server::start(&["dev", "--port", "0"])
}

/// A server over a directory, at a port that is known.
fn serving_at(port: u16, data: &std::path::Path) -> Server {
    let data = data.to_str().unwrap();
    Server::start(&["dev", "--port", &port.to_string(), "--data", data])
}

async fn connected(server: &Server) -> Bus {
    Bus::connect(&server.url()).await.unwrap()
}

fn event(topic: &str, payload: &str) -> NewEvent {
    let (ts, topic) = (Timestamp::from_millis(1), topic.parse().unwrap());
    NewEvent::new(EventId::generate(), ts, topic, Payload::parse(payload.to_owned()).unwrap())
}

/// A port that is free now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
