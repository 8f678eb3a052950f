//! How sets of topics lie to each other, and names of groups with a wildcard.

use promethean_event::{GroupName, Pattern};

/// Whether every topic of `inner` is one of `outer`.
///
/// Follows `inner` segment by segment, and keeps every place in `outer` where one can be by then.
/// A wildcard of `inner` is followed with a name that occurs nowhere: any other name could only
/// be matched by more places.
pub fn covers(outer: &Pattern, inner: &Pattern) -> bool {
    let (Some(outer), Some(inner)) = (split(outer), split(inner)) else {
        return false;
    };
    if outer.system != inner.system {
        return false;
    }
    let mut seen = std::collections::HashSet::new();
    // A name has at least one segment, so a `**` alone never stands for nothing.
    let mut open = vec![(0, outer.start(), false)];
    while let Some(state @ (at, places, named)) = open.pop() {
        if !seen.insert(state) {
            continue;
        }
        match inner.segments.get(at) {
            None if named && !outer.accepts(places) => return false,
            None => {}
            Some(&"**") => {
                open.push((at + 1, places, named));
                open.push((at, outer.step(places, None), true));
            }
            Some(&"*") => open.push((at + 1, outer.step(places, None), true)),
            Some(segment) => open.push((at + 1, outer.step(places, Some(segment)), true)),
        }
    }
    true
}

/// Whether there is a name that both match.
pub fn overlap(left: &Pattern, right: &Pattern) -> bool {
    let (Some(left), Some(right)) = (split(left), split(right)) else {
        return true;
    };
    if left.system != right.system {
        return false;
    }
    let mut seen = std::collections::HashSet::new();
    let mut open = vec![(0, 0, false)];
    while let Some(place @ (i, j, named)) = open.pop() {
        if !seen.insert(place) {
            continue;
        }
        let (a, b) = (left.segments.get(i), right.segments.get(j));
        if a.is_none() && b.is_none() && named {
            return true;
        }
        if a == Some(&"**") {
            open.push((i + 1, j, named));
        }
        if b == Some(&"**") {
            open.push((i, j + 1, named));
        }
        let (Some(&a), Some(&b)) = (a, b) else {
            continue;
        };
        if a.starts_with('*') || b.starts_with('*') || a == b {
            let next_i = if a == "**" { i } else { i + 1 };
            let next_j = if b == "**" { j } else { j + 1 };
            open.push((next_i, next_j, true));
            open.push((i + 1, j + 1, true));
        }
    }
    false
}

/// A pattern in segments; places in it are bits, the one after the last included.
struct Split<'a> {
    system: bool,
    segments: Vec<&'a str>,
}

fn split(pattern: &Pattern) -> Option<Split<'_>> {
    let text = pattern.as_str();
    let segments: Vec<&str> = text.strip_prefix('$').unwrap_or(text).split('.').collect();
    (segments.len() < 64).then_some(Split { system: text.starts_with('$'), segments })
}

impl Split<'_> {
    fn start(&self) -> u64 {
        self.closed(1)
    }

    fn accepts(&self, places: u64) -> bool {
        places & (1 << self.segments.len()) != 0
    }

    /// Where one can be after a segment; `None` is a name that is not in the pattern.
    fn step(&self, places: u64, name: Option<&str>) -> u64 {
        let mut next = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            if places & (1 << index) == 0 {
                continue;
            }
            match *segment {
                "**" => next |= 1 << index,
                "*" => next |= 1 << (index + 1),
                other if Some(other) == name => next |= 1 << (index + 1),
                _ => {}
            }
        }
        self.closed(next)
    }

    /// `**` may also stand for nothing.
    fn closed(&self, mut places: u64) -> u64 {
        for (index, segment) in self.segments.iter().enumerate() {
            if *segment == "**" && places & (1 << index) != 0 {
                places |= 1 << (index + 1);
            }
        }
        places
    }
}

/// A group name, or with a `*` at its end all that begin like it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupGlob {
    text: Box<str>,
    open: bool,
}

impl GroupGlob {
    /// Reads one; none if it is not one.
    pub fn new(text: &str) -> Option<Self> {
        let (name, open) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let good = (open && name.is_empty()) || GroupName::new(name).is_ok();
        good.then(|| Self { text: name.into(), open })
    }

    /// Whether the name is one of them.
    pub fn matches(&self, group: &GroupName) -> bool {
        let name = group.as_str();
        if self.open { name.starts_with(&*self.text) } else { name == &*self.text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use promethean_event::Topic;
    use proptest::prelude::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    #[test]
    fn containment() {
        for (outer, inner, holds) in [
            ("**", "a.b", true),
            ("**", "a.**", true),
            ("a.**", "**", false),
            ("a.*", "a.b", true),
            ("a.*", "a.**", false),
            ("a.**", "a", true),
            ("a.**.b", "a.b.x.b", true),
            ("**.*", "**", true),
            ("*.**", "**", true),
            ("a.**.b.**", "a.*.b.*", true),
            ("**", "$a", false),
            ("$**", "$a.b", true),
        ] {
            assert_eq!(covers(&pattern(outer), &pattern(inner)), holds, "{outer} {inner}");
        }
    }

    #[test]
    fn group_globs() {
        let name = |text| GroupName::new(text).unwrap();
        assert!(GroupGlob::new("acme-*").unwrap().matches(&name("acme-1")));
        assert!(!GroupGlob::new("acme-*").unwrap().matches(&name("acm")));
        assert!(GroupGlob::new("*").unwrap().matches(&name("x")));
        assert!(!GroupGlob::new("a").unwrap().matches(&name("ab")));
        for text in ["", "a*b", "**", "a b", "a::b"] {
            assert_eq!(GroupGlob::new(text), None, "{text}");
        }
    }

    fn patterns() -> impl Strategy<Value = Pattern> {
        proptest::collection::vec(prop_oneof!["a", "b", "\\*", "\\*\\*"], 1..5)
            .prop_map(|parts| pattern(&parts.join(".")))
    }

    /// All names of up to five segments of a, b and a third.
    fn names() -> Vec<Topic> {
        let mut names = vec![String::new()];
        let mut all = Vec::new();
        for _ in 0..5 {
            names = names
                .iter()
                .flat_map(|name| ["a", "b", "z"].map(|segment| format!("{name}.{segment}")))
                .collect();
            all.extend(names.iter().map(|name| Topic::new(&name[1..]).unwrap()));
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Names of five segments tell patterns of four apart, except that a `**` may need more.
        #[test]
        fn agrees_with_all_short_names(left in patterns(), right in patterns()) {
            let names = names();
            let inside = names.iter().filter(|name| right.matches(name)).all(|name| left.matches(name));
            let meets = names.iter().any(|name| left.matches(name) && right.matches(name));
            if covers(&left, &right) {
                prop_assert!(inside);
            }
            if meets {
                prop_assert!(overlap(&left, &right));
            } else if overlap(&left, &right) {
                let length = |p: &Pattern| p.as_str().split('.').filter(|s| *s != "**").count();
                prop_assert!(length(&left) + length(&right) > 5);
            }
            if inside && !covers(&left, &right) {
                // What refutes it must be longer than what was tried.
                prop_assert!(left.as_str().split('.').count() + right.as_str().split('.').count() > 5);
            }
        }
    }
}
