//! Parses `--raw --numstat -z`: which files differ, and by how many lines.

use serde_json::{Value, json};

use crate::git_path::GitPath;
use crate::records::{GitOutputError, MAX_ENTRIES, NulRecords, number, text};
use crate::status::FileState;

const EXPECTED: &str = "a list of changed files";

/// Files that differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiffSummary {
    /// The files, in git's order.
    pub files: Vec<GitFileDiff>,
    /// Whether the list is not complete.
    pub truncated: bool,
}

/// How one file differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitFileDiff {
    /// The path.
    pub path: GitPath,
    /// The path before a rename or copy.
    pub original: Option<GitPath>,
    /// How it differs.
    pub state: FileState,
    /// The mode before, in octal digits; `000000` if it did not exist.
    pub old_mode: String,
    /// The mode after.
    pub new_mode: String,
    /// The object after; zeros if git has not stored it.
    pub new_object: String,
    /// Lines added; `None` for a binary file, or before the counts were read.
    pub added: Option<u64>,
    /// Lines deleted.
    pub deleted: Option<u64>,
    /// Whether it is a binary file.
    pub binary: bool,
}

impl DiffSummary {
    /// Parses the output; output that was cut gives what is complete.
    pub fn parse(output: &[u8]) -> Result<Self, GitOutputError> {
        let mut records = NulRecords::new(output);
        let mut summary = Self::default();
        let mut counts = 0;
        while let Some(record) = records.next() {
            summary.record(record, &mut records, &mut counts)?;
        }
        summary.truncated |= records.is_cut();
        Ok(summary)
    }

    /// Takes one record and the paths that follow it. `counts` is how many line counts were read: they come in the order of
    /// the files.
    pub(crate) fn record(
        &mut self,
        record: &[u8],
        records: &mut NulRecords<'_>,
        counts: &mut usize,
    ) -> Result<(), GitOutputError> {
        let error = records.error(EXPECTED);
        match record.first() {
            Some(b':') => self.raw_record(record, records, error),
            Some(b'0'..=b'9' | b'-') => self.count_record(record, records, counts, error),
            _ => Err(error),
        }
    }

    fn raw_record(
        &mut self,
        record: &[u8],
        records: &mut NulRecords<'_>,
        error: GitOutputError,
    ) -> Result<(), GitOutputError> {
        let fields: Vec<&[u8]> = record.split(|byte| *byte == b' ').collect();
        let [old_mode, new_mode, _, new_object, state] = fields.as_slice() else { return Err(error) };
        let state = state.first().and_then(|letter| FileState::from_letter(*letter)).ok_or(error)?;
        let renamed = matches!(state, FileState::Renamed | FileState::Copied);
        let first = records.next();
        let second = if renamed { records.next() } else { None };
        let (path, original) = match (first, second) {
            (Some(original), Some(path)) => (path, Some(GitPath::new(original))),
            (Some(path), None) if !renamed => (path, None),
            _ => {
                self.truncated = true;
                return Ok(());
            }
        };
        if self.files.len() == MAX_ENTRIES {
            self.truncated = true;
            return Ok(());
        }
        self.files.push(GitFileDiff {
            path: GitPath::new(path),
            original,
            state,
            old_mode: text(old_mode.strip_prefix(b":").unwrap_or(old_mode)),
            new_mode: text(new_mode),
            new_object: text(new_object),
            added: None,
            deleted: None,
            binary: false,
        });
        Ok(())
    }

    fn count_record(
        &mut self,
        record: &[u8],
        records: &mut NulRecords<'_>,
        counts: &mut usize,
        error: GitOutputError,
    ) -> Result<(), GitOutputError> {
        let fields: Vec<&[u8]> = record.splitn(3, |byte| *byte == b'\t').collect();
        let [added, deleted, path] = fields.as_slice() else { return Err(error) };
        let path = match path {
            // A rename: two paths follow.
            [] => records.next().and_then(|_| records.next()),
            path => Some(*path),
        };
        let index = *counts;
        *counts += 1;
        match (path, self.files.get_mut(index)) {
            (Some(path), Some(file)) if file.path.as_bytes() == path => {
                (file.added, file.deleted) = (number(added), number(deleted));
                file.binary = *added == b"-";
                Ok(())
            }
            // Without its file, the count has no place.
            (None, _) | (_, None) if self.truncated || path.is_none() => {
                self.truncated = true;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// For a result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ "files": self.files_json(), "truncated": self.truncated })
    }

    pub(crate) fn files_json(&self) -> Vec<Value> {
        self.files.iter().map(GitFileDiff::to_json).collect()
    }
}

impl GitFileDiff {
    fn to_json(&self) -> Value {
        let mut file = json!({ "path": self.path.to_string(), "state": self.state.as_str() });
        let Some(fields) = file.as_object_mut() else { return file };
        if let Some(original) = &self.original {
            fields.insert("original_path".to_owned(), original.to_string().into());
        }
        if self.old_mode != self.new_mode {
            fields.insert("old_mode".to_owned(), self.old_mode.clone().into());
            fields.insert("new_mode".to_owned(), self.new_mode.clone().into());
        }
        if self.binary {
            fields.insert("binary".to_owned(), true.into());
        } else {
            fields.insert("added".to_owned(), self.added.into());
            fields.insert("deleted".to_owned(), self.deleted.into());
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn sample() -> String {
        format!(
            ":100644 100644 {ZERO} {ZERO} R066\0a\0b\n\0:000000 100755 {ZERO} {ZERO} A\0bin\0\
             :100644 100644 {ZERO} {ZERO} M\0:x\x001\t0\t\0a\0b\n\0-\t-\tbin\x002\t3\t:x\0"
        )
    }

    #[test]
    fn files_have_states_and_line_counts() {
        let summary = DiffSummary::parse(sample().as_bytes()).unwrap();
        assert!(!summary.truncated);
        assert_eq!(
            summary.to_json()["files"],
            json!([
                {"path": "\"b\\n\"", "state": "renamed", "original_path": "a", "added": 1, "deleted": 0},
                {"path": "bin", "state": "added", "old_mode": "000000", "new_mode": "100755", "binary": true},
                {"path": ":x", "state": "modified", "added": 2, "deleted": 3},
            ])
        );
    }

    #[test]
    fn cut_output_is_parsed_and_other_output_is_not() {
        let whole = sample();
        let complete = DiffSummary::parse(whole.as_bytes()).unwrap();
        for end in 0..whole.len() {
            let summary = DiffSummary::parse(&whole.as_bytes()[..end]).unwrap();
            assert!(summary.files.len() <= complete.files.len());
            assert!(summary.files.iter().zip(&complete.files).all(|(a, b)| a.path == b.path));
        }
        for other in [&b"x\0"[..], b":1 2 3\0a\0", b"1\t1\ta\0", b":1 2 3 4 X\0a\0"] {
            assert!(DiffSummary::parse(other).is_err(), "{}", other.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_output_never_panics(output in "([:0-9a-z\\t -]{0,20}\\x00){0,8}[:0-9]{0,4}", raw: Vec<u8>) {
            let _ = DiffSummary::parse(output.as_bytes()).map(|summary| summary.to_json());
            let _ = DiffSummary::parse(&raw);
        }
    }
}
