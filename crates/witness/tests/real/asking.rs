//! The client against the server: what a log learns from its witness.

use std::sync::Arc;

use parking_lot::Mutex;
use vambrace_core::clock::Clock;
use vambrace_ledger::{Digest, KeyKind, Note, Signed, SigningKey, VerifyKey};
use vambrace_witness::{BadWitness, Client, Log, LogFault, Outcome};

use crate::given::{NOON, Running, Stopped, Tree, log_key};

/// A log in memory: its leaves, and how many of them its newest checkpoint covers.
pub(crate) struct Book {
    tree: Tree,
    size: Mutex<u64>,
    /// What it will have once it was asked so often: another process writes.
    then: Mutex<Vec<u64>>,
}

impl Book {
    pub(crate) fn of(tree: Tree, size: u64) -> Self {
        Self { tree, size: Mutex::new(size), then: Mutex::new(Vec::new()) }
    }

    fn grow(&self, size: u64) {
        *self.size.lock() = size;
    }
}

impl Log for Book {
    fn checkpoint(&self) -> Result<Option<Note>, LogFault> {
        let size = *self.size.lock();
        if let Some(next) = self.then.lock().pop() {
            self.grow(next);
        }
        Ok(Some(self.tree.note(size)))
    }

    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, LogFault> {
        Ok(self.tree.proof(old, new))
    }
}

fn client(running: &Running) -> Client {
    Client::new(&running.url(), running.key.clone(), Arc::clone(&running.clock) as Arc<dyn Clock>).unwrap()
}

