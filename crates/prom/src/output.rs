use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// How results are shown. Results go to standard output, everything else to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For people: what a terminal gets.
    Text,
    /// One JSON object on each line: what a pipe gets.
    Lines,
    /// One JSON document: what `--json` asks for. Streams are lines still.
    Document,
}

#[derive(Debug)]
pub(crate) struct Output {
    form: Form,
    quiet: bool,
    paint: Paint,
    aside: Paint,
}

/// What the user said about the output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes {
    pub(crate) json: bool,
    pub(crate) text: bool,
    pub(crate) no_color: bool,
    pub(crate) quiet: bool,
}

impl Output {
    pub(crate) fn new(wishes: Wishes) -> Self {
        let on_terminal = io::stdout().is_terminal();
        let aside = Paint::new(wishes.no_color, io::stderr().is_terminal());
        let form = match wishes {
            Wishes { json: true, .. } => Form::Document,
            Wishes { text: true, .. } => Form::Text,
            _ if on_terminal => Form::Text,
            _ => Form::Lines,
        };
        let paint = Paint::new(wishes.no_color, on_terminal);
        Self { form, quiet: wishes.quiet, paint, aside }
    }

    /// Whether one JSON document was asked for.
    pub(crate) const fn is_document(&self) -> bool {
        matches!(self.form, Form::Document)
    }

    pub(crate) const fn is_text(&self) -> bool {
        matches!(self.form, Form::Text)
    }

    /// Colours for standard output.
    pub(crate) const fn paint(&self) -> Paint {
        self.paint
    }

    /// Colours for standard error, which may go elsewhere than standard output.
    pub(crate) const fn aside(&self) -> Paint {
        self.aside
    }

    /// Shows a report: text, unless a document was asked for.
    pub(crate) fn result<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        match self.form {
            Form::Document => self.print(&serde_json::to_string_pretty(value)?),
            Form::Text | Form::Lines => self.print(&text(value)),
        }
    }

    /// Shows one thing: text, a line, or a document.
    pub(crate) fn record<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        match self.form {
            Form::Text => self.print(&text(value)),
            Form::Lines => self.print(&serde_json::to_string(value)?),
            Form::Document => self.print(&serde_json::to_string_pretty(value)?),
        }
    }

    /// Shows a list: a table, a line for each, or a document with the list under its name.
    pub(crate) fn list<T: Serialize>(
        &self,
        name: &str,
        rows: &[T],
        table: impl FnOnce(&[T]) -> String,
    ) -> anyhow::Result<()> {
        match self.form {
            Form::Text => self.print(&table(rows)),
            Form::Lines => {
                let lines =
                    rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
                if lines.is_empty() { Ok(()) } else { self.print(&lines.join("\n")) }
            }
            Form::Document => {
                self.print(&serde_json::to_string_pretty(&serde_json::json!({ name: rows }))?)
            }
        }
    }

    /// Writes lines to standard output. Who reads them sees them at once.
    #[expect(clippy::unused_self, reason = "what goes to standard output goes through here")]
    pub(crate) fn print(&self, text: &str) -> anyhow::Result<()> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", text.trim_end())?;
        Ok(stdout.flush()?)
    }

    /// Tells a person how far a long piece of work has come.
    pub(crate) fn progress(&self, text: &str) {
        if !self.quiet && (self.form != Form::Document || io::stderr().is_terminal()) {
            // A server goes on when nobody reads any more what it says.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Tells a person what to do next; programs need no hints.
    pub(crate) fn hint(&self, text: &str) {
        if self.is_text() {
            self.progress(&self.aside.dim(text));
        }
    }

    /// Whether anybody sees bars: only a terminal shows them.
    pub(crate) fn shows_bars(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// A bar on standard error, for work that takes a while, counted in things.
    pub(crate) fn bar(&self, total: Option<u64>, what: &str) -> indicatif::ProgressBar {
        let template = match total {
            Some(_) => "{msg} {wide_bar} {at}/{of} {rate} {eta}",
            None => "{msg} {at} {rate}",
        };
        self.drawn(total, what, template)
    }

    /// The same, counted in bytes.
    pub(crate) fn byte_bar(&self, total: Option<u64>, what: &str) -> indicatif::ProgressBar {
        let template = match total {
            Some(_) => "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}",
            None => "{msg} {binary_bytes} {binary_bytes_per_sec}",
        };
        self.drawn(total, what, template)
    }

    fn drawn(&self, total: Option<u64>, what: &str, template: &str) -> indicatif::ProgressBar {
        use indicatif::{ProgressBar, ProgressState, ProgressStyle};
        if !self.shows_bars() {
            return ProgressBar::hidden();
        }
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        if let Ok(style) = ProgressStyle::with_template(template) {
            let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // A bar that cannot be drawn is no reason to fail.
                let _ = write!(out, "{}/s", grouped(state.per_sec() as u64));
            };
            let at = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let _ = out.write_str(&grouped(state.pos()));
            };
            let of = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let _ = out.write_str(&grouped(state.len().unwrap_or(0)));
            };
            bar.set_style(style.with_key("rate", rate).with_key("at", at).with_key("of", of));
        }
        bar.set_message(what.to_owned());
        bar
    }

    pub(crate) fn failure(&self, error: &anyhow::Error) {
        let mut stderr = io::stderr().lock();
        // There is nowhere else to say that this failed.
        let _ = if self.form == Form::Document {
            writeln!(stderr, "{}", Failure::document(error))
        } else {
            let hint = error.downcast_ref::<Failure>().and_then(|failure| failure.hint.as_ref());
            let hint = hint.map(|hint| format!("\n  {hint}")).unwrap_or_default();
            writeln!(stderr, "{} {error:#}{hint}", self.aside.bad("error:"))
        };
    }
}

