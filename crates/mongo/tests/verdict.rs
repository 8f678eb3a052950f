//! What must hold, whatever the machine does. A test that takes too long may be tried again; one in
//! which something was lost, or owned twice, has failed for good, though the next try finds nothing.

use std::path::{Path, PathBuf};

/// Fails if something is wrong, or was in an earlier try of this test.
#[track_caller]
pub(crate) fn must_hold(violations: &[String]) {
    if let Err(why) = judge(marker().as_deref(), violations) {
        panic!("{why}");
    }
}

/// Where it is noted what was wrong; nowhere if nobody tries again.
fn marker() -> Option<PathBuf> {
    let run = std::env::var("NEXTEST_RUN_ID").ok()?;
    let thread = std::thread::current();
    let test = std::env::var("NEXTEST_TEST_NAME").ok();
    let test = test.or_else(|| thread.name().map(str::to_owned)).unwrap_or_default();
    let name = format!("prom-violated-{run}-{}", test.replace("::", "-"));
    Some(std::env::temp_dir().join(name))
}

fn judge(marker: Option<&Path>, violations: &[String]) -> Result<(), String> {
    let Some(marker) = marker else {
        return if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) };
    };
    if !violations.is_empty() {
        std::fs::write(marker, violations.join("\n")).unwrap();
    }
    match std::fs::read_to_string(marker) {
        Ok(noted) => Err(format!("violated, in this try or an earlier one:\n{noted}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{} cannot be read: {error}", marker.display())),
    }
}

#[test]
fn what_was_violated_once_stays_violated() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("marker");
    assert_eq!(judge(Some(&marker), &[]), Ok(()));
    let lost = ["an event was lost".to_owned()];
    assert!(judge(Some(&marker), &lost).is_err_and(|why| why.contains("was lost")));
    assert!(judge(Some(&marker), &[]).is_err_and(|why| why.contains("was lost")));
    assert_eq!(judge(None, &[]), Ok(()));
    assert!(judge(None, &lost).is_err());
}
