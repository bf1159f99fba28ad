//! Parses `git check-attr --stdin -z filter`: which files have a filter, which does not run here.

use crate::git_path::GitPath;
use crate::records::{GitOutputError, NulRecords, text};

/// The files that have a filter, with its name. Output that was cut is an error: no file may be missing.
pub fn parse_filter_attributes(output: &[u8]) -> Result<Vec<(GitPath, String)>, GitOutputError> {
    let mut records = NulRecords::new(output);
    let mut filtered = Vec::new();
    while let Some(path) = records.next() {
        let (Some(b"filter"), Some(value)) = (records.next(), records.next()) else {
            return Err(records.error("a list of attributes"));
        };
        if !matches!(value, b"unspecified" | b"unset" | b"set") {
            filtered.push((GitPath::new(path), text(value)));
        }
    }
    if records.is_cut() { Err(records.error("a list of attributes")) } else { Ok(filtered) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_a_filter_are_named() {
        let output = b"a.bin\0filter\0lfs\0b\0filter\0unspecified\0c\0filter\0unset\0";
        let filtered = parse_filter_attributes(output).unwrap();
        assert_eq!(filtered, [(GitPath::new(b"a.bin"), "lfs".to_owned())]);
        for cut in 1..output.len() {
            let whole_triples =
                output[..cut].iter().filter(|byte| **byte == 0).count() % 3 == 0 && output[cut - 1] == 0;
            assert_eq!(parse_filter_attributes(&output[..cut]).is_ok(), whole_triples);
        }
    }
}
