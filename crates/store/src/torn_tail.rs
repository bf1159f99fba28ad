//! What a power cut leaves of bytes that were written and not synced. A disk writes whole sectors, each
//! completely or not at all; what was never written reads as zeros. So a sector holds the beginning of what was
//! written to it, followed by zeros. Anything else was written by another program. (No line contains a zero
//! byte.)

/// The smallest unit that a disk writes.
const SECTOR_BYTES: u64 = 512;

/// Compares the bytes of a file with the bytes that were written.
#[derive(Debug)]
pub(crate) struct TornTail {
    offset: u64,
    /// The rest of this sector was never written.
    unwritten: bool,
}

impl TornTail {
    /// Starts at an offset of the file.
    pub(crate) fn at(offset: u64) -> Self {
        Self { offset, unwritten: false }
    }

    /// How far the comparison has come.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the next bytes of the file can be left of the next bytes that were written.
    pub(crate) fn matches(&mut self, mut pairs: impl Iterator<Item = (u8, u8)>) -> bool {
        pairs.all(|(there, written)| {
            if self.offset.is_multiple_of(SECTOR_BYTES) {
                self.unwritten = false;
            }
            self.unwritten |= there == 0;
            self.offset += 1;
            there == if self.unwritten { 0 } else { written }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(start: u64, there: &[u8], written: &[u8]) -> bool {
        let mut torn_tail = TornTail::at(start);
        torn_tail.matches(there.iter().copied().zip(written.iter().copied()))
    }

    #[test]
    fn each_sector_is_complete_missing_or_begun() {
        let written: Vec<u8> = (0..2000_u32).map(|n| b'a' + u8::try_from(n % 26).unwrap()).collect();
        assert!(check(100, &written, &written));
        for unwritten in [0..412, 412..924, 924..1436, 700..924, 1990..2000] {
            let mut there = written.clone();
            there[unwritten.clone()].fill(0);
            assert!(check(100, &there, &written), "{unwritten:?}");
        }
        for hole in [0..411, 413..924, 500..501, 900..925] {
            let mut there = written.clone();
            there[hole.clone()].fill(0);
            // Nothing follows a zero in the same sector; a hole up to the end of a sector is a sector that was
            // begun.
            let ends_sector = (hole.end as u64 + 100).is_multiple_of(SECTOR_BYTES);
            assert_eq!(check(100, &there, &written), ends_sector, "{hole:?}");
        }
        let mut other = written.clone();
        other[1000] ^= 1;
        assert!(!check(100, &other, &written));
    }
}
