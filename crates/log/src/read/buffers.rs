use std::collections::VecDeque;

use bytes::Bytes;

/// Memory that was given out and may come back.
const BUFFERS_MAX: usize = 8;

/// What was read into and given out. Those who get records share in it; when they are done with it
/// it is read into again: fresh memory costs more than what is read into it.
#[derive(Debug, Default)]
pub(super) struct Buffers(VecDeque<Bytes>);

impl Buffers {
    /// Memory to read into, perhaps that of an earlier read.
    pub(super) fn next(&mut self, earlier: Bytes) -> Vec<u8> {
        if earlier.is_unique() {
            return cleared(earlier);
        }
        if !earlier.is_empty() {
            self.0.push_back(earlier);
        }
        if let Some(free) = self.0.iter().position(Bytes::is_unique) {
            return self.0.remove(free).map(cleared).unwrap_or_default();
        }
        if self.0.len() > BUFFERS_MAX {
            self.0.pop_front();
        }
        Vec::new()
    }
}

fn cleared(bytes: Bytes) -> Vec<u8> {
    let mut buffer = bytes.try_into_mut().map(Vec::from).unwrap_or_default();
    buffer.clear();
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_nobody_holds_it() {
        let mut buffers = Buffers::default();
        let first = Bytes::from(vec![1; 100]);
        let place = first.as_ptr();
        let held = first.slice(10..20);
        assert!(buffers.next(first).capacity() < 100, "somebody holds it");
        drop(held);
        let again = buffers.next(Bytes::new());
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        let unheld = buffers.next(Bytes::from(again));
        assert_eq!(unheld.len(), 0);
    }

    #[test]
    fn only_so_much_is_kept() {
        let mut buffers = Buffers::default();
        let held: Vec<Bytes> = (0..100).map(|_| Bytes::from(vec![1; 10])).collect();
        for bytes in &held {
            assert_eq!(buffers.next(bytes.clone()).capacity(), 0);
        }
        assert!(buffers.0.len() <= BUFFERS_MAX + 1);
    }
}
