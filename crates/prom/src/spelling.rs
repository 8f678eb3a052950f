//! What somebody may have meant.

/// The name that is spelt most like what was written, if one is like it at all.
pub(crate) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let distances =
        known.into_iter().map(|name| (strsim::damerau_levenshtein(written, name), name));
    distances.filter(|(distance, name)| *distance <= name.len().max(3) / 3).min().map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_like_it_is_guessed() {
        let known = ["orders.placed", "orders.paid", "heartbeat.received"];
        assert_eq!(nearest("ordes.placed", known), Some("orders.placed"));
        assert_eq!(nearest("heartbeat.recieved", known), Some("heartbeat.received"));
        assert_eq!(nearest("payments", known), None);
    }
}
