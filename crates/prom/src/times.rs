//! Times as people write them; how they are written is the gateway's to say, so that an address
//! takes what a command takes.

pub(crate) use promethean_gateway::times::{
    DurationError, TimeError, TimelessId, When, duration, parse,
};

use crate::clock;
use crate::output::Output;

/// A time that was given, in milliseconds of the epoch; what was understood is said, after a word
/// that says what it is for.
pub(crate) fn told(word: &str, text: Option<&str>, output: &Output) -> anyhow::Result<Option<u64>> {
    let Some(text) = text else { return Ok(None) };
    let now = clock::now();
    let moment = parse(text, &now)?.moment(&now)?;
    output.progress(&format!("{word} {}", moment.said));
    Ok(Some(moment.millis))
}

/// A time of day, with the day if it was not today.
pub(crate) fn moment(millis: u64) -> String {
    let now = clock::now();
    let at = i64::try_from(millis).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let Some(at) = at.map(|at| at.to_zoned(now.time_zone().clone())) else {
        return millis.to_string();
    };
    let form = if at.date() == now.date() { "%H:%M:%S" } else { "%a %d %b %H:%M:%S" };
    at.strftime(form).to_string()
}
