//! Random histories of a topic: whatever was accepted stays readable.

use promethean::schema::{Document, Extras, Sampler};
use promethean::{Bus, Decoded, Hop, Reads, Registration};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{beat, heartbeat, operations};

/// One step of a topic's history.
#[derive(Debug, Clone)]
enum Step {
    Rename(usize),
    AddOptional(u8),
    AddRequired(u8),
    Remove(usize),
    MakeOptional(usize),
    Convert(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<usize>().prop_map(Step::Rename),
        (0..4_u8).prop_map(Step::AddOptional),
        (0..4_u8).prop_map(Step::AddRequired),
        any::<usize>().prop_map(Step::Remove),
        any::<usize>().prop_map(Step::MakeOptional),
        any::<usize>().prop_map(Step::Convert),
    ]
}

/// A closed object: names, kinds, and which are required.
#[derive(Debug, Clone)]
struct Shape(Vec<(String, u8, bool)>);

const KINDS: [&str; 4] = ["integer", "string", "boolean", "number"];

fn default_of(kind: u8) -> Value {
    match kind {
        1 => json!("none"),
        2 => json!(false),
        _ => json!(0),
    }
}

impl Shape {
    fn document(&self) -> Value {
        let mut properties = Map::new();
        for (name, kind, _) in &self.0 {
            properties.insert(name.clone(), json!({"type": KINDS[usize::from(*kind)]}));
        }
        let required: Vec<&String> = self.0.iter().filter(|f| f.2).map(|f| &f.0).collect();
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false
        })
    }

    /// The shape after a step, with the casters up and down.
    fn after(&self, step: &Step, number: usize) -> (Self, Hop, Hop) {
        let mut next = self.clone();
        let fresh = format!("f{number}");
        let at = |n: usize| n % self.0.len();
        let (up, down) = match *step {
            Step::Rename(n) => {
                let old = std::mem::replace(&mut next.0[at(n)].0, fresh.clone());
                (
                    json!([{"op": "rename", "pointer": format!("/{old}"), "to": fresh}]),
                    json!([{"op": "rename", "pointer": format!("/{fresh}"), "to": old}]),
                )
            }
            Step::AddOptional(kind) | Step::AddRequired(kind) => {
                let required = matches!(step, Step::AddRequired(_));
                next.0.push((fresh.clone(), kind, required));
                let pointer = format!("/{fresh}");
                let up = if required {
                    json!([{"op": "default", "pointer": pointer, "value": default_of(kind)}])
                } else {
                    json!([])
                };
                (up, json!([{"op": "remove", "pointer": pointer}]))
            }
            Step::Remove(n) if self.0.len() > 1 => {
                let (name, kind, _) = next.0.remove(at(n));
                let pointer = format!("/{name}");
                (
                    json!([{"op": "remove", "pointer": pointer}]),
                    json!([{"op": "default", "pointer": pointer, "value": default_of(kind)}]),
                )
            }
            Step::MakeOptional(n) => {
                let field = &mut next.0[at(n)];
                field.2 = false;
                let value = default_of(field.1);
                let pointer = format!("/{}", field.0);
                (json!([]), json!([{"op": "default", "pointer": pointer, "value": value}]))
            }
            Step::Convert(n) => {
                let field = &mut next.0[at(n)];
                let pointer = format!("/{}", field.0);
                let kind = std::mem::replace(&mut field.1, 1);
                let text =
                    json!([{"op": "convert", "pointer": pointer, "expression": "string(value)"}]);
                let back = match kind {
                    0 => "0",
                    2 => "value == 'true'",
                    3 => "0.5",
                    _ => "value",
                };
                (text, json!([{"op": "convert", "pointer": pointer, "expression": back}]))
            }
            Step::Remove(_) => (json!([]), json!([])),
        };
        (next, operations(&up), operations(&down))
    }
}

async fn live(steps: &[Step], seed: u64) {
    let bus = Bus::memory();
    let mut shape = Shape(vec![("a".into(), 0, true), ("b".into(), 1, false)]);
    let register = Registration::new(shape.document().to_string());
    bus.schemas().register(&heartbeat(), register).await.unwrap();
    let mut versions = vec![1];
    for (number, step) in steps.iter().enumerate() {
        let (next, up, down) = shape.after(step, number);
        let wish = Registration::new(next.document().to_string()).up(up).down(down);
        // A step that leads back to an earlier document is that version, with other casters.
        let Ok(registered) = bus.schemas().register(&heartbeat(), wish).await else { break };
        shape = next;
        versions.push(registered.version);
    }
    versions.dedup();
    let latest = *versions.last().unwrap();
    for version in bus.schemas().versions(&heartbeat()).await.unwrap() {
        let document: Document = version.document;
        let mut sampler = Sampler::new(&document, Extras::None);
        for draw in 0..8 {
            let value = sampler.draw(seed.wrapping_add(draw)).unwrap();
            let number = version.version.to_string();
            bus.publish(beat(Some(&number), &value)).await.unwrap();
        }
    }
    for wanted in 1..=latest {
        let reader = bus.reader(Reads::Version(wanted)).await.unwrap();
        let rules = bus.schemas().version(&heartbeat(), wanted).await.unwrap().unwrap().document;
        let pattern = promethean::event::Pattern::new("heartbeat.*").unwrap();
        let mut replay = reader.replay(promethean::Replay::of(pattern)).await.unwrap();
        while let Some(step) = replay.next().await.unwrap() {
            let Decoded::Event(stored) = step else { panic!("{steps:?}: {step:?}") };
            assert!(rules.validator().is_valid(&stored.event.payload.decode().unwrap()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Every event that was accepted can be read in every version, up and down.
    #[test]
    fn what_was_accepted_stays_readable(
        steps in proptest::collection::vec(step(), 1..5),
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(&steps, seed));
    }
}
