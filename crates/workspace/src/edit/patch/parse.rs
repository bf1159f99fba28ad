//! Parses a unified diff, from git or plain `diff -u`: several files, new and deleted files, renames, permission bits. A
//! hunk must have exactly the lines that its header announces; no line that looks like a change is skipped.

use crate::diff::LineTokens;
use crate::edit::error::EditError;

/// What a patch does to one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// Line of the patch where it begins, from 1.
    pub(crate) line: usize,
    /// Old path; `None` for a new file.
    pub(crate) old: Option<String>,
    /// New path; `None` for a deleted file.
    pub(crate) new: Option<String>,
    /// Whether the file becomes executable, if the patch sets a mode.
    pub(crate) executable: Option<bool>,
    pub(crate) hunks: Vec<PatchHunk>,
}

/// One hunk of a patch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PatchHunk {
    /// First line in the old file, from 1; if the hunk has no old lines, the line before the insertion.
    pub(crate) old_start: usize,
    pub(crate) lines: Vec<(LineMark, Vec<u8>)>,
}

/// Prefix of a patch line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineMark {
    Keep,
    Remove,
    Add,
}

const MAX_LINES: usize = 2_000_000;

/// The files of a patch, at least one.
pub(crate) fn parse(patch: &[u8]) -> Result<Vec<FilePatch>, EditError> {
    let lines: Vec<&[u8]> = LineTokens(patch).iter().take(MAX_LINES + 1).collect();
    if lines.len() > MAX_LINES {
        return Err(bad(MAX_LINES, "it has too many lines"));
    }
    let mut parser = PatchParser { lines, at: 0 };
    let mut files: Vec<FilePatch> = Vec::new();
    while let Some(line) = parser.peek() {
        if line.starts_with(b"diff --git ") {
            files.push(parser.git_header()?);
        } else if parser.at_plain_header() {
            let mut file = FilePatch { line: parser.at + 1, ..FilePatch::default() };
            parser.plain_header(&mut file)?;
            files.push(file);
        } else if line.starts_with(b"@@ ") {
            let hunk = parser.hunk()?;
            let file = files.last_mut().ok_or_else(|| bad(parser.at, "a hunk comes before any file"))?;
            file.hunks.push(hunk);
        } else {
            parser.between(!files.is_empty())?;
        }
    }
    if files.is_empty() {
        return Err(bad(1, "it names no file; a unified diff starts with `--- a/path` and `+++ b/path`"));
    }
    Ok(files)
}

fn bad(line: usize, why: impl Into<String>) -> EditError {
    EditError::BadPatch { line, why: why.into() }
}

struct PatchParser<'a> {
    lines: Vec<&'a [u8]>,
    at: usize,
}

