//! The prefilter: at which positions of a text could anything match? Every anchor (a token's first letters, a keyword,
//! four bytes of a known value) enters one four-byte group into a hash table. A text is walked once, and one lookup
//! rejects nearly every position. The remaining positions are compared with up to eight bytes of the anchors of that
//! group; only what passes leaves this loop.
//!
//! The table is built in microseconds, unlike an automaton over as many words, so even a command that runs for 9 ms can
//! afford it, and it is rebuilt whenever the known values change.

use crate::bytes::at;
use crate::precheck::ByteSet;

/// Bytes of a group.
const GROUP_BYTES: usize = 4;
/// The group is taken from this many leading bytes of an anchor.
pub(crate) const ANCHOR_REACH: usize = 48;
/// Number of hash values, one byte each: measured, a table of bits costs more to read than its size saves.
const HASH_VALUES: usize = 1 << 18;
/// Number of buckets; entries are grouped by the upper bits of their hash.
const BUCKETS: usize = 1 << 14;

/// Anchors, indexed by one of their four-byte groups.
pub(crate) struct Prefilter {
    /// For each hash value, eight bits; other bits of the product choose which one a group sets.
    table: Box<[u8; HASH_VALUES]>,
    /// Where the entries of each bucket begin, and the end of the last bucket.
    starts: Vec<u32>,
    entries: Vec<GramEntry>,
}

/// Collects anchors before they are sorted into a table.
pub(crate) struct PrefilterBuilder(Vec<(GramHash, GramEntry)>);

#[derive(Debug, Clone, Copy)]
struct GramEntry {
    /// The expected eight bytes, after `fold` is set and `mask` applied.
    wanted: u64,
    fold: u64,
    mask: u64,
    anchor: u32,
    /// Offset of the group inside the anchor.
    offset: u32,
}

impl GramEntry {
    fn fits(&self, eight: u64) -> bool {
        (eight | self.fold) & self.mask == self.wanted
    }
}

/// How an anchor is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnchorCompare {
    /// Byte for byte.
    Exact,
    /// Ignoring case.
    IgnoreCase,
    /// Only the group, ignoring case: a line break may follow.
    GroupOnly,
}

impl PrefilterBuilder {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(4096))
    }

    /// Adds an anchor of at least three bytes by the group that is rarest in ordinary text. An anchor of three bytes is
    /// added by every group that it can begin; `follows` limits these if it is known.
    pub(crate) fn add(
        &mut self,
        anchor: u32,
        bytes: &[u8],
        compare: AnchorCompare,
        follows: Option<ByteSet>,
    ) {
        let head = bytes.get(..ANCHOR_REACH).unwrap_or(bytes);
        let rarest = head
            .windows(GROUP_BYTES)
            .enumerate()
            .max_by_key(|(offset, group)| (rarity(group), std::cmp::Reverse(*offset)));
        match rarest {
            Some((offset, _)) => self.add_at(anchor, bytes, offset, compare),
            // Three bytes: any fourth byte that may follow; lower case stands for both cases.
            None => {
                let may = |byte: &u8| {
                    byte & 0x20 != 0 && follows.is_none_or(|set| set.has(*byte) || set.has(*byte & !0x20))
                };
                for last in (0..=u8::MAX).filter(may) {
                    let mut group = bytes.to_vec();
                    group.push(last);
                    self.insert(anchor, 0, &group, bytes, compare);
                }
            }
        }
    }

    /// Adds an anchor by the group at `offset`.
    pub(crate) fn add_at(&mut self, anchor: u32, bytes: &[u8], offset: usize, compare: AnchorCompare) {
        if let Some(group) = bytes.get(offset..offset + GROUP_BYTES) {
            self.insert(anchor, offset, group, bytes.get(offset..).unwrap_or_default(), compare);
        }
    }

    fn insert(
        &mut self,
        anchor: u32,
        offset: usize,
        group: &[u8],
        from_there: &[u8],
        compare: AnchorCompare,
    ) {
        let Ok(group) = <[u8; GROUP_BYTES]>::try_from(group) else { return };
        let (mut wanted, mut fold, mut mask) = ([0; 8], [0; 8], [0; 8]);
        let most = if compare == AnchorCompare::GroupOnly { GROUP_BYTES } else { 8 };
        for (n, &byte) in from_there.iter().take(most).enumerate() {
            let folds = compare == AnchorCompare::GroupOnly
                || (compare == AnchorCompare::IgnoreCase && byte.is_ascii_alphabetic());
            let either = if folds { 0x20 } else { 0 };
            for (list, value) in [(&mut wanted, byte | either), (&mut fold, either), (&mut mask, 0xff)] {
                if let Some(place) = list.get_mut(n) {
                    *place = value;
                }
            }
        }
        let entry = GramEntry {
            wanted: u64::from_le_bytes(wanted),
            fold: u64::from_le_bytes(fold),
            mask: u64::from_le_bytes(mask),
            anchor,
            offset: u32::try_from(offset).unwrap_or(0),
        };
        self.0.push((GramHash::of(u64::from(u32::from_le_bytes(group))), entry));
    }

    /// Sorts the entries into the table.
    pub(crate) fn build(mut self) -> Prefilter {
        let Ok(mut table) = Box::<[u8; HASH_VALUES]>::try_from(vec![0_u8; HASH_VALUES].into_boxed_slice())
        else {
            return Prefilter { table: Box::new([1; HASH_VALUES]), starts: Vec::new(), entries: Vec::new() };
        };
        for (hash, _) in &self.0 {
            if let Some(byte) = table.get_mut(hash.value()) {
                *byte |= hash.bit();
            }
        }
        // The entry added last comes first.
        self.0.reverse();
        self.0.sort_by_key(|(hash, _)| hash.bucket());
        let mut starts = Vec::with_capacity(BUCKETS + 1);
        for (n, (hash, _)) in self.0.iter().enumerate() {
            let bucket = hash.bucket();
            while starts.len() <= bucket {
                starts.push(u32::try_from(n).unwrap_or(u32::MAX));
            }
        }
        starts.resize(BUCKETS + 1, u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        Prefilter { table, starts, entries: self.0.into_iter().map(|(_, entry)| entry).collect() }
    }
}

