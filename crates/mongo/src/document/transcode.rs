//! From JSON to BSON in one pass, without anything in between, for text that is spelled as it would be
//! printed: most of it is. What is spelled otherwise, or may not be BSON at all, is for whoever is slower
//! and looks closer.

use mongodb::bson::raw::RawDocumentBuf;

/// Members of an object whose names are held against each other one by one.
const MEMBERS_MAX: usize = 24;

/// Kinds of values, as BSON numbers them.
mod kind {
    pub(super) const DOUBLE: u8 = 0x01;
    pub(super) const STRING: u8 = 0x02;
    pub(super) const DOCUMENT: u8 = 0x03;
    pub(super) const ARRAY: u8 = 0x04;
    pub(super) const BOOLEAN: u8 = 0x08;
    pub(super) const NULL: u8 = 0x0a;
    pub(super) const INT32: u8 = 0x10;
    pub(super) const INT64: u8 = 0x12;
}

/// The document of an object that the same text would be printed from; `None` if that cannot be told
/// here. The text is JSON without spaces, as payloads are.
pub(super) fn document_of(text: &str) -> Option<RawDocumentBuf> {
    let mut pass = Pass { text, at: 0, out: Vec::with_capacity(text.len() + text.len() / 2) };
    pass.expect(b'{')?;
    pass.object()?;
    if pass.at != text.len() {
        return None;
    }
    RawDocumentBuf::from_bytes(pass.out).ok()
}

struct Pass<'a> {
    text: &'a str,
    at: usize,
    out: Vec<u8>,
}

impl<'a> Pass<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn expect_word(&mut self, word: &str) -> Option<()> {
        self.text.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    /// Makes room for the length of what follows.
    fn begin(&mut self) -> usize {
        let begin = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        begin
    }

    /// Ends a document or an array, which counts its length in.
    fn end(&mut self, begin: usize) -> Option<()> {
        self.out.push(0);
        let length = i32::try_from(self.out.len() - begin).ok()?;
        self.out.get_mut(begin..begin + 4)?.copy_from_slice(&length.to_le_bytes());
        Some(())
    }

    /// What follows the brace.
    fn object(&mut self) -> Option<()> {
        let begin = self.begin();
        let mut names: [&str; MEMBERS_MAX] = [""; MEMBERS_MAX];
        let mut members = 0;
        if self.expect(b'}').is_none() {
            loop {
                self.expect(b'"')?;
                let name = self.plain()?;
                // What begins with a dollar is an operator to servers and drivers.
                if name.starts_with('$') || names.get(..members)?.contains(&name) {
                    return None;
                }
                *names.get_mut(members)? = name;
                members += 1;
                self.expect(b':')?;
                self.value(name.as_bytes())?;
                match self.peek()? {
                    b',' => self.at += 1,
                    _ => break self.expect(b'}')?,
                }
            }
        }
        self.end(begin)
    }

    /// What follows the bracket.
    fn array(&mut self) -> Option<()> {
        let begin = self.begin();
        let mut items = 0_u32;
        if self.expect(b']').is_none() {
            loop {
                let mut digits = [0; 10];
                self.value(spelled(items, &mut digits))?;
                items = items.checked_add(1)?;
                match self.peek()? {
                    b',' => self.at += 1,
                    _ => break self.expect(b']')?,
                }
            }
        }
        self.end(begin)
    }

    fn name(&mut self, kind: u8, name: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(name);
        self.out.push(0);
    }

    fn value(&mut self, name: &[u8]) -> Option<()> {
        match self.peek()? {
            b'{' => {
                self.at += 1;
                self.name(kind::DOCUMENT, name);
                self.object()
            }
            b'[' => {
                self.at += 1;
                self.name(kind::ARRAY, name);
                self.array()
            }
            b'"' => {
                self.at += 1;
                self.name(kind::STRING, name);
                self.string()
            }
            b't' => {
                self.name(kind::BOOLEAN, name);
                self.out.push(1);
                self.expect_word("true")
            }
            b'f' => {
                self.name(kind::BOOLEAN, name);
                self.out.push(0);
                self.expect_word("false")
            }
            b'n' => {
                self.name(kind::NULL, name);
                self.expect_word("null")
            }
            _ => self.number(name),
        }
    }

    /// Text up to the quote that ends it, without anything that is escaped.
    fn plain(&mut self) -> Option<&'a str> {
        let rest = self.text.get(self.at..)?;
        let length = rest.bytes().position(is_special)?;
        if rest.as_bytes().get(length) != Some(&b'"') {
            return None;
        }
        self.at += length + 1;
        rest.get(..length)
    }

    /// A string's value, its quote passed.
    fn string(&mut self) -> Option<()> {
        let begin = self.begin();
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let length = rest.iter().position(|byte| is_special(*byte))?;
            self.out.extend_from_slice(rest.get(..length)?);
            self.at += length + 1;
            match *rest.get(length)? {
                b'"' => break,
                b'\\' => {
                    // By those that are printed again. What may be spelled in two ways is not for here.
                    let byte = match *rest.get(length + 1)? {
                        b'"' => b'"',
                        b'\\' => b'\\',
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 0x08,
                        b'f' => 0x0c,
                        _ => return None,
                    };
                    self.out.push(byte);
                    self.at += 1;
                }
                _ => return None,
            }
        }
        self.out.push(0);
        let length = i32::try_from(self.out.len() - begin - 4).ok()?;
        self.out.get_mut(begin..begin + 4)?.copy_from_slice(&length.to_le_bytes());
        Some(())
    }

    fn number(&mut self, name: &[u8]) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let is_of_it =
            |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.bytes().position(|byte| !is_of_it(byte)).unwrap_or(rest.len());
        let spelling = rest.get(..length)?;
        self.at += length;
        if spelling.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            let digits = spelling.strip_prefix('-').unwrap_or(spelling);
            // Not as it would be printed: a zero with a sign, or in front.
            if digits.starts_with('0') && length > 1 {
                return None;
            }
            let number: i64 = spelling.parse().ok()?;
            if let Ok(number) = i32::try_from(number) {
                self.name(kind::INT32, name);
                self.out.extend_from_slice(&number.to_le_bytes());
            } else {
                self.name(kind::INT64, name);
                self.out.extend_from_slice(&number.to_le_bytes());
            }
            return Some(());
        }
        let number: f64 = spelling.parse().ok().filter(|number: &f64| number.is_finite())?;
        let begin = self.out.len();
        serde_json::to_writer(&mut self.out, &number).ok()?;
        let is_exact = self.out.get(begin..)? == spelling.as_bytes();
        self.out.truncate(begin);
        self.name(kind::DOUBLE, name);
        self.out.extend_from_slice(&number.to_le_bytes());
        is_exact.then_some(())
    }
}

/// What ends a piece of a string. Nothing below a space stands in JSON unescaped.
const fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1f)
}

/// The number of an item, as BSON names it.
fn spelled(number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let (mut rest, mut at) = (number, digits.len());
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        at -= 1;
        if rest == 0 {
            break;
        }
    }
    digits.get(at..).unwrap_or_default()
}
