//! Splits the patch text of `git diff` and `git show` into files.
//!
//! A line of content begins with a space, `+`, `-` or `\`, so `diff --git` at the beginning of a line always begins a file.
//! Names with line breaks are quoted in this output.

use serde_json::{Value, json};

use crate::c_quote::{unquote, unquote_prefix};
use crate::git_path::GitPath;
use crate::records::{MAX_ENTRIES, text};

/// A patch, split into files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitPatch<'o> {
    /// The files, in order.
    pub files: Vec<GitFilePatch<'o>>,
    /// Whether files are missing at the end because there are too many.
    pub truncated: bool,
}

/// The patch of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitFilePatch<'o> {
    /// The path before; `None` for a new file.
    pub old_path: Option<GitPath>,
    /// The path after; `None` for a deleted file.
    pub new_path: Option<GitPath>,
    /// The text, headers included.
    pub text: &'o [u8],
    /// Lines added; 0 in a file with conflicts.
    pub added: u64,
    /// Lines deleted; 0 in a file with conflicts.
    pub deleted: u64,
    /// Whether git compared it as a binary file.
    pub binary: bool,
}

impl<'o> GitPatch<'o> {
    /// Splits the output.
    #[must_use]
    pub fn parse(output: &'o [u8]) -> Self {
        let mut patch = Self::default();
        let mut start = None;
        let mut position = 0;
        for line in output.split_inclusive(|byte| *byte == b'\n') {
            if is_file_start(line) {
                patch.push(output, start, position);
                start = Some(position);
            }
            position += line.len();
        }
        patch.push(output, start, position);
        patch
    }

    /// For a result: the paths and counts, not the text.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let path = |path: &Option<GitPath>| path.as_ref().map(ToString::to_string);
        let file = |file: &GitFilePatch<'_>| {
            json!({
                "old_path": path(&file.old_path),
                "new_path": path(&file.new_path),
                "added": file.added,
                "deleted": file.deleted,
                "binary": file.binary,
            })
        };
        json!({ "files": self.files.iter().map(file).collect::<Vec<_>>(), "truncated": self.truncated })
    }

    fn push(&mut self, output: &'o [u8], start: Option<usize>, end: usize) {
        let Some(text) = start.and_then(|start| output.get(start..end)) else { return };
        if self.files.len() == MAX_ENTRIES {
            self.truncated = true;
        } else {
            self.files.push(GitFilePatch::parse(text));
        }
    }
}

impl<'o> GitFilePatch<'o> {
    fn parse(text: &'o [u8]) -> Self {
        let mut lines = text.split(|byte| *byte == b'\n');
        let first = lines.next().unwrap_or_default();
        let (old, new) = first_line_paths(first);
        let mut file = Self { old_path: old, new_path: new, text, added: 0, deleted: 0, binary: false };
        let combined = !first.starts_with(b"diff --git ");
        let mut in_hunks = false;
        for line in lines {
            in_hunks |= line.starts_with(b"@@");
            match line.first() {
                Some(b'+') if in_hunks && !combined => file.added += 1,
                Some(b'-') if in_hunks && !combined => file.deleted += 1,
                _ if !in_hunks => file.header(line),
                _ => {}
            }
        }
        file
    }

    fn header(&mut self, line: &[u8]) {
        if let Some(path) = line.strip_prefix(b"--- ") {
            self.old_path = header_path(path, b"a/");
        } else if let Some(path) = line.strip_prefix(b"+++ ") {
            self.new_path = header_path(path, b"b/");
        } else if let Some(path) = line.strip_prefix(b"rename from ").or(line.strip_prefix(b"copy from ")) {
            self.old_path = Some(plain_path(path));
        } else if let Some(path) = line.strip_prefix(b"rename to ").or(line.strip_prefix(b"copy to ")) {
            self.new_path = Some(plain_path(path));
        } else if line.starts_with(b"new file mode ") {
            self.old_path = None;
        } else if line.starts_with(b"deleted file mode ") {
            self.new_path = None;
        } else if line.starts_with(b"Binary files ") || line == b"GIT binary patch" {
            self.binary = true;
        }
    }

