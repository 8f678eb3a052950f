//! What the edge costs per event without a network: reading frames, writing events, filters,
//! rights. `cargo bench -p promethean-gateway`.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "measures and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use promethean_event::frame::{ClientFrame, Context, write_event_frame};
use promethean_event::{Event, EventId, NewEvent, Offset, Partition, Payload, Timestamp};
use promethean_gateway::access::{Action, Policy, Principal, Resource, authorize};
use promethean_gateway::filter::Expression;

/// Nanoseconds for one call: the best of five rounds, since what disturbs only adds.
fn measure(name: &str, mut act: impl FnMut()) {
    const CALLS: u32 = 20_000;
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| act());
            start.elapsed().as_nanos() / u128::from(CALLS)
        })
        .min();
    println!("{name:<46}{:>8} ns", best.unwrap_or_default());
}

fn event(bytes: usize) -> Event {
    let filler = "x".repeat(bytes.saturating_sub(60));
    let payload =
        format!(r#"{{"cpu_pct":91.5,"host":{{"name":"dev"}},"note":"{filler}","pid":7}}"#);
    let payload = Payload::parse(payload).expect("it is JSON");
    let topic = "heartbeat.received".parse().expect("it is a topic");
    NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload)
        .placed(Partition::ZERO, Offset::ZERO)
}

fn main() {
    for size in [250, 2_000] {
        let event = event(size);
        for source in [
            "topic == 'heartbeat.received'",
            "payload.cpu_pct > 90",
            "payload.cpu_pct > 90 && payload.host.name == 'dev' && payload.pid in [1, 7]",
            "payload.host.name.matches('^d')",
        ] {
            let filter = Expression::compile(source).expect("it is a filter");
            measure(&format!("filter {size} B: {:.24}", source), || {
                black_box(filter.verdict(black_box(&event)));
            });
        }
        let frame = Bytes::from(format!(
            r#"{{"op":"PUBLISH","topic":"heartbeat.received","payload":{},"corr":7}}"#,
            event.payload.as_str()
        ));
        measure(&format!("PUBLISH {size} B: read"), || {
            black_box(ClientFrame::parse(black_box(&frame)).1.is_ok());
        });
        let mut out = Vec::new();
        measure(&format!("EVENT {size} B: write"), || {
            out.clear();
            write_event_frame(&mut out, None, black_box(&event), &Context::default());
        });
    }
    measure("filter: check when given", || {
        black_box(Expression::compile("payload.cpu_pct > 90 && key.startsWith('dev')").is_ok());
    });
    let scopes = ["publish:a.**", "publish:heartbeat.**", "subscribe:**"];
    let policy = Policy::of_scopes(scopes).expect("they are scopes");
    let principal = Principal::new("bench", policy, None);
    let topic = event(250).topic;
    measure("authorize", || {
        black_box(authorize(&principal, Action::Publish, Resource::Topic(&topic, None)).is_ok());
    });
}