/// Colours, or none: `NO_COLOR`, `TERM=dumb`, `--no-color` and a pipe turn them off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    fn new(no_color: bool, on_terminal: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let wanted = set("FORCE_COLOR") || on_terminal && !dumb;
        Self(wanted && !no_color && !set("NO_COLOR"))
    }

    /// No colours.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self(false)
    }

    /// Whether there are colours.
    pub(crate) const fn is_on(self) -> bool {
        self.0
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }
}

/// Columns under their headings.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |row: usize, column: usize| rows.get(row).and_then(|cells| cells.get(column));
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(column, heading)| {
            let of_rows = (0..rows.len()).filter_map(|row| cells(row, column));
            of_rows.map(|cell| cell.chars().count()).max().unwrap_or(0).max(heading.len())
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, width) in cells.zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        line.trim_end().to_owned()
    };
    let mut out = line(&mut headings.iter().copied());
    for row in rows {
        out.push('\n');
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

/// Milliseconds as people say them.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    // What was written as a round number is shown as one.
    for (unit, name) in [(86_400, "d"), (3_600, "h"), (60, "min")] {
        if millis > 0 && millis.is_multiple_of(unit * 1000) {
            return format!("{} {name}", seconds / unit);
        }
    }
    match seconds {
        0 => format!("{millis} ms"),
        1..=9 if !millis.is_multiple_of(1000) => format!("{:.1} s", millis as f64 / 1000.0),
        1..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A text of somebody else's, without what would steer the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The beginning of a text that may be long, on one line.
pub(crate) fn beginning(text: &str, chars_max: usize) -> String {
    let text = plain(text);
    match text.char_indices().nth(chars_max) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// JSON as people read it: indented, with its members in their order and its numbers as they were
/// written. Without what would steer the terminal.
pub(crate) fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut chars = json.chars().peekable();
    let begin = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = chars.next() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            out.push(if c.is_control() { '\u{fffd}' } else { c });
            continue;
        }
        match c {
            _ if c.is_whitespace() => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|c| c.is_whitespace()).is_some() {}
                if let Some(end) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(end);
                } else {
                    depth += 1;
                    begin(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                begin(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                begin(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => {
                in_text = c == '"';
                out.push(if c.is_control() { '\u{fffd}' } else { c });
            }
        }
    }
    out
}

/// One or many.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as u64), if number == 1 { one } else { many })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_do_not_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{9b}c\r\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}\u{fffd}");
        assert_eq!(plain("grün 漢"), "grün 漢");
    }

    #[test]
    fn json_is_indented_as_it_was_written() {
        let json = r#"{"z":1.50,"a":{"q":"a\"{,}:\\","e":[],"o":{ }},"l":[1,null]}"#;
        let expected = concat!(
            "{\n  \"z\": 1.50,\n  \"a\": {\n    \"q\": \"a\\\"{,}:\\\\\",\n    \"e\": [],\n",
            "    \"o\": {}\n  },\n  \"l\": [\n    1,\n    null\n  ]\n}"
        );
        assert_eq!(indented(json), expected);
        assert_eq!(indented("\"a b\""), "\"a b\"");
        assert_eq!(beginning("abcdef", 3), "abc…");
        assert_eq!(beginning("abc", 3), "abc");
    }

    #[test]
    fn spans_are_said_as_people_do() {
        for (millis, said) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1.5 s"),
            (15_000, "15 s"),
            (60_000, "1 min"),
            (3_600_000, "1 h"),
            (86_400_000, "1 d"),
            (604_800_000, "7 d"),
            (200_001, "3 min"),
            (90_000_001, "25 h"),
        ] {
            assert_eq!(span(millis), said);
        }
    }

    #[test]
    fn columns_stand_under_their_headings() {
        let rows = [vec!["a".to_owned(), "…1".to_owned()], vec!["bbb".to_owned(), "2".to_owned()]];
        assert_eq!(table(&["X", "Y"], &rows), "X    Y\na    …1\nbbb  2");
    }
}
