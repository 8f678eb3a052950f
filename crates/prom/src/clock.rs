//! What time it is, and where: the one place that asks the machine.

use jiff::Zoned;
use promethean_event::Timestamp;

/// Now, in the time zone of whoever sits here.
pub(crate) fn now() -> Zoned {
    Zoned::now()
}

/// Now, as events carry it.
pub(crate) fn timestamp() -> Timestamp {
    let millis = now().timestamp().as_millisecond();
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}