impl<'a> PatchParser<'a> {
    fn peek(&self) -> Option<&'a [u8]> {
        self.lines.get(self.at).copied()
    }

    /// A header line, without its line ending.
    fn words(&self, ahead: usize) -> Option<String> {
        let line = self.lines.get(self.at + ahead)?;
        Some(String::from_utf8_lossy(line).trim_end_matches(['\n', '\r']).to_owned())
    }

    fn at_plain_header(&self) -> bool {
        let starts =
            |ahead: usize, mark: &[u8]| self.lines.get(self.at + ahead).is_some_and(|l| l.starts_with(mark));
        starts(0, b"--- ") && starts(1, b"+++ ")
    }

    /// Parses `--- old` and `+++ new`.
    fn plain_header(&mut self, file: &mut FilePatch) -> Result<(), EditError> {
        let side = |line: Option<String>| {
            let line = line?;
            let name = line.get(4..)?;
            // A tab precedes a timestamp; names with tabs are quoted.
            let name = if name.starts_with('"') { name } else { name.split('\t').next().unwrap_or(name) };
            unquoted(name)
        };
        let missing = || bad(self.at + 1, "a file has no name");
        let old = side(self.words(0)).ok_or_else(missing)?;
        let new = side(self.words(1)).ok_or_else(missing)?;
        (file.old, file.new) = stripped(&old, &new);
        if file.old.is_none() && file.new.is_none() {
            return Err(bad(self.at + 1, "both sides are `/dev/null`"));
        }
        self.at += 2;
        Ok(())
    }

    fn git_header(&mut self) -> Result<FilePatch, EditError> {
        let mut file = FilePatch { line: self.at + 1, ..FilePatch::default() };
        let names = self.words(0).unwrap_or_default();
        let names = names.strip_prefix("diff --git ").unwrap_or_default();
        let (mut old, mut new) = git_names(names).map_or((None, None), |(old, new)| stripped(&old, &new));
        self.at += 1;
        while let Some(line) = self.words(0) {
            let rest = |mark: &str| line.strip_prefix(mark).map(str::to_owned);
            if let Some(name) = rest("rename from ") {
                old = unquoted(&name);
            } else if let Some(name) = rest("rename to ") {
                new = unquoted(&name);
            } else if let Some(mode) = rest("new file mode ") {
                old = None;
                file.executable = Some(self.executable(&mode)?);
            } else if let Some(mode) = rest("deleted file mode ") {
                self.executable(&mode)?;
                new = None;
            } else if let Some(mode) = rest("new mode ") {
                file.executable = Some(self.executable(&mode)?);
            } else if let Some(mode) = rest("old mode ") {
                self.executable(&mode)?;
            } else if line.starts_with("copy from ") || line.starts_with("copy to ") {
                return Err(bad(self.at + 1, "copies are not supported; create the file instead"));
            } else if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
                return Err(bad(self.at + 1, "binary patches are not supported"));
            } else if !["index ", "similarity index ", "dissimilarity index "]
                .iter()
                .any(|mark| line.starts_with(mark))
            {
                break;
            }
            self.at += 1;
        }
        (file.old, file.new) = (old, new);
        if self.at_plain_header() {
            let mut plain = FilePatch::default();
            let at = self.at;
            self.plain_header(&mut plain)?;
            let agrees = |own: &Option<String>, stated: &Option<String>| {
                own.is_none() || stated.is_none() || own == stated
            };
            let nameless = file.old.is_none() && file.new.is_none();
            if nameless || (agrees(&file.old, &plain.old) && agrees(&file.new, &plain.new)) {
                // Explicit rename headers take precedence.
                let renamed = file.old.is_some() && file.new.is_some() && file.old != file.new;
                if !renamed {
                    (file.old, file.new) = (plain.old, plain.new);
                }
            } else {
                // This is the header of the next file: the current one has no hunks.
                self.at = at;
            }
        }
        if file.old.is_none() && file.new.is_none() {
            return Err(bad(file.line, "the file has no name"));
        }
        Ok(file)
    }

    fn executable(&self, mode: &str) -> Result<bool, EditError> {
        match mode.trim() {
            "100644" | "100664" => Ok(false),
            "100755" => Ok(true),
            "120000" => Err(bad(self.at + 1, "patches cannot create or change symlinks")),
            _ => Err(bad(self.at + 1, "the mode is not that of a regular file")),
        }
    }

    fn hunk(&mut self) -> Result<PatchHunk, EditError> {
        let header = self.words(0).unwrap_or_default();
        let number = self.at + 1;
        let parsed =
            ranges(&header).ok_or_else(|| bad(number, "the header of a hunk reads `@@ -1,2 +1,2 @@`"))?;
        let (old_start, mut old, mut new) = parsed;
        self.at += 1;
        let mut lines: Vec<(LineMark, Vec<u8>)> = Vec::new();
        while old > 0 || new > 0 {
            let Some(line) = self.peek() else {
                return Err(bad(
                    number,
                    "the patch ends before the hunk has the lines that its header announces",
                ));
            };
            let (mark, body) = match line.split_first() {
                Some((b' ', body)) => (LineMark::Keep, body),
                Some((b'-', body)) => (LineMark::Remove, body),
                Some((b'+', body)) => (LineMark::Add, body),
                // Some editors strip the space of an empty context line.
                Some((b'\n', _)) => (LineMark::Keep, line),
                Some((b'\r', [b'\n'])) => (LineMark::Keep, line),
                Some((b'\\', _)) => {
                    self.no_newline(&mut lines)?;
                    continue;
                }
                _ => return Err(bad(self.at + 1, "the hunk has fewer lines than its header announces")),
            };
            let (old_lines, news) =
                (usize::from(mark != LineMark::Add), usize::from(mark != LineMark::Remove));
            let fewer = || bad(number, "the hunk has other lines than its header announces");
            old = old.checked_sub(old_lines).ok_or_else(fewer)?;
            new = new.checked_sub(news).ok_or_else(fewer)?;
            lines.push((mark, ended(body)));
            self.at += 1;
        }
        if self.peek().is_some_and(|line| line.starts_with(b"\\")) {
            self.no_newline(&mut lines)?;
        }
        Ok(PatchHunk { old_start, lines })
    }

    /// `\ No newline at end of file` refers to the line before it.
    fn no_newline(&mut self, lines: &mut [(LineMark, Vec<u8>)]) -> Result<(), EditError> {
        let (_, last) = lines.last_mut().ok_or_else(|| bad(self.at + 1, "there is no line before `\\`"))?;
        if last.pop() != Some(b'\n') {
            return Err(bad(self.at + 1, "`\\` is repeated"));
        }
        // The patch may have other line endings than the file.
        if last.last() == Some(&b'\r') && self.peek().is_some_and(|line| line.ends_with(b"\r\n")) {
            last.pop();
        }
        self.at += 1;
        Ok(())
    }

    /// Skips text between files; a changed line outside any hunk is an error.
    fn between(&mut self, inside: bool) -> Result<(), EditError> {
        let line = self.words(0).unwrap_or_default();
        let ends_mail = line == "--" || line == "-- ";
        if inside && !ends_mail && line.starts_with(['+', '-', ' ', '\\']) && !line.trim().is_empty() {
            return Err(bad(self.at + 1, "the hunk has more lines than its header announces"));
        }
        if line.starts_with("@@") {
            return Err(bad(self.at + 1, "the header of a hunk reads `@@ -1,2 +1,2 @@`"));
        }
        if line.starts_with("--- ") {
            return Err(bad(self.at + 1, "`---` is not followed by `+++`"));
        }
        if line.starts_with("Binary files ") {
            return Err(bad(self.at + 1, "binary patches are not supported"));
        }
        self.at += 1;
        Ok(())
    }
}

