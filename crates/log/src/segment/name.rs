use std::fmt;

/// What a file of the log is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment(SegmentName),
    Index(SegmentName),
    /// A zero-filled or recycled file without a place yet.
    Spare,
    /// Unfinished work of a process that ended; nobody has relied on it.
    Unfinished,
    /// Taken out of the way, or somebody's word that what is lost may be lost.
    Aside,
    Other,
}

/// Which part of the log a segment holds: its first seq, and how often it was written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentName {
    pub(crate) base: u64,
    pub(crate) generation: u32,
}

impl SegmentName {
    pub(crate) fn segment_file(self) -> String {
        format!("{self}.seg")
    }

    pub(crate) fn index_file(self) -> String {
        format!("{self}.idx")
    }

    fn parse(stem: &str) -> Option<Self> {
        let (base, generation) = stem.split_once('-')?;
        if base.len() != 16 || generation.len() != 8 {
            return None;
        }
        Some(Self {
            base: u64::from_str_radix(base, 16).ok()?,
            generation: u32::from_str_radix(generation, 16).ok()?,
        })
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}", self.base, self.generation)
    }
}

impl FileKind {
    pub(crate) fn of(name: &str) -> Self {
        if name.ends_with(".tmp") {
            return Self::Unfinished;
        }
        if name.ends_with(".spare") {
            return Self::Spare;
        }
        if name.ends_with(".damaged") {
            return Self::Aside;
        }
        let segment = name.strip_suffix(".seg").and_then(SegmentName::parse);
        let index = name.strip_suffix(".idx").and_then(SegmentName::parse);
        match (segment, index) {
            (Some(name), _) => Self::Segment(name),
            (_, Some(name)) => Self::Index(name),
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        let name = SegmentName { base: 0x1f, generation: 3 };
        assert_eq!(name.segment_file(), "000000000000001f-00000003.seg");
        assert_eq!(FileKind::of(&name.segment_file()), FileKind::Segment(name));
        assert_eq!(FileKind::of(&name.index_file()), FileKind::Index(name));
        assert_eq!(FileKind::of("x.seg"), FileKind::Other);
        assert_eq!(FileKind::of("0.spare"), FileKind::Spare);
        assert_eq!(FileKind::of("x.seg.1.damaged"), FileKind::Aside);
    }
}
