//! The client against the server: cosignatures, rollbacks, wrong keys and clocks.

use std::sync::Arc;

use parking_lot::Mutex;
use vambrace_core::clock::Clock;
use vambrace_ledger::{Digest, KeyKind, SignatureStatus, SignedNote, SigningKey, VerifyKey};
use vambrace_witness::{BadWitness, LogError, LogSource, SubmitOutcome, WitnessClient};

use crate::fixtures::{ManualClock, NOON, Tree, WitnessServer, log_key};

/// A log in memory: its leaves, and how many of them its newest checkpoint covers.
pub(crate) struct TestLog {
    tree: Tree,
    size: Mutex<u64>,
    /// Sizes after each further read, last first: as if another process appended.
    then: Mutex<Vec<u64>>,
}

impl TestLog {
    pub(crate) fn of(tree: Tree, size: u64) -> Self {
        Self { tree, size: Mutex::new(size), then: Mutex::new(Vec::new()) }
    }

    fn grow(&self, size: u64) {
        *self.size.lock() = size;
    }
}

impl LogSource for TestLog {
    fn checkpoint(&self) -> Result<Option<SignedNote>, LogError> {
        let size = *self.size.lock();
        if let Some(next) = self.then.lock().pop() {
            self.grow(next);
        }
        Ok(Some(self.tree.note(size)))
    }

    fn consistency(&self, old: u64, new: u64) -> Result<Vec<Digest>, LogError> {
        Ok(self.tree.proof(old, new))
    }
}

fn client(server: &WitnessServer) -> WitnessClient {
    WitnessClient::new(&server.url(), server.key.clone(), Arc::clone(&server.clock) as Arc<dyn Clock>)
        .unwrap()
}

fn signed(outcome: SubmitOutcome) -> (u64, String) {
    match outcome {
        SubmitOutcome::Cosigned { checkpoint, line, .. } => (checkpoint.size, line),
        other => panic!("{other:?}"),
    }
}

#[test]
fn growing_log_is_signed_each_time() {
    let (server, log) = (WitnessServer::new(), TestLog::of(Tree::of("a", 40), 1));
    let client = client(&server);
    for size in [1, 2, 2, 7, 32, 33, 40, 40] {
        log.grow(size);
        let (seen, line) = signed(client.submit(&log).unwrap());
        assert_eq!(seen, size);
        let kept = log.tree.note(size).add_lines(&line).unwrap();
        assert!(matches!(kept.signed_by(&server.key), SignatureStatus::Valid(Some(_))));
        assert_eq!(kept.signed_by(&log_key().verify_key()), SignatureStatus::Valid(None));
    }
}

// After a restart the client does not know the witness's size.
#[test]
fn restarted_client_learns_the_size_from_the_witness() {
    let (server, log) = (WitnessServer::new(), TestLog::of(Tree::of("a", 40), 20));
    signed(client(&server).submit(&log).unwrap());
    signed(client(&server).submit(&log).unwrap());
    log.grow(33);
    let anew = client(&server);
    anew.set_acknowledged(20);
    assert_eq!(signed(anew.submit(&log).unwrap()).0, 33);
    let wrong = client(&server);
    wrong.set_acknowledged(5);
    assert_eq!(signed(wrong.submit(&log).unwrap()).0, 33);
}

// B5: the whole state directory is replaced by an older copy
#[test]
fn rolled_back_log_is_detected() {
    let (server, tree) = (WitnessServer::new(), Tree::of("a", 40));
    signed(client(&server).submit(&TestLog::of(tree.clone(), 30)).unwrap());
    for size in [0, 1, 16, 29] {
        let back = TestLog::of(tree.clone(), size);
        let expected = SubmitOutcome::Rollback { witness_size: 30, size };
        assert_eq!(client(&server).submit(&back).unwrap(), expected);
        let same = client(&server);
        same.set_acknowledged(30);
        assert_eq!(same.submit(&back).unwrap(), expected);
    }
    // Rolled back and continued: shorter than, as long as, and longer than what the witness signed.
    for size in [29, 30, 31, 40] {
        let forked = TestLog::of(tree.forked(20, "b"), size);
        let outcome = client(&server).submit(&forked).unwrap();
        assert_eq!(outcome, SubmitOutcome::Rollback { witness_size: 30, size }, "{size}");
    }
    assert_eq!(signed(client(&server).submit(&TestLog::of(tree, 40)).unwrap()).0, 40);
}

