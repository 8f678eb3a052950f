//! For people: the source line, what is wrong, and what to do.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::finding::{Finding, Severity};
use crate::report::Report;

/// Whether the output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colour {
    /// Plain text: for files, pipes and `NO_COLOR`.
    #[default]
    Never,
    /// ANSI colours.
    Always,
}

/// Findings with source excerpts, and a line that sums up.
pub fn human(report: &Report, colour: Colour) -> String {
    let renderer = match colour {
        Colour::Never => Renderer::plain(),
        Colour::Always => Renderer::styled(),
    };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let mut out = String::new();
    for finding in &report.findings {
        out.push_str(&renderer.render(&[group(finding)]));
        out.push_str("\n\n");
    }
    out.push_str(&summary(report));
    out.push('\n');
    out
}

fn group(finding: &Finding) -> Group<'_> {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let title = level.primary_title(finding.message.as_str()).id(finding.name);
    let help = Level::HELP.message(finding.help.as_str());
    match &finding.excerpt {
        Some(excerpt) => {
            let span = excerpt.start..excerpt.end.max(excerpt.start);
            let snippet = Snippet::source(excerpt.line.as_str())
                .line_start(finding.line)
                .path(finding.path.as_str())
                .annotation(AnnotationKind::Primary.span(span));
            title.element(snippet).element(help)
        }
        None => {
            let origin = annotate_snippets::Origin::path(finding.path.as_str());
            title.element(origin).element(help)
        }
    }
}

fn summary(report: &Report) -> String {
    let counts = report.counts();
    let say = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let mut text = format!(
        "{}, {}, {} in {}; {} named",
        say(counts.error, "error"),
        say(counts.warning, "warning"),
        say(counts.note, "note"),
        say(report.files, "file"),
        say(report.sites.len(), "topic")
    );
    if report.known > 0 {
        text.push_str(&format!("; {} known from the baseline", report.known));
    }
    text
}
