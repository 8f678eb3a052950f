use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// How results are shown: text for people, JSON for programs. Results go to standard output,
/// everything else to standard error.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Shows a result: as one JSON document, or as the text that `text` makes of it.
    pub(crate) fn result<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let shown = if self.json { serde_json::to_string_pretty(value)? } else { text(value) };
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{}", shown.trim_end()).and_then(|()| stdout.flush()) {
            // Whoever read it has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// Tells a person how far a long piece of work has come.
    pub(crate) fn progress(&self, text: &str) {
        if !self.json || io::stderr().is_terminal() {
            // A server goes on when nobody reads any more what it says.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    pub(crate) fn failure(&self, error: &anyhow::Error) {
        if self.json {
            let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
            eprintln!(
                "{}",
                serde_json::json!({ "title": chain.first(), "detail": chain.join(": ") })
            );
        } else {
            eprintln!("error: {error:#}");
        }
    }
}

/// A number with its thousands set apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Bytes in the unit that reads best.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let unit = UNITS.get(unit).unwrap_or(&"B");
    if value < 10.0 && *unit != "B" {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}
