//! Sets of characters as sorted, disjoint, inclusive ranges of Unicode scalar values.

/// The last Unicode scalar value.
pub(crate) const LAST: u32 = 0x0010_FFFF;
const SURROGATES: (u32, u32) = (0xD800, 0xDFFF);

/// An inclusive range of scalar values.
pub(crate) type Range = (u32, u32);

/// A set of characters. Surrogates are never members: no Rust or JSON string of ours has them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Class(Vec<Range>);

impl Class {
    /// From ranges in any order, overlapping or not.
    pub(crate) fn new(mut ranges: Vec<Range>) -> Self {
        ranges.retain(|(low, high)| low <= high);
        ranges.sort_unstable();
        let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged).without_surrogates()
    }

    /// One character.
    pub(crate) fn single(c: char) -> Self {
        Self(vec![(c as u32, c as u32)])
    }

    /// Every character.
    pub(crate) fn any() -> Self {
        Self::new(vec![(0, LAST)])
    }

    /// Every character that is not in this set.
    pub(crate) fn negate(&self) -> Self {
        let mut gaps = Vec::with_capacity(self.0.len() + 1);
        let mut next = 0;
        for &(low, high) in &self.0 {
            if low > next {
                gaps.push((next, low - 1));
            }
            next = high + 1;
        }
        if next <= LAST {
            gaps.push((next, LAST));
        }
        Self(gaps).without_surrogates()
    }

    /// The set with every other case of its letters.
    pub(crate) fn folded(&self) -> Self {
        use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
        let ranges = self.0.iter().filter_map(|(low, high)| {
            Some(ClassUnicodeRange::new(char::from_u32(*low)?, char::from_u32(*high)?))
        });
        let mut class = ClassUnicode::new(ranges);
        class.case_fold_simple();
        Self::new(class.iter().map(|r| (r.start() as u32, r.end() as u32)).collect())
    }

    /// The ranges, sorted and disjoint.
    pub(crate) fn ranges(&self) -> &[Range] {
        &self.0
    }

    fn without_surrogates(self) -> Self {
        let mut ranges = Vec::with_capacity(self.0.len() + 1);
        for (low, high) in self.0 {
            if high < SURROGATES.0 || low > SURROGATES.1 {
                ranges.push((low, high));
                continue;
            }
            if low < SURROGATES.0 {
                ranges.push((low, SURROGATES.0 - 1));
            }
            if high > SURROGATES.1 {
                ranges.push((SURROGATES.1 + 1, high));
            }
        }
        Self(ranges)
    }
}

/// `\d` as ECMA-262 has it: ASCII.
pub(crate) fn digits() -> Class {
    Class::new(vec![(0x30, 0x39)])
}

/// `\w` as ECMA-262 has it: ASCII.
pub(crate) fn word() -> Class {
    Class::new(vec![(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
}

/// `\s` as ECMA-262 has it: white space, line terminators, the byte order mark.
pub(crate) fn space() -> Class {
    Class::new(vec![
        (0x09, 0x0D),
        (0x20, 0x20),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x2000, 0x200A),
        (0x2028, 0x2029),
        (0x202F, 0x202F),
        (0x205F, 0x205F),
        (0x3000, 0x3000),
        (0xFEFF, 0xFEFF),
    ])
}

/// `\p{..}`: the tables of regex-syntax.
pub(crate) fn property(name: &str) -> Option<Class> {
    let hir = regex_syntax::parse(&format!("\\p{{{name}}}")).ok()?;
    let regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) = hir.kind()
    else {
        return None;
    };
    let ranges = class.iter().map(|range| (range.start() as u32, range.end() as u32)).collect();
    Some(Class::new(ranges))
}