impl Prefilter {
    /// Returns the first position in `from..to` where an anchor may match and `accept` accepts it; `accept` gets the
    /// anchor and the position where the anchor would begin.
    #[expect(clippy::indexing_slicing, reason = "a hash is below the size of the table")]
    pub(crate) fn next(
        &self,
        text: &[u8],
        from: usize,
        to: usize,
        accept: impl Fn(u32, usize) -> bool,
    ) -> Option<usize> {
        let hit = |group: u64| self.table[GramHash::of(group).value()];
        let mut place = from;
        // Twelve bytes hold the groups of eight positions; one branch covers all eight.
        while place + 8 <= to {
            let Some((Some(low), Some(high))) =
                text.get(place..place + 12).map(|there| (there.first_chunk(), there.last_chunk()))
            else {
                break;
            };
            let (low, high) = (u64::from_le_bytes(*low) | FOLD, u64::from_le_bytes(*high) | FOLD);
            let (a, b, c, d) = (hit(low), hit(low >> 8), hit(low >> 16), hit(low >> 24));
            let (e, f, g, h) = (hit(high), hit(high >> 8), hit(high >> 16), hit(high >> 24));
            if a | b | c | d | e | f | g | h != 0
                && let Some(found) =
                    self.first_of_eight(text, place, u64::from_le_bytes([a, b, c, d, e, f, g, h]), &accept)
            {
                return Some(found);
            }
            place += 8;
        }
        (place..to).find(|&place| {
            hit(eight_at(text, place)) != 0
                && self.at(text, place).any(|(anchor, start)| accept(anchor, start))
        })
    }

    /// The first match among eight positions, given their table bytes in `hits`.
    #[inline(never)]
    fn first_of_eight(
        &self,
        text: &[u8],
        place: usize,
        mut hits: u64,
        accept: impl Fn(u32, usize) -> bool,
    ) -> Option<usize> {
        while hits != 0 {
            let shift = hits.trailing_zeros() & !7;
            let there = place + (shift / 8) as usize;
            let eight = eight_at(text, there);
            if (hits >> shift) as u8 & GramHash::of(eight).bit() != 0
                && self.entries_for(eight, there).any(|(anchor, start)| accept(anchor, start))
            {
                return Some(there);
            }
            hits &= !(0xff << shift);
        }
        None
    }

