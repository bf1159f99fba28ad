//! Parses `git push --porcelain`.

use serde_json::{Value, json};

use crate::records::{MAX_ENTRIES, text};

/// What a push did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PushReport {
    /// The refs.
    pub updates: Vec<RefUpdate>,
    /// Whether git printed its last line: the push, or the dry run, came to its end.
    pub complete: bool,
}

/// What happened to a ref of the remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// The ref here; empty if it is deleted there.
    pub local: String,
    /// The ref there.
    pub remote: String,
    /// What happened.
    pub result: RefUpdateResult,
    /// Git's words: the commits, or the reason of a rejection.
    pub summary: String,
}

/// What happened to a ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefUpdateResult {
    /// Commits were added.
    FastForward,
    /// It was replaced.
    Forced,
    /// It was deleted.
    Deleted,
    /// It is new.
    Created,
    /// It was rejected.
    Rejected,
    /// Nothing had to be done.
    UpToDate,
}

impl RefUpdateResult {
    /// The word in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FastForward => "fast_forward",
            Self::Forced => "forced",
            Self::Deleted => "deleted",
            Self::Created => "created",
            Self::Rejected => "rejected",
            Self::UpToDate => "up_to_date",
        }
    }

    fn from_flag(flag: u8) -> Option<Self> {
        Some(match flag {
            b' ' => Self::FastForward,
            b'+' => Self::Forced,
            b'-' => Self::Deleted,
            b'*' => Self::Created,
            b'!' => Self::Rejected,
            b'=' => Self::UpToDate,
            _ => return None,
        })
    }
}

impl PushReport {
    /// Parses the output. Lines of another form, such as the address, are left out.
    #[must_use]
    pub fn parse(output: &[u8]) -> Self {
        let mut report = Self::default();
        for line in output.split(|byte| *byte == b'\n') {
            if line == b"Done" {
                report.complete = true;
            } else if report.updates.len() < MAX_ENTRIES {
                report.updates.extend(update(line));
            }
        }
        report
    }

    /// Whether every ref was accepted.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.complete && self.updates.iter().all(|update| update.result != RefUpdateResult::Rejected)
    }

    /// For a result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let update = |update: &RefUpdate| {
            json!({
                "local": update.local,
                "remote": update.remote,
                "result": update.result.as_str(),
                "summary": update.summary,
            })
        };
        json!({ "updates": self.updates.iter().map(update).collect::<Vec<_>>(), "complete": self.complete })
    }
}

fn update(line: &[u8]) -> Option<RefUpdate> {
    let mut fields = line.splitn(3, |byte| *byte == b'\t');
    let [flag] = fields.next()? else { return None };
    let result = RefUpdateResult::from_flag(*flag)?;
    let refs = fields.next()?;
    let colon = refs.iter().position(|byte| *byte == b':')?;
    Some(RefUpdate {
        local: text(refs.get(..colon)?),
        remote: text(refs.get(colon + 1..)?),
        result,
        summary: text(fields.next()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn updates_have_a_result_and_a_summary() {
        let report = PushReport::parse(
            b"To https://h/x\n*\trefs/heads/a:refs/heads/a\t[new branch]\n \trefs/heads/b:refs/heads/b\t1..2\nDone\n",
        );
        assert!(report.succeeded());
        assert_eq!(report.to_json()["updates"][0]["result"], "created");
        assert_eq!(report.to_json()["updates"][1]["summary"], "1..2");
        let rejected = PushReport::parse(b"!\tx:y\t[rejected] (fetch first)\nDone\n");
        assert!(!rejected.succeeded());
        assert_eq!(rejected.updates[0].summary, "[rejected] (fetch first)");
        assert!(!PushReport::parse(b"To x\n").succeeded());
    }

    proptest! {
        #[test]
        fn arbitrary_output_never_panics(output in "[ +*!=a:\\t\\nDone-]{0,60}", raw: Vec<u8>) {
            let _ = PushReport::parse(output.as_bytes()).to_json();
            let _ = PushReport::parse(&raw);
        }
    }
}
