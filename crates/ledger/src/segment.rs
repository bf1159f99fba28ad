//! Segments: copies of the table's lines as files, for people and other programs. A segment is named after its first
//! record and holds exactly the lines of the table, each with a newline.

use std::fmt;

/// Size in bytes from which a segment is followed by a new one.
pub const MAX_SEGMENT_BYTES: u64 = 64 << 20;

/// The name of a segment: the number of its first record in 20 digits, so that names sort like records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentName(u64);

impl SegmentName {
    /// The segment that begins with a record.
    #[must_use]
    pub const fn starting(seq: u64) -> Self {
        Self(seq)
    }

    /// Its first record.
    #[must_use]
    pub const fn first_seq(self) -> u64 {
        self.0
    }

    /// The file name.
    #[must_use]
    pub fn file_name(self) -> String {
        format!("{:020}.jsonl", self.0)
    }

    /// Parses a file name.
    #[must_use]
    pub fn parse(file_name: &str) -> Option<Self> {
        let name = Self(file_name.strip_suffix(".jsonl")?.parse().ok()?);
        (name.file_name() == file_name).then_some(name)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_sort_like_records() {
        let name = SegmentName::starting(42);
        assert_eq!(name.file_name(), "00000000000000000042.jsonl");
        assert_eq!(SegmentName::parse(&name.file_name()), Some(name));
        for bad in ["42.jsonl", "+0000000000000000042.jsonl", "00000000000000000042.json", "checkpoint"] {
            assert_eq!(SegmentName::parse(bad), None, "{bad}");
        }
    }
}
