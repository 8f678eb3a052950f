//! The wire does not change without a look at its description: `PROTOCOL.md` names the sum of the
//! sources that read and write frames.

use super::tree::{Finding, SourceFile};

const SOURCES: &str = "crates/event/src/frame/";
const DOCUMENT: &str = "PROTOCOL.md";
const BEFORE: &str = "<!-- sum of the sources of the wire: ";
const AFTER: &str = " -->";

/// What `PROTOCOL.md` should be, if it is not.
pub(super) fn corrected(files: &[SourceFile]) -> Option<String> {
    let document = files.iter().find(|file| file.path == DOCUMENT)?;
    let named = named(&document.text)?;
    let sum = sum(files);
    let (old, new) = (format!("{BEFORE}{named}{AFTER}"), format!("{BEFORE}{sum}{AFTER}"));
    (named != sum).then(|| document.text.replace(&old, &new))
}

pub(super) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else {
        let advice = "The wire is described there.";
        return vec![SourceFile::example(DOCUMENT, "").finding(1, "is missing", advice)];
    };
    if named(&document.text) == Some(sum(files).as_str()) {
        return Vec::new();
    }
    let advice = "Read what changed in crates/event/src/frame against PROTOCOL.md and mend the \
                  latter; then PROM_UPDATE_DOCS=1 writes the new sum.";
    let line = document.lines().find(|(_, line)| line.starts_with(BEFORE));
    let line = line.map_or(1, |(number, _)| number);
    vec![document.finding(line, "is not of these sources of the wire", advice)]
}

fn named(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(BEFORE)?;
    rest.split_once(AFTER).map(|(sum, _)| sum)
}

/// FNV-1a over paths and texts, tests left out.
fn sum(files: &[SourceFile]) -> String {
    let sources = files
        .iter()
        .filter(|file| file.path.starts_with(SOURCES) && !file.path.ends_with("_tests.rs"));
    let bytes = sources.flat_map(|file| file.path.bytes().chain(file.text.bytes()));
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{sum:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_frame_is_noticed_and_its_sum_written() {
        let source = |text| SourceFile::example("crates/event/src/frame/client.rs", text);
        let document = |sum: &str| {
            SourceFile::example(DOCUMENT, &format!("# Wire 10\n\n{BEFORE}{sum}{AFTER}\n"))
        };
        let files = [source("enum Frame {}"), document("0")];
        assert_eq!(check(&files)[0].line, 3);
        let text = corrected(&files).unwrap();
        assert!(text.starts_with("# Wire 10\n"), "nothing else changes: {text}");
        let files = [source("enum Frame {}"), SourceFile::example(DOCUMENT, &text)];
        assert!(check(&files).is_empty() && corrected(&files).is_none());
        let files = [source("enum Frame { More }"), SourceFile::example(DOCUMENT, &text)];
        assert_eq!(check(&files).len(), 1);
        assert_eq!(check(&[source("")]).len(), 1, "no document at all");
    }
}
