//! A connection that blocks, with buffers: what every client of the comparison stands on, so that
//! none of them costs more than another.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

/// A server that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    /// What came; read up to `from`.
    come: Vec<u8>,
    from: usize,
    /// What is read into.
    room: Vec<u8>,
    /// What is to go.
    pub(super) out: Vec<u8>,
}

impl Wire {
    pub(super) fn connect(at: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(at).with_context(|| format!("cannot reach {at}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let room = vec![0; READ_BYTES];
        Ok(Self { stream, come: Vec::new(), from: 0, room, out: Vec::new() })
    }

    /// Sends what is to go, in as few writes as possible.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// What came and is not read yet.
    pub(super) fn come(&self) -> &[u8] {
        self.come.get(self.from..).unwrap_or_default()
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.from += bytes;
    }

    /// Waits for more.
    pub(super) fn more(&mut self) -> anyhow::Result<()> {
        // What was read is dropped here, once for all of it.
        self.come.drain(..self.from.min(self.come.len()));
        self.from = 0;
        let read = self.stream.read(&mut self.room).context("the server says nothing")?;
        self.come.extend_from_slice(self.room.get(..read).unwrap_or_default());
        if read == 0 {
            bail!("the server has closed the connection");
        }
        Ok(())
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(end) = find(self.come(), b"\r\n") {
                let line = self.come().get(..end).unwrap_or_default().to_vec();
                self.advance(end + 2);
                return Ok(line);
            }
            self.more()?;
        }
    }
}

/// Where `wanted` begins in `text`.
pub(super) fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, wanted)
}
