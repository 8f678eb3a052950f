//! Words of a language with a length in bounds: shortest first, pleasant characters first.

use super::class::{LAST, Range};
use super::product::Product;

/// Most table cells (lengths times states) that are laid out.
const CELLS_MAX: u64 = 40_000_000;

/// Longest word that is written out.
const LENGTH_MAX: u64 = 4_000_000;

/// Words found, and whether there are no others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// Distinct words.
    pub(crate) found: Vec<String>,
    /// Whether the list is the whole language.
    pub(crate) complete: bool,
}

/// Up to `wanted` distinct words with `min..=max` characters. `None` if the bounds of this search
/// were met before the question was answered.
pub(crate) fn words(product: &Product, min: u64, max: Option<u64>, wanted: usize) -> Option<Words> {
    let states = product.rows.len() as u64;
    let (shortest, longest) = product.lengths();
    let short_of = |bound: Option<u64>, length: Option<u64>| match (bound, length) {
        (Some(bound), Some(length)) => bound < length,
        _ => false,
    };
    if shortest.is_none() || short_of(max, shortest) || short_of(longest, Some(min)) {
        return Some(Words { found: Vec::new(), complete: true });
    }
    if let Some(word) = same_throughout(product, min).filter(|_| wanted == 1) {
        return Some(Words { found: vec![word], complete: false });
    }
    let mut search = Search { product, reach: Vec::new(), found: Vec::new(), wanted };
    let mut length = 0;
    let mut barren = 0;
    loop {
        if max.is_some_and(|max| length > max) || barren > states {
            return Some(Words { found: search.found, complete: true });
        }
        if length > LENGTH_MAX || (length + 1) * states > CELLS_MAX {
            return None;
        }
        let any = search.extend();
        if length >= min {
            // Cutting loops out of a word shows: no word in as many lengths as there are
            // states means no longer word at all.
            barren = if any { 0 } else { barren + 1 };
            if any {
                search.spell(0, usize::try_from(length).ok()?, &mut String::new());
            }
            if search.found.len() >= wanted {
                return Some(Words { found: search.found, complete: false });
            }
        } else if search.is_dead() {
            return Some(Words { found: search.found, complete: true });
        }
        length += 1;
    }
}

/// A word of one character, for a product of one state: lengths are all that counts.
fn same_throughout(product: &Product, length: u64) -> Option<String> {
    let [(true, arrows)] = product.rows.as_slice() else {
        return None;
    };
    let most_pleasant = arrows.iter().min_by_key(|(range, _)| unpleasantness(*range));
    let c = most_pleasant.and_then(|(range, _)| pleasant(*range, 1).first().copied());
    match (length, c) {
        (0, _) => Some(String::new()),
        (1..=LENGTH_MAX, Some(c)) => {
            Some(std::iter::repeat_n(c, usize::try_from(length).ok()?).collect())
        }
        _ => None,
    }
}

struct Search<'a> {
    product: &'a Product,
    /// `reach[n]`: the states from which a word of exactly `n` characters is accepted.
    reach: Vec<Vec<bool>>,
    found: Vec<String>,
    wanted: usize,
}

impl Search<'_> {
    /// Adds the table row for the next length; says whether the start state is in it.
    fn extend(&mut self) -> bool {
        let row: Vec<bool> = match self.reach.last() {
            None => self.product.rows.iter().map(|(accept, _)| *accept).collect(),
            Some(last) => self
                .product
                .rows
                .iter()
                .map(|(_, arrows)| arrows.iter().any(|(_, to)| last.get(*to) == Some(&true)))
                .collect(),
        };
        let start = row.first() == Some(&true);
        self.reach.push(row);
        start
    }

    fn is_dead(&self) -> bool {
        self.reach.last().is_some_and(|row| !row.iter().any(|reached| *reached))
    }

    fn spell(&mut self, mut state: usize, mut left: usize, word: &mut String) {
        let length_before = word.len();
        // One way on needs no recursion: long words of one shape must not exhaust the stack.
        while left > 0 {
            let only_one = self.wanted == self.found.len() + 1;
            let mut ways = self.ways(state, left);
            let Some(&((low, high), to)) = ways.first() else {
                break;
            };
            if only_one || (ways.len() == 1 && low == high) {
                word.extend(pleasant((low, high), 1));
                state = to;
                left -= 1;
                continue;
            }
            ways.truncate(self.wanted);
            self.branch(&ways, left, word);
            word.truncate(length_before);
            return;
        }
        if left == 0 {
            self.found.push(word.clone());
        }
        word.truncate(length_before);
    }

    fn branch(&mut self, ways: &[(Range, usize)], left: usize, word: &mut String) {
        for (range, to) in ways {
            let missing = self.wanted - self.found.len();
            for c in pleasant(*range, missing) {
                if self.found.len() >= self.wanted {
                    return;
                }
                word.push(c);
                self.spell(*to, left - 1, word);
                word.pop();
            }
        }
    }

    fn ways(&self, state: usize, left: usize) -> Vec<(Range, usize)> {
        let Some(next) = left.checked_sub(1).and_then(|left| self.reach.get(left)) else {
            return Vec::new();
        };
        let arrows = self.product.rows.get(state).map_or(&[][..], |(_, arrows)| arrows);
        let mut ways: Vec<(Range, usize)> =
            arrows.iter().filter(|(_, to)| next.get(*to) == Some(&true)).copied().collect();
        ways.sort_by_key(|(range, _)| unpleasantness(*range));
        ways
    }
}

const PLEASANT: [Range; 4] = [(0x61, 0x7A), (0x30, 0x39), (0x41, 0x5A), (0x20, 0x7E)];

fn unpleasantness((low, high): Range) -> usize {
    PLEASANT
        .iter()
        .position(|(first, last)| low <= *last && *first <= high)
        .unwrap_or(PLEASANT.len())
}

/// Up to `count` characters of the range: letters, digits, capitals, signs, then the rest.
fn pleasant((low, high): Range, count: usize) -> Vec<char> {
    let everything = [(0, LAST)];
    let tastes = PLEASANT.iter().chain(&everything).enumerate();
    let in_taste = tastes.flat_map(|(taste, (first, last))| {
        let codes = low.max(*first)..=high.min(*last);
        codes.filter(move |code| unpleasantness((*code, *code)) == taste)
    });
    in_taste.filter_map(char::from_u32).take(count).collect()
}
