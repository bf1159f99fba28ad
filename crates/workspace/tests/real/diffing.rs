//! Diffs and patches: applying a diff as a patch makes exactly its change, for any bytes.

use proptest::prelude::*;
use vambrace_core::change::{BaseFile, ChangeSet, FileChange, Splice, TargetFile, spliced};
use vambrace_core::digest::Digest;
use vambrace_core::{CallError, ErrorCode};
use vambrace_workspace::diff::{DiffDetail, Omission};
use vambrace_workspace::{Draft, DraftNote, EditError, EditRequest, WriteMode, diff};

use crate::editing::limits;
use crate::fixtures::path;
use crate::harness::Harness;

/// Drafts a patch over a file `f` and applies it.
fn patched(base: Option<&[u8]>, patch: &[u8]) -> Result<Option<Vec<u8>>, EditError> {
    let harness = Harness::new();
    if let Some(base) = base {
        harness.tree.file("f", base);
    }
    let draft = harness.ws.draft_patch(patch, &limits())?;
    let (_, back) = harness.applier.apply(&draft.changes).unwrap();
    let now = harness.read("f");
    harness.applier.apply(&back.unwrap()).unwrap();
    assert_eq!(harness.read("f").as_deref(), base, "rolling back");
    Ok(now)
}

fn headed(old: &[u8], new: &[u8]) -> Vec<u8> {
    [b"--- a/f\n+++ b/f\n".to_vec(), diff::between(old, new)].concat()
}

