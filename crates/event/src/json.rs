//! One pass over JSON text: is it JSON, within the limits, and is there white space to take out?
//! Values are never built, so that numbers keep their spelling and members their order.

use crate::limits::{JSON_DEPTH_MAX, JSON_MEMBERS_MAX, PAYLOAD_BYTES_MAX};

/// Why bytes are not a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON (RFC 8259).
    #[error("payload is not JSON: {reason} at byte {at}")]
    Syntax {
        /// What is wrong.
        reason: &'static str,
        /// Where.
        at: usize,
    },
    /// Not UTF-8.
    #[error("payload is not UTF-8 at byte {at}")]
    Utf8 {
        /// Where.
        at: usize,
    },
    /// Nested too deeply.
    #[error("payload is nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
    /// Too many object members.
    #[error("payload has more than {JSON_MEMBERS_MAX} object members")]
    TooManyMembers,
    /// Too large.
    #[error("payload of {0} bytes is too large; {PAYLOAD_BYTES_MAX} bytes at most")]
    TooLarge(usize),
    /// A value that has no JSON form (from a serializer).
    #[error("value has no JSON form: {0}")]
    NoJsonForm(String),
}

/// Checks `text`, and says whether it holds white space between tokens.
pub(crate) fn check(text: &str) -> Result<Spacing, JsonError> {
    let mut scan = Scan::new(text);
    scan.space();
    scan.value(0)?;
    scan.space();
    if scan.at < scan.bytes.len() {
        return Err(scan.wrong("something follows the value"));
    }
    Ok(if scan.spaces == 0 { Spacing::Compact } else { Spacing::Spaced })
}

/// The place of the next quote, backslash or control character, or the end. Most of a payload is in
/// strings: eight bytes are looked at together.
fn plain_end(bytes: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    let mut at = from;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let eight = u64::from_le_bytes(*eight);
        // The top bit of a byte is set where it is found. Bytes above it may be wrong, those below
        // are not: only the lowest counts.
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let quote = zero(eight ^ (ONES * u64::from(b'"')));
        let escape = zero(eight ^ (ONES * u64::from(b'\\')));
        let control = eight.wrapping_sub(ONES * 0x20) & !eight;
        let found = (quote | escape | control) & TOPS;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    at + rest.iter().position(ends).unwrap_or(rest.len())
}

/// Whether JSON text has white space between its tokens.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    Compact,
    Spaced,
}

/// `text`, which is JSON, without the white space between its tokens.
pub(crate) fn compact(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for byte in text.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            continue;
        } else {
            in_string = byte == b'"';
        }
        out.push(byte);
    }
    out
}

/// A place in JSON text, which moves on over what is there.
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    spaces: usize,
    members: u32,
}

/// A value that was passed over: where it stands, and whether it has white space in it.
pub(crate) struct Passed {
    pub(crate) range: std::ops::Range<usize>,
    pub(crate) spacing: Spacing,
}