    /// The text, with invalid UTF-8 replaced.
    #[must_use]
    pub fn to_text(&self) -> String {
        text(self.text)
    }
}

fn is_file_start(line: &[u8]) -> bool {
    [&b"diff --git "[..], b"diff --cc ", b"diff --combined ", b"* Unmerged path "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// The paths of a file's first line. `a/x b/x` without quotes has one path twice, or the lines that follow have both.
fn first_line_paths(line: &[u8]) -> (Option<GitPath>, Option<GitPath>) {
    let Some(rest) = line.strip_prefix(b"diff --git ") else {
        let path = [&b"diff --cc "[..], b"diff --combined ", b"* Unmerged path "]
            .iter()
            .find_map(|start| line.strip_prefix(*start))
            .map(plain_path);
        return (path.clone(), path);
    };
    if let Some((old, rest)) = unquote_prefix(rest) {
        let new = rest.strip_prefix(b" ").map(|new| unquote(new).unwrap_or_else(|| new.to_vec()));
        let strip = |path: &[u8], prefix: &[u8]| GitPath::new(path.strip_prefix(prefix).unwrap_or(path));
        return (Some(strip(&old, b"a/")), new.map(|new| strip(&new, b"b/")));
    }
    let half = rest.get(2..2 + rest.len().saturating_sub(5) / 2).map(GitPath::new);
    (half.clone(), half)
}

/// The path after `--- ` or `+++ `; a tab follows a path with spaces.
fn header_path(path: &[u8], prefix: &[u8]) -> Option<GitPath> {
    let path = path.strip_suffix(b"\t").unwrap_or(path);
    if path == b"/dev/null" {
        return None;
    }
    let path = unquote(path).unwrap_or_else(|| path.to_vec());
    Some(GitPath::new(path.strip_prefix(prefix).unwrap_or(&path)))
}

fn plain_path(path: &[u8]) -> GitPath {
    GitPath::new(&unquote(path).unwrap_or_else(|| path.to_vec()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patches_are_split_into_files() {
        let output = "diff --git a/sp ace b/sp ace\nindex 1..2 100644\n--- a/sp ace\t\n+++ b/sp ace\t\n@@ -1 +1,2 @@\n-diff --git a/x b/x\n+--- a/y\n+z\n\
             diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n\
             diff --git \"a/t\\tb\" \"b/t\\tb\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/t\\tb\"\n@@ -0,0 +1 @@\n+x\n\
             diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n\
             diff --git a/bin b/bin\ndeleted file mode 100644\nBinary files a/bin and /dev/null differ\n\
             diff --cc both\nindex 1,2..3\n--- a/both\n+++ b/both\n@@@ -1,1 -1,1 +1,5 @@@\n++x\n\
             * Unmerged path b2\n";
        let patch = GitPatch::parse(output.as_bytes());
        let files = patch.to_json()["files"].clone();
        let row = |old: Value, new: Value, added: u64, deleted: u64, binary: bool| json!({"old_path": old, "new_path": new, "added": added, "deleted": deleted, "binary": binary});
        assert_eq!(
            files,
            json!([
                row("sp ace".into(), "sp ace".into(), 2, 1, false),
                row("old".into(), "new".into(), 0, 0, false),
                row(Value::Null, "\"t\\tb\"".into(), 1, 0, false),
                row("mode".into(), "mode".into(), 0, 0, false),
                row("bin".into(), Value::Null, 0, 0, true),
                row("both".into(), "both".into(), 0, 0, false),
                row("b2".into(), "b2".into(), 0, 0, false),
            ])
        );
        let joined: Vec<u8> = patch.files.iter().flat_map(|file| file.text).copied().collect();
        assert_eq!(joined, output.as_bytes());
        assert!(patch.files[0].to_text().contains("+z"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(
            output in "((diff --git |diff --cc |--- |\\+\\+\\+ |@@|rename to |\\+|-| )[\"a/b \\\\t0]{0,12}\\n){0,10}",
            raw: Vec<u8>,
        ) {
            let _ = GitPatch::parse(output.as_bytes()).to_json();
            let _ = GitPatch::parse(&raw);
        }
    }
}
