use promethean_delivery::{Ack, Span, Token};

/// Acks of deliveries, those that came for the first time put together to ranges: a group decides
/// a range at once.
#[derive(Debug, Default)]
pub(super) struct AckRanges {
    items: Vec<Ack>,
    events: usize,
}

impl AckRanges {
    /// Adds an event; gives how many there are.
    pub(super) fn add(&mut self, token: Token) -> usize {
        self.events += 1;
        let Token { lane, offset, epoch, attempt, round } = token;
        if (attempt, round) != (1, 0) {
            self.items.push(Ack::Token(token));
            return self.events;
        }
        match self.items.last_mut() {
            Some(Ack::FirstAttempts { lane: of, epoch: at, span })
                if (*of, *at, span.to) == (lane, epoch, offset) =>
            {
                span.to += 1;
            }
            _ => {
                let span = Span { from: offset, to: offset + 1 };
                self.items.push(Ack::FirstAttempts { lane, epoch, span });
            }
        }
        self.events
    }

    /// All of them; none are left.
    pub(super) fn take(&mut self) -> Vec<Ack> {
        self.events = 0;
        std::mem::take(&mut self.items)
    }
}