/// Adds a missing newline: the last line of a patch may lack it.
fn ended(body: &[u8]) -> Vec<u8> {
    let mut line = body.to_vec();
    if line.last() != Some(&b'\n') {
        line.push(b'\n');
    }
    line
}

/// `@@ -start,count +start,count @@`: the old start and both counts.
fn ranges(header: &str) -> Option<(usize, usize, usize)> {
    let (old, rest) = header.strip_prefix("@@ -")?.split_once(" +")?;
    let new = rest.split_once(" @@")?.0;
    let range = |text: &str| -> Option<(usize, usize)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        let digits =
            |text: &str| !text.is_empty() && text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit());
        (digits(start) && digits(count)).then_some(())?;
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    Some((start, old, new))
}

/// Both names without their `a/` and `b/` prefixes, if present.
fn stripped(old: &str, new: &str) -> (Option<String>, Option<String>) {
    const NOTHING: &str = "/dev/null";
    let prefixed = (old == NOTHING || old.starts_with("a/")) && (new == NOTHING || new.starts_with("b/"));
    let name = |name: &str| match name {
        NOTHING => None,
        name if prefixed => name.get(2..).map(str::to_owned),
        name => Some(name.to_owned()),
    };
    let (from, to) = (name(old), name(new));
    match (from, to) {
        // Plain diffs often name the old side differently, such as `x.orig`; the new side names the file.
        (Some(_), Some(to)) if !prefixed => (Some(to.clone()), Some(to)),
        pair => pair,
    }
}

/// The two names of `diff --git`. Unquoted names are equal except for their prefix, which locates the space between them.
fn git_names(names: &str) -> Option<(String, String)> {
    if names.starts_with('"') {
        let end = closing(names)?;
        return Some((unquoted(names.get(..=end)?)?, unquoted(names.get(end + 1..)?.trim_start())?));
    }
    if let Some(at) = names.find(" \"") {
        return Some((names.get(..at)?.to_owned(), unquoted(names.get(at + 1..)?)?));
    }
    let same = |(at, _): (usize, &str)| {
        let (old, new) = (names.get(..at)?, names.get(at + 1..)?);
        (old.get(2..)? == new.get(2..)?).then(|| (old.to_owned(), new.to_owned()))
    };
    names.match_indices(' ').find_map(same)
}

