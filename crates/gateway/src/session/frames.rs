use promethean_event::frame::{Context, Gap, ServerFrame, write_event, write_event_frame};
use promethean_event::{Event, GroupName};

use super::subscription::Subscription;
use crate::limits::FRAME_BYTES_MAX;

/// How a frame of many events ends.
const END: &[u8] = b"]}";

/// Frames that are being made of events: one each, or many in one.
pub(super) struct Frames {
    sub: u32,
    /// Most events of one; none for one event each.
    batch: Option<usize>,
    group: Option<GroupName>,
    made: Vec<Vec<u8>>,
    open: Vec<u8>,
    in_open: usize,
}

impl Frames {
    pub(super) fn new(sub: u32, subscription: &Subscription) -> Self {
        Self::of(sub, subscription.batch, subscription.group.clone())
    }

    const fn of(sub: u32, batch: Option<usize>, group: Option<GroupName>) -> Self {
        Self { sub, batch, group, made: Vec::new(), open: Vec::new(), in_open: 0 }
    }

    pub(super) fn add(&mut self, event: &Event, ctx: &Context) {
        let Some(max) = self.batch else {
            let mut frame = Vec::new();
            write_event_frame(&mut frame, self.group.as_ref(), event, ctx);
            self.made.push(frame);
            return;
        };
        if self.in_open >= max || self.open.len() > FRAME_BYTES_MAX / 2 {
            self.shut();
        }
        if self.in_open == 0 {
            self.begin();
        } else {
            self.open.push(b',');
        }
        let at = self.open.len();
        self.open.extend_from_slice(b"{\"event\":");
        write_event(&mut self.open, event);
        self.open.extend_from_slice(b",\"ctx\":");
        let _ = serde_json::to_writer(&mut self.open, ctx);
        self.open.push(b'}');
        // How large an event is in JSON is known when it is written. One that does not fit has a frame
        // of its own, in which there is room for the largest.
        if self.in_open > 0 && self.open.len() + END.len() > FRAME_BYTES_MAX {
            let event = self.open.split_off(at);
            self.open.truncate(at - 1);
            self.shut();
            self.begin();
            self.open.extend_from_slice(&event);
        }
        self.in_open += 1;
    }

    fn begin(&mut self) {
        let head = format!("{{\"op\":\"EVENTS\",\"sub\":{}", self.sub);
        self.open.extend_from_slice(head.as_bytes());
        if let Some(group) = &self.group {
            self.open.extend_from_slice(format!(",\"group\":\"{group}\"").as_bytes());
        }
        self.open.extend_from_slice(b",\"events\":[");
    }

    /// Behind what was there before it: whoever is told of a gap goes on after it.
    pub(super) fn gap(&mut self, gap: &Gap) {
        self.shut();
        let frame = ServerFrame::Gap { sub: self.sub, gap: gap.clone() };
        self.made.push(serde_json::to_vec(&frame).unwrap_or_default());
    }

    fn shut(&mut self) {
        if self.in_open > 0 {
            self.open.extend_from_slice(END);
            self.made.push(std::mem::take(&mut self.open));
            self.in_open = 0;
        }
    }

    pub(super) fn finish(mut self) -> Vec<Vec<u8>> {
        self.shut();
        self.made
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::limits::PAYLOAD_BYTES_MAX;
    use promethean_event::{
        EventId, Headers, Key, NewEvent, Offset, Partition, Payload, Tag, Timestamp,
    };

    use super::*;
    use crate::limits::EVENT_FRAME_BYTES_MAX;

    fn event(offset: u64, bytes: usize) -> Event {
        let payload = Payload::parse(format!("\"{}\"", "x".repeat(bytes - 2))).unwrap();
        let now = Timestamp::from_millis(1);
        NewEvent::new(EventId::generate(), now, "a".parse().unwrap(), payload)
            .placed(Partition::new(0), Offset::new(offset))
    }

    fn frames(batch: Option<usize>, events: &[Event]) -> Vec<Vec<u8>> {
        let mut frames = Frames::of(1, batch, Some("g".parse().unwrap()));
        events.iter().for_each(|event| frames.add(event, &Context::default()));
        frames.finish()
    }

    /// A frame was only shut when it was too large already: one of 500 KB and one of 1 MB were a
    /// frame of 1.5 MB.
    #[test]
    fn frames_of_many_are_within_their_limit() {
        for sizes in [
            &[500_000, 600_000][..],
            &[500_000, 1_000_000, 10],
            &[10, 1_000_000, 1_000_000, 10, 400_000, 640_000],
            &[300_000; 20],
        ] {
            let sizes = sizes.iter().zip(0..);
            let events: Vec<Event> = sizes.map(|(bytes, offset)| event(offset, *bytes)).collect();
            let mut seen = Vec::new();
            for frame in frames(Some(100), &events) {
                assert!(frame.len() <= FRAME_BYTES_MAX, "{} bytes", frame.len());
                let frame: serde_json::Value = serde_json::from_slice(&frame).unwrap();
                assert_eq!((&frame["op"], &frame["group"]), (&"EVENTS".into(), &"g".into()));
                let events = frame["events"].as_array().unwrap();
                seen.extend(events.iter().map(|one| one["event"]["offset"].as_u64().unwrap()));
            }
            assert!(seen.into_iter().eq(0..events.len() as u64), "each once, in order");
        }
    }

    #[test]
    fn the_largest_event_has_its_frame() {
        let mut largest = event(u64::MAX >> 1, PAYLOAD_BYTES_MAX);
        largest.key = Key::new("\u{1}".repeat(1_024)).ok().or(Key::new("\"".repeat(1_024)).ok());
        largest.headers = Headers::new();
        for n in 0..31 {
            largest.headers.insert(&format!("x-{n:0>20}"), &"\"".repeat(230)).unwrap();
        }
        largest.tags = (0..32).filter_map(|n| Tag::new(format!("{n:0>128}")).ok()).collect();
        largest.caused_by = vec![EventId::generate(); 32];
        for batch in [None, Some(100)] {
            let made = frames(batch, &[event(0, 10), largest.clone(), event(2, 10)]);
            let bytes: Vec<usize> = made.iter().map(Vec::len).collect();
            assert_eq!(made.len(), 3, "{bytes:?}");
            assert!(bytes[1] > FRAME_BYTES_MAX && bytes[1] <= EVENT_FRAME_BYTES_MAX, "{bytes:?}");
        }
    }
}
