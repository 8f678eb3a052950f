use serde::Serialize;

use super::disk::DiskImage;
use super::random::Random;

/// What happens to bytes that were durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CorruptionKind {
    /// One bit changes.
    BitFlip,
    /// One byte becomes another.
    Byte,
    /// A block of 4 KiB becomes zero (or a sector, where the file is small).
    Zeroed,
    /// Two blocks change places, in one file or between two.
    SwappedBlocks,
    /// The end of a file is gone.
    Truncated,
    /// Two files of a kind change names.
    SwappedFiles,
    /// A file is gone.
    Missing,
}

impl CorruptionKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::BitFlip,
        Self::Byte,
        Self::Zeroed,
        Self::SwappedBlocks,
        Self::Truncated,
        Self::SwappedFiles,
        Self::Missing,
    ];
}

/// One corruption that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Corruption {
    /// What was done.
    pub kind: CorruptionKind,
    /// The file it was done to, the first of two.
    pub file: String,
    /// Where, and the other file, in words.
    pub place: String,
}

/// Does a corruption of this kind to a file of `image` whose name ends with `suffix`. `None` if
/// there is none, or if no byte would change.
pub fn corrupt(
    image: &mut DiskImage,
    kind: CorruptionKind,
    suffix: &str,
    random: &mut Random,
) -> Option<Corruption> {
    let mut names: Vec<String> = image
        .iter()
        .filter(|(name, bytes)| name.ends_with(suffix) && !bytes.is_empty())
        .map(|(name, _)| name.clone())
        .collect();
    // A log of one segment that is gone is no log.
    if kind == CorruptionKind::Missing && suffix == ".seg" && names.len() == 1 {
        names.clear();
    }
    if names.is_empty() {
        return None;
    }
    let file = random.pick(&names).clone();
    let place = match kind {
        CorruptionKind::BitFlip | CorruptionKind::Byte => flip(image.get_mut(&file)?, kind, random),
        CorruptionKind::Zeroed => zero(image.get_mut(&file)?, random)?,
        CorruptionKind::SwappedBlocks => {
            swap_blocks(image, (&file, random.pick(&names).as_str()), random)?
        }
        CorruptionKind::Truncated => {
            let bytes = image.get_mut(&file)?;
            let len = random.index(bytes.len());
            bytes.truncate(len);
            format!("to {len}")
        }
        CorruptionKind::SwappedFiles => {
            let other = random.pick(&names).clone();
            if image.get(&file) == image.get(&other) {
                return None;
            }
            let (one, two) = (image.remove(&file)?, image.remove(&other)?);
            image.insert(file.clone(), two);
            image.insert(other.clone(), one);
            format!("with {other}")
        }
        CorruptionKind::Missing => {
            image.remove(&file)?;
            String::new()
        }
    };
    Some(Corruption { kind, file, place })
}

/// Where to hit: half of the hits land in the used part, before the zeroes at the end.
fn position(bytes: &[u8], random: &mut Random) -> usize {
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(bytes.len(), |last| last + 1);
    if random.chance(800) { random.index(used) } else { random.index(bytes.len()) }
}

fn flip(bytes: &mut [u8], kind: CorruptionKind, random: &mut Random) -> String {
    let at = position(bytes, random);
    let change = match kind {
        CorruptionKind::BitFlip => 1 << random.below(8),
        _ => random.between(1, 255) as u8,
    };
    bytes[at] ^= change;
    format!("byte {at} of {} changed by {change:#04x}", bytes.len())
}

fn zero(bytes: &mut [u8], random: &mut Random) -> Option<String> {
    let size = if bytes.len() > 8192 { 4096 } else { 512 };
    let from = position(bytes, random) / size * size;
    let to = (from + size).min(bytes.len());
    let block = &mut bytes[from..to];
    if block.iter().all(|&byte| byte == 0) {
        return None;
    }
    block.fill(0);
    Some(format!("from {from} to {to}"))
}

fn swap_blocks(
    image: &mut DiskImage,
    (file, other): (&str, &str),
    random: &mut Random,
) -> Option<String> {
    let size = *random.pick(&[512, 4096]);
    let one = position(image.get(file)?, random) / size * size;
    let two = position(image.get(other)?, random) / size * size;
    let first = image.get(file)?.get(one..one + size)?.to_vec();
    let second = image.get(other)?.get(two..two + size)?.to_vec();
    if first == second {
        return None;
    }
    image.get_mut(file)?[one..one + size].copy_from_slice(&second);
    image.get_mut(other)?[two..two + size].copy_from_slice(&first);
    Some(format!("{size} bytes at {one} with {other} at {two}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_changes_the_image() {
        let mut random = Random::new(3);
        let base: DiskImage = (0..3u8)
            .map(|number| {
                let byte = |at: usize| number.wrapping_mul(91) ^ (at / 7) as u8;
                (format!("{number}.seg"), (0..10_000).map(byte).collect())
            })
            .collect();
        for kind in CorruptionKind::ALL {
            let mut done = 0;
            for _ in 0..100 {
                let mut image = base.clone();
                if corrupt(&mut image, kind, ".seg", &mut random).is_some() {
                    assert_ne!(image, base, "{kind:?}");
                    done += 1;
                } else {
                    assert_eq!(image, base, "{kind:?}");
                }
            }
            assert!(done > 50, "{kind:?}: {done}");
        }
    }
}
