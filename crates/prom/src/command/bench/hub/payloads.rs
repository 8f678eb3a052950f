use crate::command::bench::events::text;

/// Payloads that were made before, so that making them takes no part of the time.
#[derive(Debug)]
pub(super) struct Payloads(Vec<Vec<u8>>);

impl Payloads {
    pub(super) fn new() -> Self {
        Self((0..4_096).map(|number| text(number).into_bytes()).collect())
    }

    pub(super) fn get(&self, number: usize) -> &[u8] {
        self.0.get(number % self.0.len().max(1)).map(Vec::as_slice).unwrap_or_default()
    }
}
