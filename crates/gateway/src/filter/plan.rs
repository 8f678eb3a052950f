use std::collections::HashMap;
use std::sync::Arc;

use cel::IdedExpr;
use regex::Regex;

use super::FilterError;
use crate::limits::FILTER_MEMBERS_MAX;

/// An expression ready to run: names are slots, and it is known what fills them.
pub(super) struct Plan {
    pub(super) tree: IdedExpr,
    pub(super) members: MemberTree,
    pub(super) slots: usize,
    pub(super) headers: Vec<String>,
    pub(super) regexes: Arc<HashMap<String, Regex>>,
    pub(super) weight: Weight,
}

/// How much of an expression runs once, and how much once per element.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight {
    pub(super) once: u64,
    pub(super) looped: u64,
    /// Elements of the longest list that is written down.
    pub(super) literal_elements: u64,
}

/// The members of the payload that an expression names, as a tree.
#[derive(Debug, Default)]
pub(super) struct MemberTree {
    pub(super) slot: Option<usize>,
    /// Whether the value is wanted, or only whether it is there.
    pub(super) value: bool,
    pub(super) children: Vec<(String, MemberTree)>,
}

impl MemberTree {
    /// Makes room for a member. Once a value is wanted, what lies below is taken from it.
    pub(super) fn insert(&mut self, path: &[&str], value: bool) {
        let Some((first, rest)) = path.split_first() else {
            self.value |= value;
            self.slot = Some(0);
            return;
        };
        let at = self.children.iter().position(|(name, _)| name == first);
        let child = match at.and_then(|at| self.children.get_mut(at)) {
            Some((_, child)) => child,
            None => {
                self.children.push(((*first).to_owned(), Self::default()));
                match self.children.last_mut() {
                    Some((_, child)) => child,
                    None => return,
                }
            }
        };
        child.insert(rest, value);
    }

    /// Numbers the slots, and lets go of what lies below a value.
    pub(super) fn number(&mut self, next: &mut usize) -> Result<(), FilterError> {
        if self.value {
            self.children.clear();
        }
        if let Some(slot) = &mut self.slot {
            *slot = *next;
            *next += 1;
        }
        if *next > FILTER_MEMBERS_MAX {
            return Err(FilterError::TooManyMembers(FILTER_MEMBERS_MAX));
        }
        self.children.iter_mut().try_for_each(|(_, child)| child.number(next))
    }

    /// The slot of a path: of its first part that is a value, with the rest of the path, or of
    /// the whole.
    pub(super) fn find<'p>(&self, path: &'p [&'p str]) -> Option<(usize, bool, &'p [&'p str])> {
        match (self.slot, path.split_first()) {
            (Some(slot), _) if self.value => Some((slot, true, path)),
            (Some(slot), None) => Some((slot, false, path)),
            (_, Some((first, rest))) => {
                let (_, child) = self.children.iter().find(|(name, _)| name == first)?;
                child.find(rest)
            }
            (None, None) => None,
        }
    }
}
