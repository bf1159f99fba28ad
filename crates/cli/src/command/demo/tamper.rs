//! Alters a copy of the ledger as an attacker would, to hide a denied call. It changes the segments because they are plain
//! files; a changed table is detected in the same way.
#![expect(clippy::disallowed_methods, reason = "the demo changes a copy of its own state")]

use std::fs;

use super::temp_project::{DemoProject, copy, fault};
use crate::failure::Failure;

/// Content of the record of the denied call, before and after.
const WAS: &str = r#""target_path":".env""#;
const BECOMES: &str = r#""target_path":"a.md""#;

/// How the record is altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tampering {
    /// Its content is changed.
    Rewrite,
    /// It is removed.
    Remove,
}

impl Tampering {
    /// Name of the copy.
    pub(super) fn copy(self) -> &'static str {
        match self {
            Self::Rewrite => "copy-1",
            Self::Remove => "copy-2",
        }
    }

    /// The equivalent shell command.
    pub(super) fn typed(self) -> String {
        let edit = match self {
            Self::Rewrite => format!("s/{WAS}/{BECOMES}/"),
            Self::Remove => format!("/{WAS}/d"),
        };
        format!("cp -r \"$VAMBRACE_HOME\" ../{0} && sed -i '{edit}' ../{0}/ledger/*.jsonl", self.copy())
    }

    fn done_to(self, text: &str) -> String {
        match self {
            Self::Rewrite => text.replace(WAS, BECOMES),
            Self::Remove => text.split_inclusive('\n').filter(|line| !line.contains(WAS)).collect(),
        }
    }
}

/// Copies the state and changes the copy.
pub(super) fn tamper(project: &DemoProject, tampering: Tampering) -> Result<(), Failure> {
    let target = project.beside(tampering.copy());
    let io = |error: std::io::Error| fault("the copy of the state", &error);
    copy(&project.state(), &target).map_err(io)?;
    let mut changed = false;
    for entry in fs::read_dir(target.join("ledger")).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let text = fs::read_to_string(&path).map_err(io)?;
        let after = tampering.done_to(&text);
        if after != text {
            fs::write(path, after).map_err(io)?;
            changed = true;
        }
    }
    if changed { Ok(()) } else { Err(Failure::failed("the record to alter is not in the copy")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_record_of_the_denied_call_is_altered() {
        let text = format!("{{\"a\":1}}\n{{{WAS}}}\n{{\"b\":2}}\n");
        assert_eq!(Tampering::Rewrite.done_to(&text), format!("{{\"a\":1}}\n{{{BECOMES}}}\n{{\"b\":2}}\n"));
        assert_eq!(Tampering::Remove.done_to(&text), "{\"a\":1}\n{\"b\":2}\n");
    }
}
