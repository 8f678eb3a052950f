//! What HTTP/1 says about where a request ends, read once more and without mercy. hyper takes a line
//! that ends without a carriage return, a length beside chunks, a length twice, two hosts: something
//! in front of this server may take them for something else, and whoever sends them could slip a
//! request of his own in between those of others. A head that could be read in two ways is made
//! unreadable, so that it is refused and the connection closed.
//!
//! Only looks at heads and at where bodies end; the bytes of bodies are passed over.

use crate::limits::HEAD_BYTES_MAX;

/// Follows the requests of one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    /// The line that is being read.
    line: Vec<u8>,
}

#[derive(Debug)]
enum State {
    Head(Head),
    /// Bytes of a body that are still to come.
    Body(u64),
    ChunkSize,
    /// Bytes of a chunk that are still to come, with the end of its line.
    Chunk(u64),
    Trailers,
    /// No HTTP any more, or nothing that can be followed: hyper refuses it, or has been asked to.
    Opaque,
}

/// What a head has said so far.
#[derive(Debug, Default)]
struct Head {
    /// Whether its first line was there.
    begun: bool,
    lengths: u32,
    length: u64,
    encodings: u32,
    chunked: bool,
    hosts: u32,
    upgrade: bool,
}

/// What a line has led to.
enum Heard {
    Next(State),
    More,
    /// It could be read in two ways.
    Twofold,
}

impl Default for Framing {
    fn default() -> Self {
        Self { state: State::Head(Head::default()), line: Vec::new() }
    }
}

impl Framing {
    /// Looks at bytes that have come, before anybody else does.
    pub(crate) fn look(&mut self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.state {
                State::Opaque => return,
                State::Body(left) | State::Chunk(left) => {
                    let passed = (*left).min(rest.len() as u64);
                    *left -= passed;
                    let is_over = *left == 0;
                    rest = rest.get_mut(passed as usize..).unwrap_or_default();
                    if is_over {
                        self.state = match self.state {
                            State::Chunk(_) => State::ChunkSize,
                            _ => State::Head(Head::default()),
                        };
                    }
                }
                State::Head(_) | State::ChunkSize | State::Trailers => {
                    let end = rest.iter().position(|&byte| byte == b'\n');
                    let taken = end.map_or(rest.len(), |end| end + 1);
                    let (line, behind) = rest.split_at_mut(taken);
                    self.line.extend_from_slice(line);
                    if self.line.len() > HEAD_BYTES_MAX {
                        // hyper has a bound of its own, and says so.
                        self.state = State::Opaque;
                        return;
                    }
                    if end.is_some() && !self.end_line() {
                        // No head and no size of a chunk has this byte in it: all of it is refused.
                        line.last_mut().map(|last| *last = 0).unwrap_or_default();
                        self.state = State::Opaque;
                        return;
                    }
                    rest = behind;
                }
            }
        }
    }

    /// Takes up a line that is whole; false if it could be read in two ways.
    fn end_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let Some(text) = line.strip_suffix(b"\r\n") else {
            return false;
        };
        let heard = match &mut self.state {
            State::Head(head) => head.line(text),
            State::ChunkSize => chunk(text),
            State::Trailers if text.is_empty() => Heard::Next(State::Head(Head::default())),
            _ => Heard::More,
        };
        match heard {
            Heard::Next(state) => self.state = state,
            Heard::More => {}
            Heard::Twofold => return false,
        }
        self.line = line;
        self.line.clear();
        true
    }
}

impl Head {
    fn line(&mut self, line: &[u8]) -> Heard {
        if !self.begun {
            // Empty lines before a request are passed over, as hyper does.
            self.begun = !line.is_empty();
            return Heard::More;
        }
        if line.is_empty() {
            return self.end();
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.lengths += 1;
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            match length {
                Some(length) => self.length = length,
                None => return Heard::Twofold,
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.encodings += 1;
            self.chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        }
        Heard::More
    }

    fn end(&self) -> Heard {
        let is_twofold = self.lengths + self.encodings > 1
            || self.encodings == 1 && !self.chunked
            || self.hosts > 1;
        if is_twofold {
            return Heard::Twofold;
        }
        Heard::Next(match self {
            // What follows is another protocol, if it was agreed to.
            Self { upgrade: true, .. } => State::Opaque,
            Self { chunked: true, .. } => State::ChunkSize,
            Self { length: 0, .. } => State::Head(Self::default()),
            Self { length, .. } => State::Body(*length),
        })
    }
}

/// The size of a chunk; what stands behind a semicolon says nothing.
fn chunk(line: &[u8]) -> Heard {
    let size = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let size = std::str::from_utf8(size).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
    match size {
        Some(0) => Heard::Next(State::Trailers),
        Some(size) => Heard::Next(State::Chunk(size.saturating_add(2))),
        None => Heard::Twofold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of requests that come in pieces of every size.
    fn looked(text: &str) -> Vec<String> {
        let pieces = [1, 2, 3, 7, 64, 100_000];
        let seen = pieces.map(|size| {
            let mut framing = Framing::default();
            let mut bytes = text.as_bytes().to_vec();
            bytes.chunks_mut(size).for_each(|piece| framing.look(piece));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        seen.into()
    }

    const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    #[test]
    fn what_is_plain_is_left_as_it_is() {
        let post = "POST /a HTTP/1.1\r\nHost: a\r\n";
        for first in [
            GET.to_owned(),
            format!("\r\n{GET}"),
            format!("{post}content-length: 0\r\n\r\n"),
            format!("{post}Content-Length: 3\r\n\r\na\nb"),
            format!("{post}transfer-encoding: Chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n"),
            format!("{post}transfer-encoding: chunked\r\n\r\n2;x=y\r\n\n\n\r\n0\r\nx-a: b\r\n\r\n"),
        ] {
            let all = format!("{first}{GET}{first}");
            assert!(looked(&all).iter().all(|seen| *seen == all), "{all:?}: {:?}", looked(&all));
            // It knows where each of them ends: what follows is a head again.
            let bad = format!("{first}GET / HTTP/1.1\nhost: a\r\n\r\n");
            let refused = format!("{first}GET / HTTP/1.1\0host: a\r\n\r\n");
            assert!(looked(&bad).iter().all(|seen| *seen == refused), "{:?}", looked(&bad));
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_unreadable() {
        for lines in [
            "content-length: 1\r\ntransfer-encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 1",
            "content-length: 1\r\ncontent-length: 1",
            "content-length: 1, 1",
            "content-length: x",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            "transfer-encoding: gzip",
            "host: b",
            "x-a: b\nx-c: d",
        ] {
            let text = format!("POST / HTTP/1.1\r\nhost: a\r\n{lines}\r\n\r\n1{GET}");
            for seen in looked(&text) {
                assert_eq!(seen.matches('\0').count(), 1, "{lines:?}: {seen:?}");
            }
        }
        let sizes =
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1\n1\r\n0\r\n\r\n";
        assert!(looked(sizes).iter().all(|seen| seen.contains('\0')));
    }

    /// Frames of a WebSocket have line ends wherever they like.
    #[test]
    fn another_protocol_is_none_of_its_business() {
        let text = "GET /ws HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n\r\n\n\n\n";
        assert!(looked(text).iter().all(|seen| seen == text));
    }
}