impl<'a> Scan<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0, spaces: 0, members: 0 }
    }

    /// Passes a token of one byte, and the white space behind it, if it is there.
    pub(crate) fn take(&mut self, token: u8) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.at += 1;
            self.space();
        }
        found
    }

    /// Passes a string without escapes, and the white space behind it: what is between its quotes.
    pub(crate) fn plain_string(&mut self) -> Option<&'a [u8]> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let begin = self.at + 1;
        self.at = plain_end(self.bytes, begin);
        let inside = self.bytes.get(begin..self.at)?;
        self.take(b'"').then_some(inside)
    }

    /// Passes a value that is within the limits of a payload, and the white space behind it.
    pub(crate) fn pass(&mut self) -> Option<Passed> {
        let begin = self.at;
        (self.spaces, self.members) = (0, 0);
        self.value(0).ok()?;
        let spacing = if self.spaces == 0 { Spacing::Compact } else { Spacing::Spaced };
        let range = begin..self.at;
        self.space();
        Some(Passed { range, spacing })
    }

    /// Passes white space; whether that was the end.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.space();
        self.at == self.bytes.len()
    }

    fn wrong(&self, reason: &'static str) -> JsonError {
        JsonError::Syntax { reason, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
            self.spaces += 1;
        }
    }

    fn value(&mut self, depth: u32) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true"),
            Some(b'f') => self.word(b"false"),
            Some(b'n') => self.word(b"null"),
            Some(_) => Err(self.wrong("a value was expected")),
            None => Err(self.wrong("it ends too early")),
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), JsonError> {
        if self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(());
        }
        Err(self.wrong("a value was expected"))
    }

    fn array(&mut self, depth: u32) -> Result<(), JsonError> {
        self.open(depth)?;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth)?;
            if self.more(b']')? {
                return Ok(());
            }
        }
    }

    fn object(&mut self, depth: u32) -> Result<(), JsonError> {
        self.open(depth)?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.members += 1;
            if self.members > JSON_MEMBERS_MAX {
                return Err(JsonError::TooManyMembers);
            }
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a member name was expected"));
            }
            self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.wrong("':' was expected"));
            }
            self.at += 1;
            self.space();
            self.value(depth)?;
            if self.more(b'}')? {
                return Ok(());
            }
        }
    }

    fn open(&mut self, depth: u32) -> Result<(), JsonError> {
        if depth > JSON_DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        self.at += 1;
        self.space();
        Ok(())
    }

    /// After a value inside brackets: true at the closing one, false after a comma.
    fn more(&mut self, close: u8) -> Result<bool, JsonError> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.space();
                Ok(false)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Err(self.wrong("',' or a closing bracket was expected")),
            None => Err(self.wrong("it ends too early")),
        }
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            self.at = plain_end(self.bytes, self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.wrong("a control character in a string")),
                None => return Err(self.wrong("a string does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => self.unicode_escape(),
            _ => Err(self.wrong("a bad escape in a string")),
        }
    }

    /// A lone surrogate has no UTF-8 form, so that readers in most languages would choke on it.
    fn unicode_escape(&mut self) -> Result<(), JsonError> {
        match self.code_unit()? {
            0xdc00..=0xdfff => Err(self.wrong("half of a surrogate pair")),
            0xd800..=0xdbff => {
                if self.bytes.get(self.at..self.at + 2) != Some(b"\\u") {
                    return Err(self.wrong("half of a surrogate pair"));
                }
                self.at += 1;
                match self.code_unit()? {
                    0xdc00..=0xdfff => Ok(()),
                    _ => Err(self.wrong("half of a surrogate pair")),
                }
            }
            _ => Ok(()),
        }
    }

    /// `uXXXX`, at the `u`.
    fn code_unit(&mut self) -> Result<u16, JsonError> {
        self.at += 1;
        let digits = self.bytes.get(self.at..self.at + 4);
        let hex = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let text = hex.and_then(|digits| std::str::from_utf8(digits).ok());
        let unit = text.and_then(|text| u16::from_str_radix(text, 16).ok());
        let unit = unit.ok_or_else(|| self.wrong("a bad escape in a string"))?;
        self.at += 4;
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.wrong("a digit was expected")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(check(&nested(64)).is_ok());
        assert_eq!(check(&nested(65)), Err(JsonError::TooDeep));
        assert_eq!(check(&"[".repeat(100_000)), Err(JsonError::TooDeep));
        let members = |count: usize| format!("{{{}}}", vec!["\"a\":1"; count].join(","));
        assert!(check(&members(10_000)).is_ok());
        assert_eq!(check(&members(10_001)), Err(JsonError::TooManyMembers));
    }

    #[test]
    fn strings_that_have_no_utf8_form_are_refused() {
        assert!(check(r#""\ud83d\ude00""#).is_ok());
        for bad in
            [r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx""#, r#""\ud83d\u0041""#, r#""\u00g0""#]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    fn json_like() -> impl Strategy<Value = String> {
        let token = prop_oneof![
            "[\\[\\]{},:]",
            " |\n|\t",
            "true|false|null|tru|nul",
            "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
            "\"[a-z \\\\\"/ub]{0,5}\"",
            "\"[a-zé]{0,4}\"",
            "01|1\\.|-|\\.5|\\+1|NaN",
        ];
        proptest::collection::vec(token, 0..14).prop_map(|tokens| tokens.concat())
    }

    fn valid_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::vec((".*", inner), 0..6).prop_map(|members| {
                    serde_json::Value::Object(members.into_iter().collect())
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn agrees_with_serde_on_what_is_json(text in json_like()) {
            let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            // Serde refuses numbers beyond an f64; their spelling is fine with us.
            prop_assume!(theirs || serde_json::from_str::<&serde_json::value::RawValue>(&text).is_err());
            prop_assert_eq!(check(&text).is_ok(), theirs, "{}", text);
        }

        #[test]
        fn plain_text_ends_at_the_first_byte_that_is_not(
            text in "[a-z\"\\\\\u{1}\u{1f}\u{20}\u{7f}\u{80}\u{e9}\u{ffff}]{0,40}",
            from in 0..40_usize,
        ) {
            let bytes = text.as_bytes();
            let from = from.min(bytes.len());
            let ends = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
            let wanted = bytes[from..].iter().position(ends).map_or(bytes.len(), |at| from + at);
            prop_assert_eq!(plain_end(bytes, from), wanted);
        }

        #[test]
        fn compacting_changes_white_space_only(value in valid_json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let tight = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(check(&tight), Ok(Spacing::Compact));
            prop_assert_eq!(String::from_utf8(compact(&pretty)).unwrap(), tight);
        }
    }
}
