//! Tampering with a copy of the ledger: what somebody would do who wants a refused call to look harmless.
#![expect(clippy::disallowed_methods, reason = "the demo changes a copy of its own state")]

use std::fs;
use std::path::Path;

use super::stage::{Stage, copy, fault};
use crate::failure::Failure;

/// What the record says, and what it is made to say; of the same length, so that a database file stays one.
const WAS: &str = r#""target_path":".env""#;
const BECOMES: &str = r#""target_path":"a.md""#;

/// Where the record is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// In the segment, a file of lines.
    Segment,
    /// In the table of the database.
    Table,
}

impl Where {
    /// The name of the copy.
    pub(super) fn copy(self) -> &'static str {
        match self {
            Self::Segment => "copy-1",
            Self::Table => "copy-2",
        }
    }

    fn is_in(self, file: &str) -> bool {
        match self {
            Self::Segment => file.ends_with(".jsonl"),
            Self::Table => file.starts_with("vambrace.db"),
        }
    }

    /// The same in the words of a shell.
    pub(super) fn typed(self) -> String {
        let files = match self {
            Self::Segment => format!("../{}/ledger/*.jsonl", self.copy()),
            Self::Table => format!("../{}/vambrace.db", self.copy()),
        };
        format!("cp -r \"$VAMBRACE_HOME\" ../{} && sed -i 's/{WAS}/{BECOMES}/' {files}", self.copy())
    }
}

/// Copies the state and changes one record of the copy.
pub(super) fn tamper(stage: &Stage, place: Where) -> Result<(), Failure> {
    let target = stage.beside(place.copy());
    let io = |error: std::io::Error| fault("the copy of the state", &error);
    copy(&stage.state(), &target).map_err(io)?;
    let mut changed = 0;
    for folder in [target.join("ledger"), target] {
        for entry in fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.file_name().is_some_and(|name| place.is_in(&name.to_string_lossy())) {
                changed += change(&path).map_err(io)?;
            }
        }
    }
    if changed == 0 { Err(Failure::failed("the record to change is not in the copy")) } else { Ok(()) }
}

fn change(file: &Path) -> std::io::Result<usize> {
    let mut bytes = fs::read(file)?;
    let mut changed = 0;
    let mut from = 0;
    while let Some(found) = bytes.get(from..).and_then(|rest| rest.windows(WAS.len()).position(|part| part == WAS.as_bytes())) {
        from += found;
        if let Some(place) = bytes.get_mut(from..from + WAS.len()) {
            place.copy_from_slice(BECOMES.as_bytes());
            changed += 1;
        }
    }
    if changed > 0 {
        fs::write(file, bytes)?;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_keeps_the_length() {
        assert_eq!(WAS.len(), BECOMES.len());
        let temp = tempfile::NamedTempFile::new().unwrap();
        fs::write(temp.path(), format!("x{WAS}y{WAS}")).unwrap();
        assert_eq!(change(temp.path()).unwrap(), 2);
        assert_eq!(fs::read_to_string(temp.path()).unwrap(), format!("x{BECOMES}y{BECOMES}"));
    }
}
