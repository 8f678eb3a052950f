//! Files that were given, and what is said of those that are not usable.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use promethean_schema::Document;
use promethean_schema::limits::SCHEMA_BYTES_MAX;

use crate::failure::Failure;

/// What was given is not usable: exit code 2.
pub(super) fn bad(error: impl Into<anyhow::Error>) -> anyhow::Error {
    Failure::usage(format!("{:#}", error.into())).into()
}

/// Largest file of payloads, in bytes.
pub(super) const PAYLOAD_FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The text of a file, or of standard input for `-`, within a limit.
pub(super) fn read_text(path: &Path, bytes_max: usize) -> anyhow::Result<String> {
    let shown = path.display();
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("cannot open {shown}"));
        Box::new(file.map_err(bad)?)
    };
    let mut bytes = Vec::new();
    let read = source.take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {shown}")).map_err(bad)?;
    if bytes.len() > bytes_max {
        return Err(bad(anyhow::anyhow!("{shown} has more than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).with_context(|| format!("{shown} is not UTF-8")).map_err(bad)
}

/// The schema in a file.
pub(super) fn read_schema(path: &Path) -> anyhow::Result<Document> {
    let text = read_text(path, SCHEMA_BYTES_MAX)?;
    parse_schema(&text, &path.display().to_string())
}

/// A schema that was read from somewhere.
pub(super) fn parse_schema(text: &str, place: &str) -> anyhow::Result<Document> {
    Document::parse(text).map_err(|error| bad(anyhow::anyhow!("{place}: {error}")))
}