fn closing(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().enumerate().skip(1).find_map(|(at, byte)| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes.then_some(at)
    })
}

/// Decodes a name as git writes it: quoted with escapes, or plain.
fn unquoted(name: &str) -> Option<String> {
    let name = name.trim_end();
    let Some(inner) = name.strip_prefix('"') else {
        return (!name.is_empty()).then(|| name.to_owned());
    };
    let inner = inner.get(..closing(name)?.checked_sub(1)?)?;
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next()? {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            octal @ b'0'..=b'3' => {
                let digit = |byte: u8| matches!(byte, b'0'..=b'7').then(|| byte - b'0');
                let (high, middle, low) = (digit(octal)?, digit(rest.next()?)?, digit(rest.next()?)?);
                bytes.push(high << 6 | middle << 3 | low);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patch: &str) -> Vec<(Option<String>, Option<String>)> {
        parse(patch.as_bytes()).unwrap().into_iter().map(|file| (file.old, file.new)).collect()
    }

    fn some(name: &str) -> Option<String> {
        Some(name.to_owned())
    }

    // B7
    #[test]
    fn names_are_parsed_in_git_and_plain_format() {
        let hunk = "@@ -1 +1 @@\n-a\n+b\n";
        let check = |head: &str, old: Option<String>, new: Option<String>| {
            assert_eq!(names(&format!("{head}{hunk}")), [(old, new)], "{head}");
        };
        check("--- a/x\n+++ b/x\n", some("x"), some("x"));
        check("--- a/x\t2026-01-01\n+++ b/x\t2026-01-02\n", some("x"), some("x"));
        check("--- x.orig\n+++ x\n", some("x"), some("x"));
        check("--- /dev/null\n+++ b/x y\n", None, some("x y"));
        check("--- a/x\n+++ /dev/null\n", some("x"), None);
        check("--- \"a/\\303\\244\\t\"\n+++ \"b/\\303\\244\\t\"\n", some("ä\t"), some("ä\t"));
        check(
            "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\n--- a/x\n+++ b/y\n",
            some("x"),
            some("y"),
        );
        check(
            "From: me\n\nwords\n---\n x | 2 +-\n\ndiff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n",
            some("x"),
            some("x"),
        );
        assert_eq!(
            names("diff --git a/a b b/a b\nnew file mode 100644\nindex 0..0\n"),
            [(None, some("a b"))]
        );
        assert_eq!(names("diff --git a/x b/x\ndeleted file mode 100644\n"), [(some("x"), None)]);
        assert_eq!(names("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n"), [(some("x"), some("x"))]);
        assert_eq!(names("diff --git a/x b/y\nrename from x\nrename to y\n"), [(some("x"), some("y"))]);
    }

    #[test]
    fn malformed_patches_are_rejected_with_their_line() {
        let head = "--- a/x\n+++ b/x\n";
        for (patch, line) in [
            ("", 1),
            ("hello\n", 1),
            ("@@ -1 +1 @@\n-a\n+b\n", 3),
            (&*format!("{head}@@ -1 +1 @@\n-a\n"), 3),
            (&*format!("{head}@@ -1 +1 @@\n-a\n+b\n+c\n"), 6),
            (&*format!("{head}@@ -1,2 +1 @@\n-a\n+b\n@@ -9 +9 @@\n"), 6),
            (&*format!("{head}@@ what @@\n"), 3),
            (&*format!("{head}@@ -99999999999 +1 @@\n-a\n+b\n"), 3),
            ("--- a/x\nno\n", 1),
            ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", 1),
            ("diff --git a/x b/x\nnew file mode 120000\n", 2),
            ("diff --git a/x b/x\ncopy from x\n", 2),
            ("diff --git a/x b/x\nGIT binary patch\n", 2),
            ("Binary files a/x and b/x differ\n", 1),
        ] {
            match parse(patch.as_bytes()) {
                Err(EditError::BadPatch { line: got, .. }) => assert_eq!(got, line, "{patch:?}"),
                other => panic!("{patch:?}: {other:?}"),
            }
        }
    }
}
