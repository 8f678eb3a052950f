//! Events by the end of their id, which is what `prom tail` shows a person.

use std::collections::BTreeSet;
use std::str::FromStr;

use promethean_event::EventId;
use serde::Deserialize;

use super::Status;
use crate::clock;
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::{Ask, Reach};

/// An id, or its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShortId {
    Whole(EventId),
    End(String),
}

/// Fewer characters would be the end of too many ids.
const CHARACTERS_MIN: usize = 4;
/// So far back the end of an id is looked for: what a person has just seen.
const LOOK_BACK_MS: u64 = 24 * 60 * 60 * 1000;

impl FromStr for ShortId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.trim_start_matches('…').to_lowercase();
        if let Ok(id) = end.parse() {
            return Ok(Self::Whole(id));
        }
        let is_part = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if end.len() < CHARACTERS_MIN || end.len() >= 36 || !end.bytes().all(is_part) {
            return Err(format!(
                "write it as 8-4-4-4-12 hexadecimal digits, or its end, of {CHARACTERS_MIN} at least"
            ));
        }
        Ok(Self::End(end))
    }
}

#[derive(Deserialize)]
struct Page {
    events: Vec<Found>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Found {
    id: EventId,
}

impl ShortId {
    /// The id that is meant. An end is looked for among the events of the last day.
    pub(super) async fn find(&self, reach: &Reach, output: &Output) -> anyhow::Result<EventId> {
        let end = match self {
            Self::Whole(id) => return Ok(*id),
            Self::End(end) => end,
        };
        let since = clock::timestamp().millis().saturating_sub(LOOK_BACK_MS);
        let ask = Ask::get("/replay")
            .query("topic", Some("**"))
            .query("from", Some(since))
            .query("filter", Some(format!("id.endsWith(\"{end}\")")));
        let mut found: BTreeSet<EventId> = BTreeSet::new();
        let (mut after, mut is_first) = (None, true);
        loop {
            let page: Page = reach.json(ask.clone().query("after", after)).await?;
            found.extend(page.events.into_iter().map(|event| event.id));
            after = page.next;
            if after.is_none() || found.len() > 1 {
                break;
            }
            if is_first {
                // A server looks for seconds before it says where to go on.
                output.progress("looking through the events of the last day");
                is_first = false;
            }
        }
        let mut found = found.into_iter();
        match (found.next(), found.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => {
                let what = format!("no event of the last day has an id that ends with {end}");
                let hint = "give the whole id for older ones; `prom tail … | cat` shows them";
                Err(Failure::new(Status::NotFound, what).hint(hint).into())
            }
            (Some(one), Some(other)) => {
                let what = format!("several events have ids that end with {end}");
                let hint = format!("give more of it: {one} or {other}, for instance");
                Err(Failure::usage(what).hint(hint).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_their_ends() {
        let id = EventId::generate();
        assert_eq!(id.to_string().parse(), Ok(ShortId::Whole(id)));
        assert_eq!("…9F3AC1".parse(), Ok(ShortId::End("9f3ac1".to_owned())));
        assert_eq!("b9e5-3898".parse(), Ok(ShortId::End("b9e5-3898".to_owned())));
        for wrong in ["", "…", "abc", "nothing", "9f3ac1\"", &format!("{id}0")] {
            assert!(wrong.parse::<ShortId>().is_err(), "{wrong}");
        }
    }
}