    /// The anchors that may match at a position, each with the position where it would begin.
    pub(crate) fn at<'a>(&'a self, text: &[u8], place: usize) -> impl Iterator<Item = (u32, usize)> + 'a {
        self.entries_for(eight_at(text, place), place)
    }

    fn entries_for(&self, eight: u64, place: usize) -> impl Iterator<Item = (u32, usize)> + '_ {
        let bucket = GramHash::of(eight).bucket();
        let edge = |n: usize| self.starts.get(n).map_or(0, |start| *start as usize);
        let entries = self.entries.get(edge(bucket)..edge(bucket + 1)).unwrap_or_default();
        entries
            .iter()
            .filter(move |entry| entry.fits(eight))
            .filter_map(move |entry| Some((entry.anchor, place.checked_sub(entry.offset as usize)?)))
    }
}

/// Eight bytes, padded with zeros at the end of the text.
fn eight_at(text: &[u8], place: usize) -> u64 {
    match text.get(place..).and_then(<[u8]>::first_chunk) {
        Some(eight) => u64::from_le_bytes(*eight),
        None => u64::from_le_bytes(std::array::from_fn(|n| at(text, place + n))),
    }
}

/// Folds letters to lower case.
const FOLD: u64 = 0x2020_2020_2020_2020;

/// Hash of four bytes.
#[derive(Debug, Clone, Copy)]
struct GramHash(u32);

impl GramHash {
    /// Hashes the lower four bytes.
    fn of(eight: u64) -> Self {
        Self((eight as u32 | FOLD as u32).wrapping_mul(0x9e37_79b1))
    }

    fn value(self) -> usize {
        (self.0 >> 14) as usize
    }

    fn bit(self) -> u8 {
        1 << (self.0 >> 9 & 7)
    }

    fn bucket(self) -> usize {
        (self.0 >> 18) as usize
    }
}

/// How rare a group is: the sum over its three letter pairs.
fn rarity(group: &[u8]) -> u32 {
    let of = |pair: &[u8]| {
        let sort = |byte: Option<&u8>| match byte.map(u8::to_ascii_lowercase) {
            Some(letter @ b'a'..=b'z') => usize::from(letter - b'a'),
            Some(b'0'..=b'9') => 26,
            Some(b'_') => 27,
            _ => 28,
        };
        let row = PAIR_RARITY.get(sort(pair.first()));
        let digit = row.and_then(|row| row.get(sort(pair.last()))).copied();
        digit.and_then(|digit| char::from(digit).to_digit(36)).unwrap_or(0)
    };
    group.windows(2).map(of).sum()
}

/// How rarely a letter (row) is followed by another (column) in 75 MB of source: `a` to `z`, a digit, `_`, anything
/// else. Digits are base 36 and count halvings, starting at 2^-5.
#[rustfmt::skip]
const PAIR_RARITY: [&[u8; 29]; 29] = [
    b"35346749496343757332576759987",
    b"59895a9a66b5aa5aa7795bac6baa8",
    b"387848a3695499389573699989987",
    b"587638994a9688589667689a7ca66",
    b"3733546879834265522385635a954",
    b"598956bb4cc7a84ab5775bbc8ca96",
    b"689a49875bb6868aa6667aababb77",
    b"499a39bb4bb98a59b6867bbc9cc87",
    b"5644545b9b8442369533a6b7c6b98",
    b"9aab6ccbacbccc8bbc6c9b9cbccdb",
    b"699a4a9a6bb9a89ab97a9b8cbcc88",
    b"4885348a3a849948a855479c6bc77",
    b"36883aab59b76954b9697aababb87",
    b"494336395a678646a833569c7bb65",
    b"6554856a69644254b2544658aac87",
    b"39973aa85ca59a45b46458aa6cb88",
    b"7aaa9aababbbbbcc9b9b5cbcaccba",
    b"3856275a3c765438b444568c5cb66",
    b"585828854b777845a84259896cb65",
    b"385727a22ba67836b34449884ba55",
    b"6667477b5cb45495c3449bcabb9ca",
    b"4aaa4bbb6ccbaa7cbbabbbcbbcaa9",
    b"5aa96aa65ba9a76ab679bb9bbcc99",
    b"796979bb7bca9ba5cb95cbca9c888",
    b"79888a9b8bb78684b866bb9ccbc77",
    b"8abb6cbc8cdbbc6cccbcccbbabcda",
    b"9999aaccccdcccccccccbcc8dc7b8",
    b"7766668869877776b656878cc9b59",
    b"6757668859877666a655777aa9874",
];
