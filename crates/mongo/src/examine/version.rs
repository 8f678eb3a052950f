//! Whether the server has what was mended last: of each series that is cared for, the least release.

use super::Verdict;

/// Releases in which a server gives nothing of its memory away to whoever reaches it (CVE-2025-14847).
const MENDED: [[u32; 3]; 4] = [[6, 0, 27], [7, 0, 28], [8, 0, 17], [8, 2, 3]];

/// What is to be said of a server of this version.
pub(super) fn judge(version: &str) -> (Verdict, String) {
    // Of a version like 8.2.3-rc1 the number counts.
    let number = version.split('-').next().unwrap_or_default();
    let mut parts = number.split('.').map_while(|part| part.parse::<u32>().ok());
    let (Some(major), Some(minor), Some(patch)) = (parts.next(), parts.next(), parts.next()) else {
        return (Verdict::Unknown, format!("MongoDB says that its version is {version:?}"));
    };
    let found = [major, minor, patch];
    let [oldest, .., newest] = MENDED.map(told);
    match MENDED.iter().find(|[of, series, _]| (*of, *series) == (major, minor)) {
        Some(least) if found < *least => {
            let text = format!(
                "MongoDB {version} gives whoever reaches it what is in its memory (CVE-2025-14847); \
                 update it to {}",
                told(*least)
            );
            (Verdict::Error, text)
        }
        None if MENDED.iter().any(|mended| found < *mended) => {
            let text = format!(
                "MongoDB {version} is of a series that is not known to be mended any more \
                 (CVE-2025-14847); take {oldest} or later, best {newest} or later"
            );
            (Verdict::Error, text)
        }
        _ => (Verdict::Good, format!("MongoDB {version}")),
    }
}

fn told([major, minor, patch]: [u32; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_before_the_mended_one_of_their_series_are_told_of() {
        for good in ["6.0.27", "7.0.28", "7.0.31", "8.0.17", "8.2.3", "8.2.4-rc0", "8.3.0", "9.0.0"]
        {
            assert_eq!(judge(good), (Verdict::Good, format!("MongoDB {good}")));
        }
        for (old, least) in
            [("6.0.26", "6.0.27"), ("7.0.0", "7.0.28"), ("8.0.16", "8.0.17"), ("8.2.2", "8.2.3")]
        {
            let (verdict, text) = judge(old);
            assert_eq!(verdict, Verdict::Error, "{text}");
            assert!(text.ends_with(&format!("update it to {least}")), "{text}");
        }
        for series in ["5.0.33", "6.3.2", "7.3.4", "8.1.9"] {
            let (verdict, text) = judge(series);
            assert_eq!(verdict, Verdict::Error, "{text}");
            assert!(text.contains("take 6.0.27 or later, best 8.2.3 or later"), "{text}");
        }
        for strange in ["", "eight", "8.2"] {
            assert_eq!(judge(strange).0, Verdict::Unknown, "{strange}");
        }
    }
}
