//! Conditional requests as in RFC 9110, section 13. Dates are left out: our representations have
//! tags, and `If-None-Match` then rules out `If-Modified-Since` (13.1.3).

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `GET` or `HEAD`.
    Read,
    /// Anything else.
    Write,
}

/// What to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As without conditions.
    Proceed,
    /// 304, with the tag and what is said about caching.
    NotModified,
    /// 412.
    PreconditionFailed,
}

/// The conditions of a request. Several lines of one header are one list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// `If-Match`.
    pub if_match: &'a [&'a str],
    /// `If-None-Match`.
    pub if_none_match: &'a [&'a str],
}

/// A tag as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag<'a> {
    is_weak: bool,
    /// With its quotes.
    opaque: &'a str,
}

impl<'a> Tag<'a> {
    /// Reads a tag and what follows it.
    fn take(text: &'a str) -> Option<(Self, &'a str)> {
        let (is_weak, rest) = match text.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let inside = rest.strip_prefix('"')?;
        let end = inside.find('"')?;
        let good = |c: char| c == '\u{21}' || ('\u{23}'..='\u{7e}').contains(&c) || c >= '\u{80}';
        if !inside.get(..end)?.chars().all(good) {
            return None;
        }
        let (opaque, after) = rest.split_at_checked(end + 2)?;
        Some((Self { is_weak, opaque }, after))
    }
}

/// What a header says.
enum Tags<'a> {
    Absent,
    Any,
    List(Vec<Tag<'a>>),
    /// Not what the standard allows.
    Malformed,
}

fn parse<'a>(lines: &[&'a str]) -> Tags<'a> {
    let is_blank = |c: char| c == ' ' || c == '\t';
    if lines.is_empty() {
        return Tags::Absent;
    }
    if let [line] = lines
        && line.trim_matches(is_blank) == "*"
    {
        return Tags::Any;
    }
    let mut tags = Vec::new();
    for line in lines {
        let mut rest = line.trim_matches(is_blank);
        while !rest.is_empty() {
            // Empty members of a list are to be accepted (5.6.1.2).
            if let Some(after) = rest.strip_prefix(',') {
                rest = after.trim_start_matches(is_blank);
                continue;
            }
            let Some((tag, after)) = Tag::take(rest) else {
                return Tags::Malformed;
            };
            let after = after.trim_start_matches(is_blank);
            if !after.is_empty() && !after.starts_with(',') {
                return Tags::Malformed;
            }
            tags.push(tag);
            rest = after;
        }
    }
    if tags.is_empty() { Tags::Malformed } else { Tags::List(tags) }
}

impl Conditions<'_> {
    /// What to answer, where `current` is the tag of what is there, if anything is. `If-Match`
    /// that cannot be read fails, `If-None-Match` that cannot be read is not there: both are on
    /// the safe side.
    pub fn evaluate(&self, access: Access, current: Option<&str>) -> Outcome {
        let current = current.and_then(|tag| Some(Tag::take(tag)?.0));
        let matches = match parse(self.if_match) {
            Tags::Absent => true,
            Tags::Any => current.is_some(),
            // Strong comparison (8.8.3.2): a weak tag never matches.
            Tags::List(tags) => current.is_some_and(|current| {
                let same = |tag: &Tag<'_>| !tag.is_weak && tag.opaque == current.opaque;
                !current.is_weak && tags.iter().any(same)
            }),
            Tags::Malformed => false,
        };
        if !matches {
            return Outcome::PreconditionFailed;
        }
        let is_known = match parse(self.if_none_match) {
            Tags::Absent | Tags::Malformed => false,
            Tags::Any => current.is_some(),
            // Weak comparison: only what is between the quotes counts.
            Tags::List(tags) => {
                current.is_some_and(|current| tags.iter().any(|tag| tag.opaque == current.opaque))
            }
        };
        match (is_known, access) {
            (false, _) => Outcome::Proceed,
            (true, Access::Read) => Outcome::NotModified,
            (true, Access::Write) => Outcome::PreconditionFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(if_match: &[&str], if_none_match: &[&str], current: Option<&str>) -> Outcome {
        Conditions { if_match, if_none_match }.evaluate(Access::Read, current)
    }

    /// Pitfall 142: lists, `*`, weak tags.
    #[test]
    fn if_none_match() {
        let a = Some("\"a\"");
        for header in
            ["\"a\"", "W/\"a\"", "\"b\", \"a\"", " , \"b\",,W/\"a\" ,", "*", "\"x,y\",\"a\""]
        {
            assert_eq!(read(&[], &[header], a), Outcome::NotModified, "{header}");
        }
        assert_eq!(read(&[], &["\"b\"", "\"a\""], a), Outcome::NotModified, "two lines");
        for header in ["\"b\"", "a", "\"a", "w/\"a\"", "\"a\" \"b\"", "", "*, \"a\"", "\"A\""] {
            assert_eq!(read(&[], &[header], a), Outcome::Proceed, "{header}");
        }
        assert_eq!(read(&[], &["*"], None), Outcome::Proceed);
        let write = |header| {
            Conditions { if_match: &[], if_none_match: &[header] }.evaluate(Access::Write, a)
        };
        assert_eq!(write("*"), Outcome::PreconditionFailed);
        assert_eq!(write("\"b\""), Outcome::Proceed);
    }

    #[test]
    fn if_match_is_strong_and_comes_first() {
        let a = Some("\"a\"");
        for header in ["\"a\"", "*", "\"b\", \"a\""] {
            assert_eq!(read(&[header], &[], a), Outcome::Proceed, "{header}");
        }
        for header in ["W/\"a\"", "\"b\"", "a", ""] {
            assert_eq!(read(&[header], &[], a), Outcome::PreconditionFailed, "{header}");
        }
        assert_eq!(read(&["*"], &[], None), Outcome::PreconditionFailed);
        assert_eq!(read(&["\"b\""], &["\"a\""], a), Outcome::PreconditionFailed);
        assert_eq!(read(&["\"a\""], &["\"a\""], a), Outcome::NotModified);
    }
}
