//! The keywords of arrays.

use serde_json::{Map, Value};

use super::number::count;
use super::{LowerProblem, Lowering};
use crate::compat::term::{Lit, Term};
use crate::pointer;

impl Lowering<'_> {
    pub(super) fn arrays(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        if let Some(min) = count(map, "minItems") {
            lits.push(self.pool.intern(Term::MinItems(min)));
        }
        if let Some(max) = count(map, "maxItems") {
            lits.push(self.pool.intern(Term::MaxItems(max)));
        }
        if map.get("uniqueItems") == Some(&Value::Bool(true)) {
            lits.push(self.pool.intern(Term::Unique));
        }
        self.items(place, map, lits)?;
        if self.keyword(map, "contains").is_some() {
            let like = self.part(&pointer::child(place, "contains"))?;
            let counts = self.dialect.knows("minContains");
            let min = count(map, "minContains").filter(|_| counts).unwrap_or(1);
            let max = count(map, "maxContains").filter(|_| counts);
            lits.push(self.pool.intern(Term::Contains { like, min, max }));
        }
        Ok(())
    }

    /// `prefixItems` and `items`, or the two forms of `items` with `additionalItems`.
    fn items(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        let layout = self.item_layout(map);
        if let Some((keyword, length)) = layout.prefix {
            let at = pointer::child(place, keyword);
            for index in 0..length {
                let item = self.part(&format!("{at}/{index}"))?;
                lits.push(self.pool.intern(Term::Item(index, item)));
            }
        }
        if let Some(keyword) = layout.rest {
            let rest = self.part(&pointer::child(place, keyword))?;
            lits.push(self.pool.intern(Term::ItemsFrom(layout.prefix_length(), rest)));
        }
        Ok(())
    }

    /// Which keywords say what of the items.
    pub(super) fn item_layout(&self, map: &Map<String, Value>) -> ItemLayout {
        let listed = |key: &str| self.keyword(map, key).and_then(Value::as_array).map(Vec::len);
        if let Some(length) = listed("prefixItems") {
            let rest = map.contains_key("items").then_some("items");
            return ItemLayout { prefix: Some(("prefixItems", length as u64)), rest };
        }
        if self.dialect.knows("additionalItems")
            && let Some(length) = listed("items")
        {
            let rest = map.contains_key("additionalItems").then_some("additionalItems");
            return ItemLayout { prefix: Some(("items", length as u64)), rest };
        }
        ItemLayout { prefix: None, rest: map.contains_key("items").then_some("items") }
    }
}

/// Where the schemas of items stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemLayout {
    /// Keyword and length of the list for the first items.
    pub(super) prefix: Option<(&'static str, u64)>,
    /// Keyword for all others.
    pub(super) rest: Option<&'static str>,
}

impl ItemLayout {
    pub(super) fn prefix_length(self) -> u64 {
        self.prefix.map_or(0, |(_, length)| length)
    }
}