fn signed(outcome: Outcome) -> (u64, String) {
    match outcome {
        Outcome::Cosigned { checkpoint, line, .. } => (checkpoint.size, line),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_that_grows_is_signed_again_and_again() {
    let (running, book) = (Running::new(), Book::of(Tree::of("a", 40), 1));
    let client = client(&running);
    for size in [1, 2, 2, 7, 32, 33, 40, 40] {
        book.grow(size);
        let (seen, line) = signed(client.submit(&book).unwrap());
        assert_eq!(seen, size);
        let kept = book.tree.note(size).add_lines(&line).unwrap();
        assert!(matches!(kept.signed_by(&running.key), Signed::Yes(Some(_))));
        assert_eq!(kept.signed_by(&log_key().verify_key()), Signed::Yes(None));
    }
}

// A start: the client knows nothing, the witness much.
#[test]
fn a_client_that_starts_anew_is_told_where_the_witness_stands() {
    let (running, book) = (Running::new(), Book::of(Tree::of("a", 40), 20));
    signed(client(&running).submit(&book).unwrap());
    signed(client(&running).submit(&book).unwrap());
    book.grow(33);
    let anew = client(&running);
    anew.recall(20);
    assert_eq!(signed(anew.submit(&book).unwrap()).0, 33);
    let wrong = client(&running);
    wrong.recall(5);
    assert_eq!(signed(wrong.submit(&book).unwrap()).0, 33);
}

// B5: the whole state folder is set back to an older copy
#[test]
fn a_log_that_was_rolled_back_is_found() {
    let (running, tree) = (Running::new(), Tree::of("a", 40));
    signed(client(&running).submit(&Book::of(tree.clone(), 30)).unwrap());
    for size in [0, 1, 16, 29] {
        let back = Book::of(tree.clone(), size);
        let expected = Outcome::Rollback { witness_size: 30, size };
        assert_eq!(client(&running).submit(&back).unwrap(), expected);
        let same = client(&running);
        same.recall(30);
        assert_eq!(same.submit(&back).unwrap(), expected);
    }
    // It was rolled back and went on: shorter at first, then as long, then longer than what the witness saw.
    for size in [29, 30, 31, 40] {
        let forked = Book::of(tree.forked(20, "b"), size);
        let outcome = client(&running).submit(&forked).unwrap();
        assert_eq!(outcome, Outcome::Rollback { witness_size: 30, size }, "{size}");
    }
    assert_eq!(signed(client(&running).submit(&Book::of(tree, 40)).unwrap()).0, 40);
}

// Two processes of one log: a neighbour that was faster is no rollback.
#[test]
fn a_neighbour_that_submits_more_is_no_rollback() {
    let (running, tree) = (Running::new(), Tree::of("a", 40));
    signed(client(&running).submit(&Book::of(tree.clone(), 30)).unwrap());
    let slow = Book::of(tree, 20);
    slow.then.lock().push(35);
    assert_eq!(signed(client(&running).submit(&slow).unwrap()).0, 35);
}

// Somebody on the way keeps the witness's answers and gives a rolled-back log the one of then.
#[test]
fn an_old_signature_does_not_reassure() {
    let (running, book) = (Running::new(), Book::of(Tree::of("a", 40), 20));
    signed(client(&running).submit(&book).unwrap());
    for away in [-301, 301] {
        let late = Client::new(&running.url(), running.key.clone(), Stopped::at(NOON + away)).unwrap();
        let outcome = late.submit(&book).unwrap();
        assert!(matches!(&outcome, Outcome::Refused(why) if why.contains("301 s")), "{outcome:?}");
    }
    let near = Client::new(&running.url(), running.key.clone(), Stopped::at(NOON + 300)).unwrap();
    signed(near.submit(&book).unwrap());
}

#[test]
fn a_witness_that_does_not_know_us_or_is_another_one_is_told() {
    let running = Running::new();
    let clock = || Stopped::at(NOON);
    let other = SigningKey::new("eye.example/w", KeyKind::Witness, &[8; 32]).unwrap().verify_key();
    let book = Book::of(Tree::of("a", 40), 20);
    let outcome = Client::new(&running.url(), other, clock()).unwrap().submit(&book).unwrap();
    assert!(matches!(&outcome, Outcome::Refused(why) if why.contains("signature")), "{outcome:?}");

    struct Unknown;
    impl Log for Unknown {
        fn checkpoint(&self) -> Result<Option<Note>, LogFault> {
            let key = SigningKey::new("unknown", KeyKind::Log, &[1; 32]).unwrap();
            let mut checkpoint = Tree::of("a", 3).checkpoint(3);
            checkpoint.origin = "unknown".into();
            Ok(Some(checkpoint.sign(&key).unwrap()))
        }
        fn consistency(&self, _: u64, _: u64) -> Result<Vec<Digest>, LogFault> {
            Err(LogFault("not asked".into()))
        }
    }
    let outcome = client(&running).submit(&Unknown).unwrap();
    assert!(matches!(&outcome, Outcome::Refused(why) if why.contains("404")), "{outcome:?}");

    let log = log_key().verify_key();
    assert!(matches!(Client::new(&running.url(), log, clock()), Err(BadWitness::Key(_))));
    let key: VerifyKey = running.key.clone();
    assert!(matches!(Client::new("witness", key, clock()), Err(BadWitness::Url(_))));
}

#[test]
fn an_empty_log_has_nothing_to_show_and_a_broken_one_says_so() {
    struct Given(Result<Option<Note>, LogFault>);
    impl Log for Given {
        fn checkpoint(&self) -> Result<Option<Note>, LogFault> {
            self.0.clone()
        }
        fn consistency(&self, _: u64, _: u64) -> Result<Vec<Digest>, LogFault> {
            Err(LogFault("no proof".into()))
        }
    }
    let running = Running::new();
    assert_eq!(client(&running).submit(&Given(Ok(None))), Ok(Outcome::Nothing));
    let fault = LogFault("no disk".into());
    assert_eq!(client(&running).submit(&Given(Err(fault.clone()))), Err(fault));
    signed(client(&running).submit(&Book::of(Tree::of("a", 9), 5)).unwrap());
    let unproven = Given(Ok(Some(Tree::of("a", 9).note(9))));
    assert_eq!(client(&running).submit(&unproven), Err(LogFault("no proof".into())));
}

// The caller may be a plain thread or one of a runtime.
#[test]
fn it_can_be_asked_from_inside_a_runtime() {
    let running = Running::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let book = Book::of(Tree::of("a", 9), 5);
    let outcome = runtime.block_on(async { client(&running).submit(&book).unwrap() });
    assert_eq!(signed(outcome).0, 5);
}
