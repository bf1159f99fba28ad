//! What a power cut leaves of bytes that were written and not synced. Disks write sectors, and each of them whole or
//! not at all; what was never written reads as zeros. So a sector holds the beginning of what was written to it, and
//! zeros behind that. Anything else was written by somebody else. (No line holds a zero byte.)

/// The smallest piece that a disk writes.
const SECTOR: u64 = 512;

/// A comparison of what is there with what was written.
#[derive(Debug)]
pub(crate) struct Remains {
    offset: u64,
    /// The rest of this sector was never written.
    lost: bool,
}

impl Remains {
    /// From an offset of a file on.
    pub(crate) fn at(offset: u64) -> Self {
        Self { offset, lost: false }
    }

    /// How far the comparison has come.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the next bytes that are there can be left of the next bytes that were written.
    pub(crate) fn fit(&mut self, mut pairs: impl Iterator<Item = (u8, u8)>) -> bool {
        pairs.all(|(there, written)| {
            if self.offset.is_multiple_of(SECTOR) {
                self.lost = false;
            }
            self.lost |= there == 0;
            self.offset += 1;
            there == if self.lost { 0 } else { written }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(start: u64, there: &[u8], written: &[u8]) -> bool {
        let mut remains = Remains::at(start);
        remains.fit(there.iter().copied().zip(written.iter().copied()))
    }

    #[test]
    fn sectors_are_there_lost_or_begun() {
        let written: Vec<u8> = (0..2000_u32).map(|n| b'a' + u8::try_from(n % 26).unwrap()).collect();
        assert!(check(100, &written, &written));
        for lost in [0..412, 412..924, 924..1436, 700..924, 1990..2000] {
            let mut there = written.clone();
            there[lost.clone()].fill(0);
            assert!(check(100, &there, &written), "{lost:?}");
        }
        for hole in [0..411, 413..924, 500..501, 900..925] {
            let mut there = written.clone();
            there[hole.clone()].fill(0);
            // Behind a zero nothing comes in the same sector; a hole up to a sector's end is one that was begun.
            let ends_sector = (hole.end as u64 + 100).is_multiple_of(SECTOR);
            assert_eq!(check(100, &there, &written), ends_sector, "{hole:?}");
        }
        let mut other = written.clone();
        other[1000] ^= 1;
        assert!(!check(100, &other, &written));
    }
}
