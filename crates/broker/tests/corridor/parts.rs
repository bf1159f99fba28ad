//! A part of a proposal, or other content for it: which part is meant, and what the agent hears of it.

use std::sync::Arc;

use serde_json::{Value, json};
use vambrace_broker::{Broker, Choice, Part};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_store::{Options, SqliteStore, StateDir};

use crate::changes::{DEV, ada, file, id, propose};
use crate::faults::{Failing, Fuse};
use crate::kit::{Kit, call, parts};

fn put(kit: &Kit, path: &str, content: &str) {
    std::fs::write(kit.folder.path().join("project").join(path), content).unwrap();
}

/// Sixty lines, some of them changed.
fn lines(changed: &[usize]) -> String {
    (1..=60)
        .map(|n| if changed.contains(&n) { format!("LINE {n}\n") } else { format!("line {n}\n") })
        .collect()
}

async fn agree(broker: &Broker, asked: &Value, part: Part) -> Value {
    let choice = Choice { part, ..Choice::once() };
    broker.approve(&id(asked), choice, &ada()).await.unwrap().unwrap().envelope()
}

fn hunks(parts: &[(&str, &[usize])]) -> Part {
    Part::Hunks(parts.iter().map(|(path, numbers)| ((*path).to_owned(), numbers.to_vec())).collect())
}

// B7: hunks of one file may be named one by one, and a file in any spelling of its path
#[tokio::test]
async fn hunks_of_a_file_named_several_times_and_in_other_spellings_are_all_meant() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    for (name, first, second) in [
        ("src/long.txt", "src/long.txt", "src/long.txt"),
        ("src/again.txt", "./src/again.txt", "src//again.txt"),
        (
            "src/with \"quotes\" and \u{e4}.txt",
            "src/with \"quotes\" and \u{e4}.txt",
            "./src/with \"quotes\" and \u{e4}.txt",
        ),
    ] {
        put(&kit, name, &lines(&[]));
        let asked =
            propose(&broker, "write_file", json!({"path": name, "content": lines(&[2, 30, 55])})).await;
        agree(&broker, &asked, hunks(&[(first, &[1]), (second, &[3])])).await;
        assert_eq!(file(&kit, name).unwrap(), lines(&[2, 55]), "{name}");
    }
}

// Issue 5.5: the agent hears that only a part was applied, which, and the new hash
#[tokio::test]
async fn the_agent_hears_which_part_was_applied() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    put(&kit, "src/long.txt", &lines(&[]));
    let patch = "--- a/src/long.txt\n+++ b/src/long.txt\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+LINE 2\n line 3\n@@ -54,3 +54,3 @@\n line 54\n-line 55\n+LINE 55\n line 56\n--- /dev/null\n+++ b/src/two.rs\n@@ -0,0 +1 @@\n+two\n";
    let asked = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    agree(&broker, &asked, hunks(&[("src/long.txt", &[2])])).await;
    // The agent repeats its call, as after waiting elsewhere.
    let heard = call(&broker, "apply_patch", json!({"patch": patch})).await;
    let data = &heard["data"];
    assert_eq!((&data["applied"], &data["as_proposed"]), (&json!(true), &json!(false)), "{heard}");
    assert_eq!(data["not_applied"], json!([{"path": "src/long.txt", "hunks": [1]}, {"path": "src/two.rs"}]));
    let hash = Digest::of(lines(&[55]).as_bytes()).to_string();
    assert_eq!(data["files"][0]["after_hash"], hash.as_str());
    assert_eq!(data["files"][0]["as_proposed"], false);
    let diff = data["diff"].as_str().unwrap();
    assert!(diff.contains("+LINE 55") && !diff.contains("LINE 2"), "{diff}");
    assert_eq!(file(&kit, "src/two.rs"), None);
}

