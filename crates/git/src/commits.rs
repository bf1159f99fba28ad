//! Parses commits as `git log` and `git show` print them in [`COMMIT_FORMAT`], with their files if asked for.

use serde_json::{Value, json};

use crate::diff_summary::DiffSummary;
use crate::records::{GitOutputError, MAX_ENTRIES, NulRecords, text};

const EXPECTED: &str = "a list of commits";
/// Begins each commit; a file list never begins with it.
const COMMIT_START: u8 = 1;

/// Fields that end with NUL, which no commit contains.
pub(crate) const COMMIT_FORMAT: &str =
    "--format=format:%x01%H%x00%T%x00%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%B%x00";

/// Commits, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitCommits {
    /// The commits.
    pub commits: Vec<GitCommit>,
    /// Whether the list, or the file list of the last commit, is not complete.
    pub truncated: bool,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitCommit {
    /// Its hash.
    pub id: String,
    /// The hash of its tree.
    pub tree: String,
    /// The hashes of its parents.
    pub parents: Vec<String>,
    /// Who wrote the change.
    pub author: GitSignature,
    /// Who committed it.
    pub committer: GitSignature,
    /// The message.
    pub message: String,
    /// Its files, if asked for; those of a merge against its first parent.
    pub files: DiffSummary,
}

/// A person and a time, as the commit says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSignature {
    /// The name.
    pub name: String,
    /// The e-mail address.
    pub email: String,
    /// The time, in ISO 8601.
    pub time: String,
}

impl GitCommits {
    /// Parses the output; output that was cut gives what is complete.
    pub fn parse(output: &[u8]) -> Result<Self, GitOutputError> {
        let mut records = NulRecords::new(output);
        let mut list = Self::default();
        while let Some(record) = records.next() {
            let id = match record.strip_prefix(&[COMMIT_START]) {
                Some(id) => id,
                None if record.is_empty() => continue,
                None => return Err(records.error(EXPECTED)),
            };
            if list.commits.len() == MAX_ENTRIES {
                list.truncated = true;
                return Ok(list);
            }
            let Some(mut commit) = commit(id, &mut records) else {
                list.truncated = true;
                return Ok(list);
            };
            files(&mut commit.files, &mut records)?;
            list.truncated |= commit.files.truncated;
            list.commits.push(commit);
        }
        list.truncated |= records.is_cut();
        Ok(list)
    }

    /// For a result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "commits": self.commits.iter().map(GitCommit::to_json).collect::<Vec<_>>(),
            "truncated": self.truncated,
        })
    }
}

impl GitCommit {
    /// The first line of the message.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }

    /// For a result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "parents": self.parents,
            "author": self.author.to_json(),
            "committer": self.committer.to_json(),
            "subject": self.subject(),
            "message": self.message,
            "files": self.files.files_json(),
        })
    }
}

impl GitSignature {
    fn to_json(&self) -> Value {
        json!({ "name": self.name, "email": self.email, "time": self.time })
    }
}

/// The fields after the hash; `None` if the output ends before the last one.
fn commit(id: &[u8], records: &mut NulRecords<'_>) -> Option<GitCommit> {
    let mut field = || records.next().map(text);
    let tree = field()?;
    let parents = field()?.split_ascii_whitespace().map(str::to_owned).collect();
    let author = GitSignature { name: field()?, email: field()?, time: field()? };
    let committer = GitSignature { name: field()?, email: field()?, time: field()? };
    let message = field()?;
    Some(GitCommit { id: text(id), tree, parents, author, committer, message, files: DiffSummary::default() })
}

/// The files of a commit, up to the next one.
fn files(files: &mut DiffSummary, records: &mut NulRecords<'_>) -> Result<(), GitOutputError> {
    let mut counts = 0;
    while let Some(record) = records.peek() {
        if record.first() == Some(&COMMIT_START) {
            break;
        }
        records.next();
        // A line break separates the message from the files.
        let record = record.strip_prefix(b"\n").unwrap_or(record);
        if !record.is_empty() {
            files.record(record, records, &mut counts)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> String {
        let commit = |id: &str, parents: &str, message: &str| {
            format!(
                "\x01{id}\0tree\0{parents}\0Ann\0a@x\02026-01-01T00:00:00Z\0Bob\0b@x\02026-01-02T00:00:00Z\0{message}\0"
            )
        };
        let files = "\n:000000 100644 0000 1111 A\0s\x01\x001\t0\ts\x01\0";
        format!(
            "{}\0{files}{}\0{}",
            commit("c3", "c2 c1", "merge\n"),
            commit("c2", "c1", ""),
            commit("c1", "", "first\n\nbody\n")
        )
    }

    #[test]
    fn commits_are_parsed_with_their_files() {
        let list = GitCommits::parse(sample().as_bytes()).unwrap();
        assert!(!list.truncated);
        let ids: Vec<&str> = list.commits.iter().map(|commit| commit.id.as_str()).collect();
        assert_eq!(ids, ["c3", "c2", "c1"]);
        assert_eq!(list.commits[0].parents, ["c2", "c1"]);
        assert_eq!(list.commits[2].subject(), "first");
        let json = list.to_json();
        assert_eq!(json["commits"][0]["files"][0]["path"], "\"s\\001\"");
        assert_eq!(json["commits"][0]["files"][0]["added"], 1);
        assert_eq!(
            json["commits"][2]["author"],
            json!({"name": "Ann", "email": "a@x", "time": "2026-01-01T00:00:00Z"})
        );
    }

    #[test]
    fn output_that_was_cut_gives_whole_commits() {
        let whole = sample();
        for end in 0..whole.len() {
            let list = GitCommits::parse(&whole.as_bytes()[..end]).unwrap();
            assert!(list.commits.len() <= 3);
            assert!(list.truncated || whole.as_bytes()[..end].ends_with(&[0]) || end == 0, "{end}");
        }
        assert!(GitCommits::parse(b"fatal: x\0").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_output_never_panics(output in "([\\x01:0-9a\\t\\n -]{0,12}\\x00){0,30}", raw: Vec<u8>) {
            let _ = GitCommits::parse(output.as_bytes()).map(|list| list.to_json());
            let _ = GitCommits::parse(&raw);
        }
    }
}
