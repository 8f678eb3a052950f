//! What all servers are asked to do, in their own words.

/// A server that keeps events and delivers them to groups.
pub(super) trait Hub: Send + Sync {
    /// How it goes by in the report.
    fn name(&self) -> &'static str;
    /// Makes a topic, or whatever is its like.
    fn make(&self, topic: &str) -> anyhow::Result<()>;
    /// One who publishes; `batch` events go together where the protocol has a word for it.
    fn publisher(&self, topic: &str, batch: usize) -> anyhow::Result<Box<dyn Publisher>>;
    /// One who takes the events of a topic for a group, from the first, and acks each.
    fn consumer(&self, topic: &str, group: &str) -> anyhow::Result<Box<dyn Consumer>>;
}

/// One connection that publishes.
pub(super) trait Publisher: Send {
    /// Adds an event to what is to go.
    fn put(&mut self, payload: &[u8]);
    fn flush(&mut self) -> anyhow::Result<()>;
    /// Waits for answers; of how many events.
    fn answered(&mut self) -> anyhow::Result<usize>;
}

/// One connection that consumes.
pub(super) trait Consumer: Send {
    /// Waits for events, shows them, and sends their acks; how many they were.
    fn take(&mut self, each: &mut dyn FnMut(&[u8])) -> anyhow::Result<usize>;
    /// Waits until the server has done what the acks asked for.
    fn settle(&mut self) -> anyhow::Result<()>;
}