// Two processes of one log: the other one was faster.
#[test]
fn newer_submission_of_another_process_is_not_a_rollback() {
    let (server, tree) = (WitnessServer::new(), Tree::of("a", 40));
    signed(client(&server).submit(&TestLog::of(tree.clone(), 30)).unwrap());
    let slow = TestLog::of(tree, 20);
    slow.then.lock().push(35);
    assert_eq!(signed(client(&server).submit(&slow).unwrap()).0, 35);
}

// An attacker on the path replays an old response to a rolled-back log.
#[test]
fn old_signature_is_rejected() {
    let (server, log) = (WitnessServer::new(), TestLog::of(Tree::of("a", 40), 20));
    signed(client(&server).submit(&log).unwrap());
    for away in [-301, 301] {
        let late =
            WitnessClient::new(&server.url(), server.key.clone(), ManualClock::at(NOON + away)).unwrap();
        let outcome = late.submit(&log).unwrap();
        assert!(matches!(&outcome, SubmitOutcome::Rejected(why) if why.contains("301 s")), "{outcome:?}");
    }
    let near = WitnessClient::new(&server.url(), server.key.clone(), ManualClock::at(NOON + 300)).unwrap();
    signed(near.submit(&log).unwrap());
}

#[test]
fn unknown_log_and_wrong_witness_key_are_reported() {
    let server = WitnessServer::new();
    let clock = || ManualClock::at(NOON);
    let other = SigningKey::new("witness.example/w", KeyKind::Witness, &[8; 32]).unwrap().verify_key();
    let log = TestLog::of(Tree::of("a", 40), 20);
    let outcome = WitnessClient::new(&server.url(), other, clock()).unwrap().submit(&log).unwrap();
    assert!(matches!(&outcome, SubmitOutcome::Rejected(why) if why.contains("signature")), "{outcome:?}");

    struct Unknown;
    impl LogSource for Unknown {
        fn checkpoint(&self) -> Result<Option<SignedNote>, LogError> {
            let key = SigningKey::new("unknown", KeyKind::Log, &[1; 32]).unwrap();
            let mut checkpoint = Tree::of("a", 3).checkpoint(3);
            checkpoint.origin = "unknown".into();
            Ok(Some(checkpoint.sign(&key).unwrap()))
        }
        fn consistency(&self, _: u64, _: u64) -> Result<Vec<Digest>, LogError> {
            Err(LogError("not called".into()))
        }
    }
    let outcome = client(&server).submit(&Unknown).unwrap();
    assert!(matches!(&outcome, SubmitOutcome::Rejected(why) if why.contains("404")), "{outcome:?}");

    let log = log_key().verify_key();
    assert!(matches!(WitnessClient::new(&server.url(), log, clock()), Err(BadWitness::Key(_))));
    let key: VerifyKey = server.key.clone();
    assert!(matches!(WitnessClient::new("witness", key, clock()), Err(BadWitness::Url(_))));
}

#[test]
fn log_without_checkpoint_and_log_errors_are_reported() {
    struct Given(Result<Option<SignedNote>, LogError>);
    impl LogSource for Given {
        fn checkpoint(&self) -> Result<Option<SignedNote>, LogError> {
            self.0.clone()
        }
        fn consistency(&self, _: u64, _: u64) -> Result<Vec<Digest>, LogError> {
            Err(LogError("no proof".into()))
        }
    }
    let server = WitnessServer::new();
    assert_eq!(client(&server).submit(&Given(Ok(None))), Ok(SubmitOutcome::NoCheckpoint));
    let error = LogError("no disk".into());
    assert_eq!(client(&server).submit(&Given(Err(error.clone()))), Err(error));
    signed(client(&server).submit(&TestLog::of(Tree::of("a", 9), 5)).unwrap());
    let unproven = Given(Ok(Some(Tree::of("a", 9).note(9))));
    assert_eq!(client(&server).submit(&unproven), Err(LogError("no proof".into())));
}

// The caller may be a plain thread or a runtime's thread.
#[test]
fn client_can_be_used_inside_a_runtime() {
    let server = WitnessServer::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let log = TestLog::of(Tree::of("a", 9), 5);
    let outcome = runtime.block_on(async { client(&server).submit(&log).unwrap() });
    assert_eq!(signed(outcome).0, 5);
}
