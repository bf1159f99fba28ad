//! T8, T9: what an edit does to the bytes of a file, as tables of cases. `edit-semantics.jsonl` is a set that was also used
//! to measure other engines; `edit-own.jsonl` holds our own cases in the same format. Every case is drafted, applied to a
//! real file, and rolled back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use vambrace_core::digest::Digest;
use vambrace_core::redacted::SecretSpan;
use vambrace_core::{CallError, ErrorCode};
use vambrace_workspace::{
    Draft, DraftNote, EditError, EditLimits, EditOperation, EditRequest, MatchMode, WriteMode,
};

use crate::fixtures::{TestProject, path};
use crate::harness::Harness;
use crate::searching::finder_of;

const SHARED_CASES: &str = include_str!("../data/edit-semantics.jsonl");
const OWN_CASES: &str = include_str!("../data/edit-own.jsonl");

/// Generous: time is not tested here.
pub(crate) fn limits() -> EditLimits {
    let long = std::time::Duration::from_secs(20);
    EditLimits { regex_budget: long, ast_budget: long, ..EditLimits::default() }
}

fn edits(case: &Value) -> Vec<EditRequest> {
    let edit = |edit: &Value| EditRequest {
        operation: match edit["operation"].as_str().unwrap() {
            "replace" => EditOperation::Replace,
            "append_after" => EditOperation::AppendAfter,
            "prepend_before" => EditOperation::PrependBefore,
            "delete" => EditOperation::Delete,
            other => panic!("{other}"),
        },
        match_mode: match edit["match_mode"].as_str().unwrap() {
            "exact" => MatchMode::Exact,
            "regex" => MatchMode::Regex,
            "ast" => MatchMode::Ast,
            other => panic!("{other}"),
        },
        spec: edit["spec"].as_str().unwrap().to_owned(),
        content: edit["content"].as_str().unwrap().to_owned(),
        count: usize::try_from(edit["count"].as_u64().unwrap()).unwrap(),
        language: edit["language"].as_str().map(str::to_owned),
    };
    case["edits"].as_array().unwrap().iter().map(edit).collect()
}

fn check(case: &Value) -> Result<(), String> {
    let name = case["file"].as_str().unwrap_or("file.txt");
    let input = STANDARD.decode(case["input_b64"].as_str().unwrap()).unwrap();
    let harness = Harness::new();
    harness.tree.file(name, &input);
    let now = || std::fs::read(harness.tree.at(name)).unwrap();
    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let drafted = harness.ws.draft_edit(&path(name), &edits(case), None, &limits());
    if now() != input {
        return Err("drafting changed the file".to_owned());
    }
    match (case["expect"]["status"].as_str().unwrap(), drafted) {
        ("success", Ok(draft)) => {
            let (applied, back) = harness.applier.apply(&draft.changes).map_err(|error| error.to_string())?;
            let expected = STANDARD.decode(case["expect"]["output_b64"].as_str().unwrap()).unwrap();
            if now() != expected {
                return Err(format!("expected {:?}, got {:?}", show(&expected), show(&now())));
            }
            if draft.changes.files().len() == 1 && applied.files[0].after_hash != Some(Digest::of(&expected))
            {
                return Err("the reported hash is not the hash of the content".to_owned());
            }
            harness.applier.apply(&back.unwrap()).map_err(|error| error.to_string())?;
            if now() != input { Err("rolling back did not restore the file".to_owned()) } else { Ok(()) }
        }
        ("rejected", Err(rejected)) => {
            let error = CallError::from(rejected);
            if error.message.contains('\n') {
                return Err(format!("the message has several lines: {}", error.message));
            }
            match case["expect"]["code"].as_str() {
                Some(code) if code != error.code.as_str() => {
                    Err(format!("{}: {}", error.code, error.message))
                }
                _ => Ok(()),
            }
        }
        (_, Ok(draft)) => Err(format!("accepted: {}", show(&draft.diff))),
        (_, Err(error)) => Err(format!("rejected: {error}")),
    }
}