/// Lines of a few kinds, so that they repeat, with all kinds of line endings.
fn any_text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![&b"a"[..], b"b", b"\tx", b"", b"\xff\xe9", b"- c"]);
    let end = prop::sample::select(vec![&b"\n"[..], b"\n", b"\n", b"\n", b"\r\n", b"\r"]);
    let lines = proptest::collection::vec((word, end), 0..25);
    (lines, any::<bool>()).prop_map(|(lines, ended)| {
        let mut text: Vec<u8> = lines.iter().flat_map(|(word, end)| [*word, *end].concat()).collect();
        if !ended {
            text.extend_from_slice(b"last");
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // B7
    #[test]
    fn a_patch_made_from_a_diff_produces_the_new_content(old in any_text(), new in any_text()) {
        prop_assume!(old != new && !old.is_empty());
        let now = patched(Some(&old), &headed(&old, &new)).unwrap();
        prop_assert_eq!(now.unwrap(), new);
    }

    #[test]
    fn all_blocks_of_a_diff_together_are_the_change(old in any_text(), new in any_text()) {
        let blocks = diff::hunks(&old, &Splice::between(&old, &new)).unwrap();
        let all: Vec<Splice> = blocks.iter().flat_map(|block| block.splices.clone()).collect();
        prop_assert_eq!(spliced(&old, &all).unwrap(), new);
    }

    // T8: bytes outside the matched spans never change.
    #[test]
    fn only_the_matched_bytes_change(
        before in proptest::collection::vec(1..=255_u8, 0..60), after in proptest::collection::vec(1..=255_u8, 0..60),
        content in "[a-z$\\\\]{0,12}",
    ) {
        let needle = b"@@needle@@";
        let base = [&before[..], needle, &after[..]].concat();
        let harness = Harness::new();
        harness.tree.file("f", &base);
        let edit = [EditRequest::replace("@@needle@@", content.clone())];
        match harness.ws.draft_edit(&path("f"), &edit, None, &limits()) {
            Ok(draft) => {
                harness.applier.apply(&draft.changes).unwrap();
                prop_assert_eq!(harness.read("f").unwrap(), [&before[..], content.as_bytes(), &after[..]].concat());
            }
            // More than 10 % control characters is binary.
            Err(error) => prop_assert_eq!(error.code(), ErrorCode::BinaryFile),
        }
    }

    #[test]
    fn damaged_patches_never_panic(old in any_text(), new in any_text(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut patch = headed(&old, &new);
        let at = at.index(patch.len());
        patch[at] = byte;
        let harness = Harness::new();
        harness.tree.file("f", &old);
        let _ = harness.ws.draft_patch(&patch, &limits());
    }
}

// B2: git accepts our diffs.
#[test]
fn git_applies_our_diffs() {
    let harness = Harness::new();
    let old: String = (0..200).map(|n| format!("line {n}\n")).collect();
    let new = old.replace("line 20\n", "").replace("line 90\n", "line 90\nnew\n") + "no end";
    harness.tree.file("f", &old);
    let patch = headed(old.as_bytes(), new.as_bytes());
    std::fs::write(harness.tree.at("p"), &patch).unwrap();
    let applied = std::process::Command::new("git")
        .args(["apply", "--unsafe-paths", "p"])
        .current_dir(&harness.tree.project)
        .env("GIT_CEILING_DIRECTORIES", harness.tree.home.path())
        .output();
    match applied {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(harness.read("f").unwrap(), new.as_bytes());
        }
        Err(error) => vambrace_skip::skip(&format!("git does not run here: {error}")),
    }
}

#[track_caller]
fn check(base: &str, patch: &str, expected: Result<&str, (ErrorCode, &str)>) {
    let got = patched(Some(base.as_bytes()), patch.as_bytes());
    match (got, expected) {
        (Ok(now), Ok(expected)) => assert_eq!(String::from_utf8(now.unwrap()).unwrap(), expected),
        (Err(rejected), Err((code, words))) => {
            let error = CallError::from(rejected);
            assert_eq!(error.code, code, "{}", error.message);
            assert!(error.message.contains(words), "{}", error.message);
        }
        (got, expected) => panic!("got {got:?}, expected {expected:?}"),
    }
}

const HEAD: &str = "--- a/f\n+++ b/f\n";

// B7
#[test]
fn context_must_match_exactly_wherever_a_hunk_applies() {
    use ErrorCode::MatchCountMismatch;
    let patch = |hunk: &str| format!("{HEAD}{hunk}");
    check("a\nb\nc\n", &patch("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"), Ok("a\nB\nc\n"));
    check("x\ny\na\nb\nc\n", &patch("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"), Ok("x\ny\na\nB\nc\n"));
    check("a\nb\nc\n", &patch("@@ -40,3 +40,3 @@\n a\n-b\n+B\n c\n"), Ok("a\nB\nc\n"));
    check("q\nb\nb\n", &patch("@@ -1 +1 @@\n-b\n+B\n"), Err((MatchCountMismatch, "several other lines")));
    check("b\nb\n", &patch("@@ -2 +2 @@\n-b\n+B\n"), Ok("b\nB\n"));
    check(
        "a \nb\n",
        &patch("@@ -1,2 +1,2 @@\n a\n-b\n+B\n"),
        Err((MatchCountMismatch, "line 1 is `a·`, the patch has `a`")),
    );
    check(
        "\ta\nb\n",
        &patch("@@ -1,2 +1,2 @@\n     a\n-b\n+B\n"),
        Err((MatchCountMismatch, "line 1 is `→a`")),
    );
    check("a\n", &patch("@@ -1,2 +1,2 @@\n a\n-b\n+B\n"), Err((MatchCountMismatch, "past the end")));
    check(
        "a\nb",
        &patch("@@ -1,2 +1,2 @@\n a\n-b\n+B\n"),
        Err((MatchCountMismatch, "differs in its final newline")),
    );
    check("a\nb", &patch("@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n"), Ok("a\nB\n"));
    check("a\nb\n", &patch("@@ -1,2 +1,2 @@\n a\n-b\n+B\n\\ No newline at end of file\n"), Ok("a\nB"));
    check("a\nb\nc\nd\n", &patch("@@ -1 +1 @@\n-a\n+A\n@@ -4 +4 @@\n-d\n+D\n"), Ok("A\nb\nc\nD\n"));
    check(
        "b\na\n",
        &patch("@@ -2 +2 @@\n-a\n+A\n@@ -1 +1 @@\n-b\n+B\n"),
        Err((MatchCountMismatch, "hunk 2")),
    );
}

// T8, B7
#[test]
fn line_endings_of_a_patch_are_ignored_and_those_of_the_file_kept() {
    let patch = format!("{HEAD}@@ -1,3 +1,4 @@\n a\n-b\n+B\n+C\n c\n");
    check("a\r\nb\r\nc\r\n", &patch, Ok("a\r\nB\r\nC\r\nc\r\n"));
    check("a\nb\nc\n", &patch.replace('\n', "\r\n"), Ok("a\nB\nC\nc\n"));
    check("a\r\nb\nc\r\n", &patch, Ok("a\r\nB\nC\r\nc\r\n"));
    check("a\r\nb\r\n", &format!("{HEAD}@@ -1,0 +2 @@\n+x\n"), Ok("a\r\nx\r\nb\r\n"));
}

// B7
#[test]
fn a_moved_hunk_is_noted() {
    let harness = Harness::new();
    harness.tree.file("f", "x\ny\na\nb\n");
    let draft = harness.ws.draft_patch(format!("{HEAD}@@ -1 +1 @@\n-a\n+A\n").as_bytes(), &limits()).unwrap();
    assert_eq!(draft.notes, [DraftNote::Moved { path: path("f"), hunk: 1, lines: 2 }]);
}

// B7
#[test]
fn one_patch_creates_changes_deletes_renames_and_sets_modes() {
    use std::os::unix::fs::PermissionsExt;
    let harness = Harness::new();
    harness
        .tree
        .file("change", "a\n")
        .file("gone", "g\n")
        .file("old name", "1\n2\n3\n")
        .file("tool", "#!/bin/sh\n");
    harness.tree.file("emptied", "");
    let patch = "diff --git a/change b/change\n--- a/change\n+++ b/change\n@@ -1 +1 @@\n-a\n+b\n\
        diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n\
        diff --git a/new/x b/new/x\nnew file mode 100755\n--- /dev/null\n+++ b/new/x\n@@ -0,0 +1 @@\n+n\n\
        diff --git a/new/empty b/new/empty\nnew file mode 100644\nindex 0000000..e69de29\n\
        diff --git a/emptied b/emptied\ndeleted file mode 100644\nindex e69de29..0000000\n\
        diff --git a/old name b/new name\nsimilarity index 66%\nrename from old name\nrename to new name\n\
        --- a/old name\n+++ b/new name\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n\
        diff --git a/tool b/tool\nold mode 100644\nnew mode 100755\n";
    let draft = harness.ws.draft_patch(patch.as_bytes(), &limits()).unwrap();
    let kinds: Vec<String> = draft.changes.files().iter().map(ToString::to_string).collect();
    assert_eq!(
        kinds,
        [
            "MODIFY change",
            "DELETE emptied",
            "DELETE gone",
            "CREATE FILE new/empty",
            "CREATE FILE new/x",
            "RENAME old name TO new name",
            "MODE tool 0644 TO 0755"
        ]
    );
    let (_, back) = harness.applier.apply(&draft.changes).unwrap();
    let mode = |name: &str| std::fs::metadata(harness.tree.at(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(harness.read("change").unwrap(), b"b\n");
    assert_eq!(harness.read("new name").unwrap(), b"1\ntwo\n3\n");
    assert_eq!((harness.read("gone"), harness.read("emptied"), harness.read("old name")), (None, None, None));
    assert_eq!((harness.read("new/empty").unwrap(), mode("new/x"), mode("tool")), (Vec::new(), 0o755, 0o755));
    // Our own diff can be applied as a patch after the rollback.
    harness.applier.apply(&back.unwrap()).unwrap();
    assert_eq!(
        (harness.read("gone").unwrap(), harness.read("old name").unwrap()),
        (b"g\n".to_vec(), b"1\n2\n3\n".to_vec())
    );
    assert_eq!((harness.read("new name"), mode("tool")), (None, 0o644));
    assert!(!harness.tree.at("new").exists(), "created directories are removed too");
    let again = harness.ws.draft_patch(&draft.diff, &limits()).unwrap();
    assert_eq!(again.changes, draft.changes);
    assert_eq!(harness.leftovers(), Vec::<String>::new());
}

// B7, T12
#[test]
fn invalid_patches_are_rejected() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n").file("g", "a\n").file("bin", "a\0b\n");
    let code =
        |patch: &str| harness.ws.draft_patch(patch.as_bytes(), &limits()).map(|_| ()).unwrap_err().code();
    let one = "@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(code(&format!("{HEAD}{one}{HEAD}{one}")), ErrorCode::InvalidArguments, "the same file twice");
    assert_eq!(code("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n"), ErrorCode::MatchCountMismatch);
    assert_eq!(code("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"), ErrorCode::MatchCountMismatch);
    assert_eq!(code("diff --git a/f b/g\nrename from f\nrename to g\n"), ErrorCode::MatchCountMismatch);
    // The same code as from every other tool.
    for path in ["../f", "x/../../f", "/etc/passwd", "~/f", "\0f"] {
        for (old, new) in [("a/", "b/"), ("", "")] {
            let patch = format!("--- {old}{path}\n+++ {new}{path}\n{one}");
            assert_eq!(code(&patch), ErrorCode::ScopeViolation, "{patch}");
        }
    }
    let moved = "diff --git a/f b/f2\nrename from f\nrename to ../f2\n";
    assert_eq!(code(moved), ErrorCode::ScopeViolation);
    assert_eq!(code(&format!("--- a/.env\n+++ b/.env\n{one}")), ErrorCode::BlockedPath);
    assert_eq!(code("--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n"), ErrorCode::BlockedPath);
    assert_eq!(code(&format!("--- a/nofile\n+++ b/nofile\n{one}")), ErrorCode::FileNotFound);
    assert_eq!(code("--- a/bin\n+++ b/bin\n@@ -1 +1 @@\n-a\n+b\n"), ErrorCode::BinaryFile);
    assert_eq!(code("--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+a\0\n"), ErrorCode::BinaryFile);
}

// B2: of a long run of removed lines the diff shows both ends and the number of omitted lines
#[test]
fn a_long_deletion_is_abbreviated_and_counted() {
    let harness = Harness::new();
    let old: String = (1..=100_000).map(|number| format!("line {number}\n")).collect();
    let one_line = "x".repeat(1 << 20);
    harness.tree.file("f", &old).file("one", &one_line);
    let shown = |draft: Draft| {
        let text = String::from_utf8(draft.diff).unwrap();
        let gaps: Vec<Omission> = text.lines().filter_map(|line| Omission::parse(line.as_bytes())).collect();
        let gone = text.lines().filter(|line| line.starts_with("-line ")).count() as u64;
        (text, gaps, gone)
    };
    let delete = harness.ws.draft_delete(&path("f"), None, &limits()).unwrap();
    let (text, gaps, gone) = shown(delete.clone());
    assert!(text.len() < 80 * 1024, "{}", text.len());
    assert!(text.starts_with("--- a/f\n+++ /dev/null\n@@ -1,100000 +0,0 @@\n-line 1\n"));
    assert!(text.ends_with("-line 99999\n-line 100000\n"));
    assert_eq!(gaps, [Omission { old: 100_000 - gone, ..Omission::default() }]);
    // Added lines and context are shown completely.
    let new: String = (1..=40_000).map(|number| format!("other {number}\n")).collect();
    let over = [old.get(..7).unwrap(), &new].concat();
    let write =
        harness.ws.draft_write(&path("f"), over.as_bytes(), WriteMode::Write, None, &limits()).unwrap();
    let (text, gaps, gone) = shown(write);
    assert_eq!(gaps, [Omission { old: 99_999 - gone, ..Omission::default() }]);
    assert_eq!(text.lines().filter(|line| line.starts_with("+other ")).count(), 40_000);
    let (text, gaps, _) = shown(harness.ws.draft_delete(&path("one"), None, &limits()).unwrap());
    assert_eq!(
        (text.lines().count(), gaps),
        (6, vec![Omission { front: Some(0), ..Omission::default() }]),
        "its beginning"
    );
    assert!(text.len() < 20 * 1024, "{}", text.len());
    assert!(diff::preview_is_complete("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\\ 1 removed lines\n+x\n"));
    // The reverse change has every byte, and its diff is no longer than the other.
    let (_, back) = harness.applier.apply(&delete.changes).unwrap();
    let back = back.unwrap();
    let ends = diff::of_changes(&back, |_| None, DiffDetail::RunEnds).unwrap();
    assert!(
        ends.len() < 80 * 1024
            && diff::of_changes(&back, |_| None, DiffDetail::AllAdded).unwrap().len() > old.len()
    );
    harness.applier.apply(&back).unwrap();
    assert_eq!(harness.read("f").unwrap(), old.as_bytes());
}

/// The diff of an edit and its gaps.
fn edited(harness: &Harness, edits: &[EditRequest]) -> (String, Vec<Omission>) {
    let draft = harness.ws.draft_edit(&path("f"), edits, None, &limits()).unwrap();
    let text = String::from_utf8(draft.diff).unwrap();
    let gaps = text.lines().filter_map(|line| Omission::parse(line.as_bytes())).collect();
    (text, gaps)
}

// B2: of a long line the diff shows the changed part, all new text, and how much is omitted
#[test]
fn a_long_line_is_shown_around_its_change() {
    let harness = Harness::new();
    let far = "x".repeat(1 << 20);
    let old = format!("{far}\n{far}one{far}two{far}\n{far}\n");
    harness.tree.file("f", &old);
    let (text, gaps) = edited(&harness, &[EditRequest::replace("one", "oNe")]);
    assert!(text.len() < 8 * 1024, "{}", text.len());
    let front = Some((1 << 20) + 1 - 1024);
    let fronts: Vec<Option<u64>> = gaps.iter().map(|gap| gap.front).collect();
    assert_eq!(fronts, [Some(0), front, front, Some(0)], "the lines around, the old one, the new one");
    let shown =
        |sign: char| text.lines().find(|line| line.starts_with(sign) && !line.starts_with("--")).unwrap();
    let around = |middle: &str| format!("{}{middle}{}", "x".repeat(1023), "x".repeat(1023));
    assert_eq!(shown('-').trim_start_matches('-'), around("one"));
    assert!(text.contains(&format!("\n+{}\n", around("oNe"))));
    assert!(!diff::preview_is_complete(&text) && text.len() < diff::PREVIEW_CHARS);
    // Between two changes nothing new is omitted, however far they are apart.
    let (text, gaps) =
        edited(&harness, &[EditRequest::replace("one", "oNe"), EditRequest::replace("two", "tWo")]);
    assert!(text.contains("oNexx") && text.contains("xxtWo") && text.len() < (1 << 20) + 64 * 1024);
    assert_eq!(gaps.len(), 4, "{gaps:?}");
    // The complete diff is a patch, and the unchanged part of a long line is not new.
    let draft =
        harness.ws.draft_edit(&path("f"), &[EditRequest::replace("one", "oNe")], None, &limits()).unwrap();
    let whole = diff::of_changes(&draft.changes, |_| Some(old.as_bytes()), DiffDetail::Full).unwrap();
    let again = harness.ws.draft_patch(&whole, &limits()).unwrap();
    let new: usize = again
        .changes
        .files()
        .iter()
        .filter_map(FileChange::after)
        .flat_map(|after| &after.splices)
        .map(|splice| splice.insert.len())
        .sum();
    assert_eq!(new, 1);
    // Omitted parts are applied all the same.
    let draft =
        harness.ws.draft_edit(&path("f"), &[EditRequest::replace("two", "2")], None, &limits()).unwrap();
    harness.applier.apply(&draft.changes).unwrap();
    assert_eq!(harness.read("f").unwrap(), old.replace("two", "2").as_bytes());
}

// B2: past the size limit of a diff, further hunks are only counted
#[test]
fn a_diff_past_its_size_limit_ends_and_reports_the_rest() {
    let line = |number: usize| format!("{number:05} {}\n", "y".repeat(2000));
    let old: String = (0..10_000).map(line).collect();
    let shown = |splices: Vec<Splice>| {
        let new = spliced(old.as_bytes(), &splices).unwrap();
        let before = BaseFile { hash: Digest::ZERO, size: old.len() as u64, mode: 0o644 };
        let after = TargetFile {
            path: path("f"),
            hash: Digest::of(b""),
            size: new.len() as u64,
            mode: None,
            splices,
        };
        let changes = ChangeSet::new(vec![FileChange::modify(path("f"), before, after).unwrap()]).unwrap();
        diff::of_changes(&changes, |_| Some(old.as_bytes()), DiffDetail::AllAdded).unwrap()
    };
    let change = |last: &str| {
        let splice = |number: usize| {
            let insert = if number == 990 { last } else { "!" }.as_bytes().to_vec();
            Splice { at: (number * 10 * line(0).len()) as u64, remove: 0, insert }
        };
        shown((0..1000).map(splice).collect())
    };
    // Of many removed runs, each short enough to be shown alone, the later ones are abbreviated too.
    let gone = |number: usize| {
        let (at, remove) = (number * 100 * line(0).len(), 90 * line(0).len());
        Splice { at: at as u64, remove: remove as u64, insert: Vec::new() }
    };
    let fewer = shown((0..100).map(gone).collect());
    assert!(fewer.len() < 3 << 20, "{}", fewer.len());
    let fewer = String::from_utf8(fewer).unwrap();
    assert_eq!((fewer.matches("\n@@ ").count(), diff::omitted_hunks(&fewer)), (100, 0));
    let outcome: u64 =
        fewer.lines().filter_map(|line| Omission::parse(line.as_bytes())).map(|gap| gap.old).sum();
    assert_eq!(outcome + fewer.lines().filter(|line| line.starts_with("-0")).count() as u64, 9000);
    let shown = change("!");
    assert!((8 << 20..9 << 20).contains(&shown.len()), "{}", shown.len());
    let text = String::from_utf8(shown.clone()).unwrap();
    let hunks = text.lines().filter(|line| line.starts_with("@@ ")).count();
    let outcome = text.lines().last().unwrap();
    assert!(outcome.starts_with(&format!("\\ {} further hunks with ", 1000 - hunks)), "{outcome}");
    assert_eq!(Omission::parse(outcome.as_bytes()).map(|gap| gap.hunks), Some(1000 - hunks as u64));
    assert_ne!(diff::patch_hash(&change("?")), diff::patch_hash(&shown), "the digest covers the whole diff");
}