// Issue 5.5: and so do the words that a model reads
#[tokio::test]
async fn the_words_for_a_model_say_what_was_applied_instead() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let asked = propose(&broker, "write_file", json!({"path": "src/n.txt", "content": "agent\n"})).await;
    let part = Part::Edited(vec![("./src/n.txt".to_owned(), b"human\n".to_vec())]);
    let choice = Choice { part, ..Choice::once() };
    let answer = broker.approve(&id(&asked), choice, &ada()).await.unwrap().unwrap();
    let words = answer.plain_text().unwrap().to_owned();
    let hash = Digest::of(b"human\n").to_string();
    assert!(words.contains("other content than you proposed") && words.contains(&hash), "{words}");
    assert!(words.contains("read these files again"), "{words}");
    assert_eq!(answer.envelope()["data"]["as_proposed"], false);

    // What comes to the whole after all is told as such.
    let asked = propose(&broker, "write_file", json!({"path": "src/m.txt", "content": "agent\n"})).await;
    let whole = agree(&broker, &asked, Part::Files(vec!["src/m.txt".to_owned()])).await;
    assert_eq!(whole["data"]["as_proposed"], true, "{whole}");
}

// B7: other content for a file that also moves, or gets other permissions
#[tokio::test]
async fn edited_content_of_a_renamed_file_lands_under_its_new_name() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    put(&kit, "src/old.txt", "a\nb\n");
    let patch = "diff --git a/src/old.txt b/src/new.txt\nsimilarity index 50%\nrename from src/old.txt\nrename to src/new.txt\n--- a/src/old.txt\n+++ b/src/new.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
    let asked = propose(&broker, "apply_patch", json!({"patch": patch})).await;
    let edited = |path: &str| Part::Edited(vec![(path.to_owned(), b"mine\n".to_vec())]);
    let twice = Part::Edited(vec![
        ("src/new.txt".to_owned(), b"a".to_vec()),
        ("src/old.txt".to_owned(), b"b".to_vec()),
    ]);
    let error =
        broker.approve(&id(&asked), Choice { part: twice, ..Choice::once() }, &ada()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArguments, "{error:?}");
    agree(&broker, &asked, edited("src/new.txt")).await;
    assert_eq!((file(&kit, "src/old.txt"), file(&kit, "src/new.txt").as_deref()), (None, Some("mine\n")));

    let asked = propose(&broker, "delete_file", json!({"path": "src/new.txt"})).await;
    let choice = Choice { part: edited("src/new.txt"), ..Choice::once() };
    let error = broker.approve(&id(&asked), choice, &ada()).await.unwrap_err();
    assert!(error.message.contains("is deleted by this proposal"), "{error:?}");
}

// A8, issue 5.7: whoever agrees to a part is gone after any step; the part is there or nothing is, and the agent hears which
#[tokio::test]
async fn a_part_that_is_cut_off_anywhere_is_whole_and_told_as_a_part() {
    let mut kit = Kit::new(DEV);
    let broker = kit.broker();
    let (project, state) = (kit.folder.path().join("project"), kit.folder.path().join("state"));
    let (mut recovered, mut untouched) = (0, 0);
    for at in 0.. {
        let path = format!("src/cut-{at}.txt");
        put(&kit, &path, &lines(&[]));
        let args = json!({"path": path, "content": lines(&[2, 55])});
        let asked = propose(&broker, "write_file", args.clone()).await;
        let fuse = Fuse::new(at);
        {
            let dir = StateDir::open(&state).unwrap();
            let store = Arc::new(SqliteStore::open(dir, &Options::new(kit.clock.clone())).unwrap());
            let failing = Failing { fuse: Arc::clone(&fuse), ..Failing::never(&store) };
            let doomed = parts(&project, DEV, None, Arc::new(failing), kit.clock.clone());
            let choice = Choice { part: hunks(&[(&path, &[2])]), ..Choice::once() };
            // What it answers is heard by nobody.
            let _ = Broker::new(doomed).approve(&id(&asked), choice, &ada()).await;
        }
        broker.recover().await.unwrap();
        let now = file(&kit, &path).unwrap();
        let heard = call(&broker, "write_file", args).await;
        if now == lines(&[]) {
            untouched += 1;
            assert_ne!(heard["data"]["applied"], true, "{heard}");
        } else {
            assert_eq!(now, lines(&[55]), "half of a part");
            assert_eq!(
                (&heard["data"]["applied"], &heard["data"]["as_proposed"]),
                (&json!(true), &json!(false)),
                "{heard}"
            );
            assert_eq!(heard["data"]["files"][0]["after_hash"], Digest::of(now.as_bytes()).to_string());
            recovered += usize::from(fuse.is_spent());
        }
        if !fuse.is_spent() {
            break;
        }
    }
    assert!(recovered > 0 && untouched > 0, "{recovered} recovered, {untouched} untouched");
}