fn check_all(cases: &str, least: usize) {
    let mut wrong = Vec::new();
    let mut count = 0;
    let mut without_grammar = 0;
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        count += 1;
        match check(&case) {
            Ok(()) => {}
            // The message names the feature that adds the grammar; `cargo xtask test` runs these cases with it, too.
            Err(why) if !cfg!(feature = "full-languages") && why.contains("`full-languages`") => {
                without_grammar += 1;
            }
            Err(why) => wrong.push(format!("{}: {why}", case["id"])),
        }
    }
    if without_grammar > 0 {
        vambrace_skip::skip_part(&format!("{without_grammar} cases need the feature `full-languages`"));
    }
    assert!(count >= least, "only {count} cases");
    assert!(wrong.is_empty(), "{} of {count} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

// T8
#[test]
fn every_case_of_the_shared_edit_set_passes() {
    check_all(SHARED_CASES, 15);
}

// T8
#[test]
fn every_case_of_our_own_set_passes() {
    check_all(OWN_CASES, 60);
}

fn edit_error(content: &str, edit: EditRequest) -> EditError {
    let harness = Harness::new();
    harness.tree.file("f", content);
    harness.ws.draft_edit(&path("f"), &[edit], None, &limits()).unwrap_err()
}

// T8
#[test]
fn a_count_mismatch_reports_the_matches_and_similar_text() {
    let error = CallError::from(edit_error("x = 1\nb\n\tx = 1\n", EditRequest::replace("x = 1", "y")));
    assert_eq!(
        error.message,
        "edit 1: expected 1 match(es) in `f` and found 2: line 1: `x = 1`, line 3: `→x = 1`"
    );
    assert!(error.suggestion.contains("`count`"), "{}", error.suggestion);
    let error = edit_error("a\n\tif x:\n\t\ty\n", EditRequest::replace("    if x:\n        y", "z"));
    let EditError::MatchCount { near, .. } = &error else { panic!("{error}") };
    assert_eq!(near[0].hash, Digest::of(b"\tif x:\n\t\ty"));
    assert!(
        error
            .to_string()
            .ends_with("found 0; nearest is line 2, which differs in indentation or whitespace: `→if x:`"),
        "{error}"
    );
}

// T9
#[test]
fn overlapping_edits_are_both_reported() {
    let harness = Harness::new();
    harness.tree.file("f", "one\nabcdef\n");
    let edits = ["one", "abcd", "x", "cdef"].map(|spec| EditRequest::replace(spec, "-"));
    let edits = [edits[0].clone(), edits[1].clone(), edits[3].clone()];
    let error = harness.ws.draft_edit(&path("f"), &edits, None, &limits()).unwrap_err();
    assert_eq!(error.to_string(), "edits 2 and 3 touch the same text in line 2 of `f`");
}

// T8, B3
#[test]
fn a_base_hash_that_differs_from_the_file_is_stale() {
    let harness = Harness::new();
    harness.tree.file("f", "a\n");
    let edit = [EditRequest::replace("a", "b")];
    let good = harness.ws.draft_edit(&path("f"), &edit, Some(Digest::of(b"a\n")), &limits());
    assert!(good.is_ok());
    let bad = harness.ws.draft_edit(&path("f"), &edit, Some(Digest::of(b"b\n")), &limits());
    assert_eq!(bad.unwrap_err().code(), ErrorCode::StaleBase);
    let write = harness.ws.draft_write(&path("f"), b"x", WriteMode::Write, Some(Digest::of(b"")), &limits());
    assert_eq!(write.unwrap_err().code(), ErrorCode::StaleBase);
    let new = harness.ws.draft_write(&path("new"), b"x", WriteMode::Write, Some(Digest::of(b"")), &limits());
    assert_eq!(new.unwrap_err().code(), ErrorCode::StaleBase);
    assert_eq!(
        harness.ws.draft_delete(&path("f"), Some(Digest::of(b"")), &limits()).unwrap_err().code(),
        ErrorCode::StaleBase
    );
}

// T10
#[test]
fn a_pattern_with_quadratic_counting_exceeds_its_budget() {
    let harness = Harness::new();
    harness.tree.file("f", format!("{}!", "a".repeat(400_000)));
    let edit = EditRequest { match_mode: MatchMode::Regex, ..EditRequest::replace(".*[^a!]|[a!]", "b") };
    let tight = EditLimits::default();
    let error = harness.ws.draft_edit(&path("f"), &[edit], None, &tight).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SecurityError, "{error}");
}

