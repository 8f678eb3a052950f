//! What a literal says once its escapes are read.

/// The text of an escaped literal, as JavaScript, Rust and Python agree on it. What is not a known
/// escape stays as it is written.
pub(super) fn unescaped(raw: &str) -> String {
    if !raw.contains('\\') {
        return raw.to_owned();
    }
    let mut text = String::with_capacity(raw.len());
    let mut letters = raw.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('0') => text.push('\0'),
            Some('\n') => continued(&mut letters),
            Some('x') => text.extend(by_number(&mut letters, 2)),
            Some('u') => text.extend(by_number(&mut letters, 4)),
            Some(other) => text.push(other),
            None => text.push('\\'),
        }
    }
    text
}

/// After a backslash at the end of a line: the text goes on where the next line begins.
fn continued(letters: &mut std::str::Chars<'_>) {
    while letters.as_str().starts_with([' ', '\t']) {
        letters.next();
    }
}

/// `\x41`, `\u0041` and `\u{41}`.
fn by_number(letters: &mut std::str::Chars<'_>, digits: usize) -> Option<char> {
    let rest = letters.as_str();
    let (number, used) = match rest.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
        Some((number, _)) => (number, number.len() + 2),
        None => (rest.get(..digits)?, digits),
    };
    let value = u32::from_str_radix(number, 16).ok().and_then(char::from_u32);
    *letters = rest.get(used..)?.chars();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_escapes() {
        assert_eq!(unescaped(r"heartbeat\.received"), "heartbeat.received");
        assert_eq!(unescaped(r"a\x2eb\u002ec\u{2e}d\n"), "a.b.c.d\n");
        assert_eq!(unescaped("a.\\\n    b"), "a.b");
        assert_eq!(unescaped(r"\u{zz}\x"), "");
    }
}
