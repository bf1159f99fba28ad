//! Records that end with a NUL byte, as git prints them with `-z`.

/// Maximum number of entries that a parser returns.
pub(crate) const MAX_ENTRIES: usize = 20_000;

/// Output of git that has another form than expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the output of git is not {expected} (record {record})")]
pub struct GitOutputError {
    /// What was expected.
    pub expected: &'static str,
    /// The record, counted from 1.
    pub record: usize,
}

/// Reads records one by one. Output may be cut anywhere: an incomplete last record is left out.
#[derive(Debug, Clone)]
pub(crate) struct NulRecords<'o> {
    rest: &'o [u8],
    count: usize,
}

impl<'o> NulRecords<'o> {
    pub(crate) fn new(output: &'o [u8]) -> Self {
        Self { rest: output, count: 0 }
    }

    /// Whether the output ends inside a record.
    pub(crate) fn is_cut(&self) -> bool {
        !self.rest.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<&'o [u8]> {
        self.clone().next()
    }

    pub(crate) fn error(&self, expected: &'static str) -> GitOutputError {
        GitOutputError { expected, record: self.count }
    }
}

impl<'o> Iterator for NulRecords<'o> {
    type Item = &'o [u8];

    fn next(&mut self) -> Option<&'o [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let (record, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.get(1..).unwrap_or_default();
        self.count += 1;
        Some(record)
    }
}

/// Text of git for people: names of branches, commits, people.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    if digits { std::str::from_utf8(bytes).ok()?.parse().ok() } else { None }
}
