//! For GitHub Actions: workflow commands, which become annotations on the changed lines.

use crate::finding::{Finding, Severity};
use crate::report::Report;

/// One line per finding: `::error file=…,line=…,title=…::message`.
pub fn github(report: &Report) -> String {
    report.findings.iter().map(annotation).collect()
}

fn annotation(finding: &Finding) -> String {
    let command = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let mut place = format!("file={},line={}", property(&finding.path), finding.line);
    place.push_str(&format!(",endLine={}", finding.end_line));
    // Columns are only understood within one line.
    if finding.line == finding.end_line {
        place.push_str(&format!(",col={},endColumn={}", finding.column, finding.end_column));
    }
    let title = property(&format!("{} {}", finding.rule, finding.name));
    let text = text(&format!("{}. {}", finding.message, finding.help));
    format!("::{command} {place},title={title}::{text}\n")
}

/// The text of a command ends with the line, so that line ends must be written otherwise: a name
/// in the code could else begin a command of its own.
fn text(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(value: &str) -> String {
    text(value).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_break_out_of_its_line() {
        assert_eq!(text("a\n::error::x%"), "a%0A::error::x%25");
        assert_eq!(property("a,b:c\r\n"), "a%2Cb%3Ac%0D%0A");
    }
}
