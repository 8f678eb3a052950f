use tokio::time::Instant;

/// When a session has to do something although nothing happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    /// It must have said who it is.
    pub(super) auth: Option<Instant>,
    /// Its credential ends.
    pub(super) expiry: Option<Instant>,
    /// It is closed, since its credential ended a while ago.
    pub(super) expired: Option<Instant>,
    /// It is asked whether it lives.
    pub(super) ping: Instant,
    /// It is closed, since nothing was heard.
    pub(super) idle: Instant,
    /// It is closed, since the server stops.
    pub(super) drained: Option<Instant>,
    /// The client's Close is read, whether all before it was answered or not.
    pub(super) farewell: Option<Instant>,
    /// A subscription may go on that was faster than its rates allow.
    pub(super) paced: Option<Instant>,
}

impl Deadlines {
    pub(super) fn next(&self) -> Instant {
        let may_be =
            [self.auth, self.expiry, self.expired, self.drained, self.farewell, self.paced];
        let always = [self.ping, self.idle];
        may_be.into_iter().flatten().chain(always).min().unwrap_or(self.ping)
    }
}
