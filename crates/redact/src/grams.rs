//! The first look: where in a text could something stand? Every anchor (a token's first letters, a telling word,
//! four bytes of a known value) puts one group of four bytes into a table of bits; a text is walked once and
//! nearly every place is dismissed by one look into 16 KiB. What remains is compared with the anchors themselves.
//!
//! Made in microseconds, unlike an automaton over as many words, so that a command that runs for 9 ms can have it too,
//! and anew whenever known values change.

use crate::bytes::at;

/// Bytes of a group.
const GROUP: usize = 4;
/// A group is taken from the first so many bytes of an anchor.
pub(crate) const ANCHOR_REACH: usize = 48;
const TABLE: usize = 1 << 16;
/// The bits have more room than the table, so that fewer places are looked at in vain: 16 KiB.
const BITS: usize = 1 << 17;

/// Anchors by the groups they hold.
pub(crate) struct Grams {
    /// One bit for each value of the hash.
    bits: Box<[u64; BITS / 64]>,
    /// The first entry for each value of the hash, plus one; zero for none.
    heads: Vec<u32>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    anchor: u32,
    /// Where in the anchor the group stands.
    offset: u8,
    /// The next entry of the same hash, plus one.
    next: u32,
}

impl Grams {
    pub(crate) fn new() -> Self {
        Self { bits: Box::new([0; BITS / 64]), heads: vec![0; TABLE], entries: Vec::new() }
    }

    /// Adds an anchor of at least three bytes by the group that is rarest in ordinary text; one of three bytes by every
    /// group that it may begin, which are fewer where a token goes on after it.
    pub(crate) fn add(&mut self, anchor: u32, bytes: &[u8], token: bool) {
        let head = bytes.get(..ANCHOR_REACH).unwrap_or(bytes);
        let rarest = head
            .windows(GROUP)
            .enumerate()
            .max_by_key(|(offset, group)| (rarity(group), std::cmp::Reverse(*offset)));
        match rarest {
            Some((offset, group)) => self.enter(anchor, offset, group),
            // Three bytes: whatever may follow them.
            None => {
                let follows = |byte: &u8| {
                    byte & 0x20 != 0
                        && (!token
                            || byte.is_ascii_lowercase()
                            || byte.is_ascii_digit()
                            || matches!(byte, b'-' | b'.' | 0x7f))
                };
                for last in (0..=u8::MAX).filter(follows) {
                    let mut group = bytes.to_vec();
                    group.push(last);
                    self.enter(anchor, 0, &group);
                }
            }
        }
    }

    /// Adds an anchor by the group at a place of its own.
    pub(crate) fn add_at(&mut self, anchor: u32, bytes: &[u8], offset: usize) {
        if let Some(group) = bytes.get(offset..offset + GROUP) {
            self.enter(anchor, offset, group);
        }
    }

    fn enter(&mut self, anchor: u32, offset: usize, group: &[u8]) {
        let Ok(group) = <[u8; GROUP]>::try_from(group) else { return };
        let hash = hash(u32::from_le_bytes(group));
        if let Some(word) = self.bits.get_mut((hash >> 6) as usize) {
            *word |= 1 << (hash & 63);
        }
        let Some(head) = self.heads.get_mut((hash >> 1) as usize) else { return };
        let offset = u8::try_from(offset).unwrap_or(0);
        self.entries.push(Entry { anchor, offset, next: *head });
        *head = u32::try_from(self.entries.len()).unwrap_or(0);
    }

    /// The first place from `from` on, before `to`, where a group of some anchor may stand.
    #[expect(clippy::indexing_slicing, reason = "a hash of 17 bits divided by 64 is below 2048")]
    pub(crate) fn next(&self, text: &[u8], from: usize, to: usize) -> Option<usize> {
        let hit = |group: u32| {
            let hash = hash(group);
            self.bits[(hash >> 6) as usize] >> (hash & 63) & 1
        };
        let mut place = from;
        // Eight bytes hold the groups of four places; one branch for all four.
        while place + GROUP <= to {
            let Some(Ok(eight)) = text.get(place..place + 8).map(<[u8; 8]>::try_from) else { break };
            let all = u64::from_le_bytes(eight);
            let (a, b) = (hit(all as u32), hit((all >> 8) as u32));
            let (c, d) = (hit((all >> 16) as u32), hit((all >> 24) as u32));
            if a | b | c | d != 0 {
                let first = if a != 0 {
                    0
                } else if b != 0 {
                    1
                } else if c != 0 {
                    2
                } else {
                    3
                };
                return Some(place + first);
            }
            place += GROUP;
        }
        (place..to).find(|&place| hit(group_at(text, place)) != 0)
    }

    /// The anchors whose group may stand at a place, each with where it would begin.
    pub(crate) fn at<'a>(&'a self, text: &[u8], place: usize) -> impl Iterator<Item = (u32, usize)> + 'a {
        let hash = hash(group_at(text, place));
        let mut entry = self.heads.get((hash >> 1) as usize).copied().unwrap_or(0);
        std::iter::from_fn(move || {
            let found = self.entries.get(usize::try_from(entry).ok()?.checked_sub(1)?)?;
            entry = found.next;
            Some((found.anchor, place.checked_sub(usize::from(found.offset))))
        })
        .filter_map(|(anchor, start)| Some((anchor, start?)))
    }
}

/// Four bytes, filled up with zeros at the end of a text.
fn group_at(text: &[u8], place: usize) -> u32 {
    u32::from_le_bytes([at(text, place), at(text, place + 1), at(text, place + 2), at(text, place + 3)])
}

/// Letters of either case give the same.
fn hash(group: u32) -> u32 {
    (group | 0x2020_2020).wrapping_mul(0x9e37_79b1) >> 15
}

/// How seldom a group is, roughly: rare letters, digits and signs count.
fn rarity(group: &[u8]) -> u32 {
    let of = |byte: u8| match byte.to_ascii_lowercase() {
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | b' ' => 0,
        b'h' | b'd' | b'l' | b'u' | b'c' | b'm' | b'p' | b'f' => 2,
        b'g' | b'w' | b'y' | b'b' | b'v' | b'-' | b'_' | b'.' | b'/' | b'=' | b'"' => 3,
        b'k' | b'x' | b'0'..=b'9' => 4,
        _ => 5,
    };
    group.iter().map(|&byte| of(byte)).sum()
}