// T8: hostile nesting must not overflow the stack.
#[test]
fn extreme_nesting_is_rejected_and_does_not_crash() {
    let harness = Harness::new();
    let deep = 200_000;
    harness.tree.file("a.js", format!("{}1{}", "(".repeat(deep), ")".repeat(deep)));
    let edit = |spec: &str| EditRequest { match_mode: MatchMode::Ast, ..EditRequest::replace(spec, "2") };
    let error = harness.ws.draft_edit(&path("a.js"), &[edit("($A)")], None, &limits()).unwrap_err();
    assert!(matches!(error.code(), ErrorCode::InvalidArguments | ErrorCode::Timeout), "{error}");
    harness.tree.file("b.js", "f(1)");
    let pattern = format!("{}1{}", "(".repeat(8000), ")".repeat(8000));
    let error = harness.ws.draft_edit(&path("b.js"), &[edit(&pattern)], None, &limits()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::MatchCountMismatch, "{error}");
}

// T8
#[test]
fn a_change_that_adds_syntax_errors_is_noted() {
    let harness = Harness::new();
    harness.tree.file("a.rs", "fn a() { b(); }\n").file("a.txt", "fn a() { b(); }\n");
    let note = |name: &str, spec: &str, content: &str| {
        let edit = [EditRequest::replace(spec, content)];
        harness.ws.draft_edit(&path(name), &edit, None, &limits()).unwrap().notes
    };
    let worse = |notes: &[DraftNote]| match notes {
        [DraftNote::Parse { report, .. }] => Some(report.worse()),
        [] => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(worse(&note("a.rs", "b();", "b(;")), Some(true));
    assert_eq!(worse(&note("a.rs", "b();", "c();")), Some(false));
    assert_eq!(worse(&note("a.txt", "b();", "b(;")), None);
}

// T8: draft, apply and roll back an empty file and a large one.
#[test]
fn empty_and_hundred_megabyte_files_can_be_edited() {
    let harness = Harness::new();
    harness.tree.file("empty", "");
    let append = harness.ws.draft_write(&path("empty"), b"x\n", WriteMode::Append, None, &limits()).unwrap();
    harness.applier.apply(&append.changes).unwrap();
    assert_eq!(std::fs::read(harness.tree.at("empty")).unwrap(), b"x\n");
    let mut large = b"0123456789abcdef\r\n".repeat(100 * 1024 * 1024 / 18 - 1);
    large.extend_from_slice(b"needle\r\n");
    harness.tree.file("large", &large);
    let edit = [EditRequest::replace("needle\n", "pin\nthread\n")];
    let draft = harness.ws.draft_edit(&path("large"), &edit, None, &limits()).unwrap();
    assert!(draft.diff.len() < 1000, "{}", draft.diff.len());
    let (_, back) = harness.applier.apply(&draft.changes).unwrap();
    let now = std::fs::read(harness.tree.at("large")).unwrap();
    assert!(now.ends_with(b"abcdef\r\npin\r\nthread\r\n") && now.len() == large.len() + 5);
    harness.applier.apply(&back.unwrap()).unwrap();
    assert!(std::fs::read(harness.tree.at("large")).unwrap() == large);
    harness.tree.file("larger", vec![b'a'; 100 * 1024 * 1024 + 1]);
    let error = harness.ws.draft_edit(&path("larger"), &edit, None, &limits()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TooLarge);
}

// T7, A2, B2, B4
#[test]
fn writing_creates_replaces_and_appends() {
    let harness = Harness::new();
    let write = |name: &str, content: &str, mode| {
        let draft = harness.ws.draft_write(&path(name), content.as_bytes(), mode, None, &limits()).unwrap();
        let reported = (draft.changes.summary(), draft.preview());
        harness.applier.apply(&draft.changes).unwrap();
        reported
    };
    let (summary, preview) = write("src/deep/a.txt", "one\n", WriteMode::Write);
    assert_eq!(summary, "CREATE FILE src/deep/a.txt");
    assert_eq!(preview, "--- /dev/null\n+++ b/src/deep/a.txt\n@@ -0,0 +1 @@\n+one\n");
    let (summary, preview) = write("src/deep/a.txt", "one\ntwo", WriteMode::Write);
    assert_eq!(summary, "MODIFY src/deep/a.txt");
    assert_eq!(
        preview,
        "--- a/src/deep/a.txt\n+++ b/src/deep/a.txt\n@@ -1 +1,2 @@\n one\n+two\n\\ No newline at end of file\n"
    );
    write("src/deep/a.txt", "three\n", WriteMode::Append);
    assert_eq!(std::fs::read(harness.tree.at("src/deep/a.txt")).unwrap(), b"one\ntwothree\n");
    harness.tree.file("crlf", "a\r\n");
    write("crlf", "b\nc\n", WriteMode::Append);
    assert_eq!(std::fs::read(harness.tree.at("crlf")).unwrap(), b"a\r\nb\r\nc\r\n");
    let same =
        harness.ws.draft_write(&path("crlf"), b"a\r\nb\r\nc\r\n", WriteMode::Write, None, &limits()).unwrap();
    assert!(same.changes.is_empty() && same.diff.is_empty());
    let cap =
        harness.ws.draft_write(&path("x"), &vec![b'a'; 512 * 1024 + 1], WriteMode::Write, None, &limits());
    assert_eq!(cap.unwrap_err().code(), ErrorCode::TooLarge);
}

// B2
#[test]
fn a_preview_is_cut_at_8000_characters_and_marked() {
    let harness = Harness::new();
    let content = "ä".repeat(9000);
    let draft =
        harness.ws.draft_write(&path("f"), content.as_bytes(), WriteMode::Write, None, &limits()).unwrap();
    let preview = draft.preview();
    assert_eq!(preview.chars().count(), 8000);
    assert!(preview.ends_with("cut: the diff goes on\n"));
    assert_eq!(draft.patch_hash(), Digest::of(&draft.diff));
}

// T12, T13
#[test]
fn changes_of_paths_that_cannot_be_written_are_not_drafted() {
    let harness = Harness::new();
    harness.tree.file("real.txt", "a\n").file("dir/x", "x").file("twice", "a\n").link("link", "real.txt");
    harness.tree.link("out", harness.tree.outside().join("secret.txt")).link("dangling", "nowhere");
    harness.tree.link("outdir", harness.tree.outside());
    std::fs::hard_link(harness.tree.at("twice"), harness.tree.at("other")).unwrap();
    let write = |name: &str| {
        let drafted = harness.ws.draft_write(&path(name), b"x\n", WriteMode::Write, None, &limits());
        drafted.map(|draft| draft.changes.summary()).map_err(|error| error.code())
    };
    assert_eq!(write("link"), Ok("MODIFY real.txt".to_owned()));
    assert_eq!(write("out"), Err(ErrorCode::ScopeViolation));
    assert_eq!(write("outdir/new"), Err(ErrorCode::ScopeViolation));
    assert_eq!(write("dangling"), Err(ErrorCode::NotAFile));
    assert_eq!(write("dir"), Err(ErrorCode::NotAFile));
    assert_eq!(write("real.txt/x"), Err(ErrorCode::NotAFile));
    assert_eq!(write("."), Err(ErrorCode::NotAFile));
    assert_eq!(write("twice"), Err(ErrorCode::ScopeViolation));
    assert_eq!(write(".env"), Err(ErrorCode::BlockedPath));
    assert_eq!(write("a/b/secrets/new"), Err(ErrorCode::BlockedPath));
    let edit = harness.ws.draft_edit(&path("gone"), &[EditRequest::replace("a", "b")], None, &limits());
    assert_eq!(edit.unwrap_err().code(), ErrorCode::FileNotFound);
}

// T12: shared directories can be read, not written.
#[test]
fn only_the_service_root_can_be_written() {
    let harness = Harness::of_service("services/a");
    harness.tree.file("shared/x", "x\n").file("services/b/x", "x\n");
    for name in ["project:shared/x", "project:shared/new", "project:services/b/x"] {
        let drafted = harness.ws.draft_write(&path(name), b"y\n", WriteMode::Write, None, &limits());
        assert_eq!(drafted.unwrap_err().code(), ErrorCode::ScopeViolation, "{name}");
    }
    let own = harness.ws.draft_write(&path("x"), b"y\n", WriteMode::Write, None, &limits()).unwrap();
    harness.applier.apply(&own.changes).unwrap();
    assert_eq!(std::fs::read(harness.tree.at("services/a/x")).unwrap(), b"y\n");
}

/// What drafting returns, without the content of the file.
fn reported(drafted: Result<Draft, EditError>) -> String {
    match drafted {
        Ok(draft) => format!("{:?}", draft.changes.files()[0].after().unwrap().splices),
        Err(error) => error.to_string(),
    }
}

// T21: two files that differ only in a secret are indistinguishable to a caller that does not know it
#[test]
fn no_edit_and_no_patch_distinguishes_one_secret_from_another() {
    let tree = TestProject::new();
    let workspace = tree.open();
    let value_of = finder_of(|text| {
        let at = text.find("word=").map(|at| at + 5);
        let secret = |at: usize| SecretSpan { span: at..at + 13, placeholder: "[S]".to_owned() };
        Ok(at.map(secret).into_iter().collect())
    });
    let outcome = |secret: &str, edit: &EditRequest| {
        tree.file("a.py", format!("hot = 1\npassword={secret}\npassword=other\nhot = 2\n"));
        let edits = [edit.clone()];
        reported(workspace.0.draft_edit_masked(&path("a.py"), &edits, None, &limits(), &value_of))
    };
    let edit =
        |match_mode, spec: &str, count| EditRequest { match_mode, count, ..EditRequest::replace(spec, "z") };
    use MatchMode::{Ast, Exact, Regex};
    for guess in [
        edit(Exact, "password=h", 1),
        edit(Exact, "word=hot\nchocolate", 1),
        edit(Exact, "hot", 7),
        edit(Exact, "hot", 2),
        edit(Exact, "hot", 3),
        edit(Exact, "passwort=hot", 1),
        edit(Exact, "password=xxx", 1),
        edit(Exact, "password=hot chocolates", 1),
        edit(Regex, "word=h", 1),
        edit(Regex, "^password=h.*$", 1),
        edit(Regex, "^password=[^h].*$", 1),
        edit(Regex, "^password=[a-m].*$", 5),
        edit(Regex, "(?s)word=h.*hot = 2|hot = 2", 1),
        edit(Regex, "hot = 1(?:\npassword=[^h])?", 1),
        edit(Regex, "hot", 2),
        edit(Regex, "(?-u:\\b)", 99),
        edit(Ast, "password=hot_chocolate", 1),
        edit(Ast, "$A = hot_chocolate", 3),
    ] {
        // Secrets of equal length and with equally many lines.
        for pair in [["hot_chocolate", "cold_lemonade"], ["hot\nchocolate", "raw\nsmoothies"]] {
            let [one, other] = pair.map(|secret| outcome(secret, &guess));
            assert_eq!(one, other, "{guess:?}");
            assert!(!one.contains("choc"), "{one}");
        }
    }
    // A pattern that does not depend on the secret matches and removes it as a whole.
    let gone = edit(Regex, "(?m)^password=\\w+\\n", 2);
    assert!(outcome("hot_chocolate", &gone).contains("remove: 38"), "{}", outcome("hot_chocolate", &gone));
    let around = edit(Exact, "password=", 2);
    assert!(outcome("hot_chocolate", &around).contains("remove: 9"));

    for lines in [
        "@@ -2 +2 @@\n-password=hot_chocolate\n+q\n",
        "@@ -1,2 +1,2 @@\n-hot = 1\n+hot = 3\n password=hot_chocolate\n",
        "@@ -9 +9 @@\n-password=hot_chocolate\n+q\n",
    ] {
        let patch = format!("--- a/a.py\n+++ b/a.py\n{lines}");
        let [one, other] = ["hot_chocolate", "cold_lemonade"].map(|secret| {
            tree.file("a.py", format!("hot = 1\npassword={secret}\npassword=other\nhot = 2\n"));
            reported(workspace.0.draft_patch_masked(patch.as_bytes(), &limits(), &value_of))
        });
        assert_eq!(one, other, "{lines}");
    }
}
