//! JSON pointers (RFC 6901), and the line of a document a pointer leads to.

/// `parent` and one more step.
pub(crate) fn child(parent: &str, step: &str) -> String {
    format!("{parent}/{}", escape(step))
}

/// One step as it is written in a pointer.
pub(crate) fn escape(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

/// One written step as it is meant.
pub(crate) fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// The steps of a pointer.
pub(crate) fn steps(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(unescape)
}

/// Undoes percent escapes, as a pointer in a URI fragment has them.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let pair = rest.as_slice_pair().filter(|_| byte == b'%');
        match pair.and_then(|(high, low)| Some(hex(high)? * 16 + hex(low)?)) {
            Some(decoded) => {
                bytes.push(decoded);
                rest.nth(1);
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The next two bytes, without taking them.
trait Lookahead {
    fn as_slice_pair(&self) -> Option<(u8, u8)>;
}

impl Lookahead for std::str::Bytes<'_> {
    fn as_slice_pair(&self) -> Option<(u8, u8)> {
        let mut ahead = self.clone();
        Some((ahead.next()?, ahead.next()?))
    }
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The line (from 1) on which the value that `pointer` names begins, or its key if it has one.
///
/// The text is scanned once and only when a finding is reported. If the pointer leads nowhere, the
/// line of its last existing ancestor is given.
pub(crate) fn line_of(text: &str, pointer: &str) -> usize {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0 };
    scan.blank();
    let mut offset = scan.at;
    for step in steps(pointer) {
        match scan.enter(&step) {
            Some(place) => offset = place,
            None => break,
        }
    }
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A walk over JSON text that is known to be well formed.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blank(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Goes to the member or item `step` of the value here; gives where its key or value begins.
    fn enter(&mut self, step: &str) -> Option<usize> {
        let object = self.peek()? == b'{';
        if !object && self.peek()? != b'[' {
            return None;
        }
        self.at += 1;
        let mut index = 0_usize;
        loop {
            self.blank();
            let place = self.at;
            if matches!(self.peek()?, b'}' | b']') {
                return None;
            }
            let hit = if object {
                let key = self.text()?;
                self.blank();
                self.at += 1;
                self.blank();
                key == step
            } else {
                index.to_string() == step
            };
            if hit {
                return Some(place);
            }
            self.skip()?;
            self.blank();
            if self.peek()? == b',' {
                self.at += 1;
            }
            index += 1;
        }
    }

    /// Reads a string.
    fn text(&mut self) -> Option<String> {
        let start = self.at;
        self.skip_text()?;
        serde_json::from_slice(self.bytes.get(start..self.at)?).ok()
    }

    fn skip_text(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                _ => self.at += 1,
            }
        }
    }

    /// Skips a value: brackets are counted, strings are stepped over.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => self.skip_text()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => return Some(()),
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' if depth == 0 => return Some(()),
                _ => self.at += 1,
            }
            if depth == 0 {
                self.blank();
                if matches!(self.peek()?, b',' | b'}' | b']') {
                    return Some(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_its_line() {
        let text = "{\n  \"a\": [1,\n    {\"b/c\": \"}\\\"\"}\n  ],\n  \"x~y\": null\n}";
        assert_eq!(line_of(text, ""), 1);
        assert_eq!(line_of(text, "/a"), 2);
        assert_eq!(line_of(text, "/a/0"), 2);
        assert_eq!(line_of(text, "/a/1"), 3);
        assert_eq!(line_of(text, "/a/1/b~1c"), 3);
        assert_eq!(line_of(text, "/x~0y"), 5);
        assert_eq!(line_of(text, "/a/7/q"), 2, "the last ancestor that exists");
    }

    #[test]
    fn percent_escapes_are_undone() {
        assert_eq!(percent_decode("/a%25b%7E1c%"), "/a%b~1c%");
    }
}
