//! Tampering with a copy of the ledger: what somebody would do who wants a refused call to look harmless, or not to
//! have happened. The segments are changed, being plain files; a changed table is found the same way.
#![expect(clippy::disallowed_methods, reason = "the demo changes a copy of its own state")]

use std::fs;

use super::stage::{Stage, copy, fault};
use crate::failure::Failure;

/// What the record of the refused call says, and what it is made to say.
const WAS: &str = r#""target_path":".env""#;
const BECOMES: &str = r#""target_path":"a.md""#;

/// What is done to the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// It says something else.
    Rewrite,
    /// It is gone.
    Remove,
}

impl Deed {
    /// The name of the copy.
    pub(super) fn copy(self) -> &'static str {
        match self {
            Self::Rewrite => "copy-1",
            Self::Remove => "copy-2",
        }
    }

    /// The same in the words of a shell.
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
pub(super) fn tamper(stage: &Stage, deed: Deed) -> Result<(), Failure> {
    let target = stage.beside(deed.copy());
    let io = |error: std::io::Error| fault("the copy of the state", &error);
    copy(&stage.state(), &target).map_err(io)?;
    let mut changed = false;
    for entry in fs::read_dir(target.join("ledger")).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let text = fs::read_to_string(&path).map_err(io)?;
        let after = deed.done_to(&text);
        if after != text {
            fs::write(path, after).map_err(io)?;
            changed = true;
        }
    }
    if changed { Ok(()) } else { Err(Failure::failed("the record to change is not in the copy")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_record_of_the_refused_call_is_touched() {
        let text = format!("{{\"a\":1}}\n{{{WAS}}}\n{{\"b\":2}}\n");
        assert_eq!(Deed::Rewrite.done_to(&text), format!("{{\"a\":1}}\n{{{BECOMES}}}\n{{\"b\":2}}\n"));
        assert_eq!(Deed::Remove.done_to(&text), "{\"a\":1}\n{\"b\":2}\n");
    }
}
