//! Whatever requests a log with a valid key sends, in any order and concurrently: the signed checkpoints belong to one log
//! that only grew. Checked with the leaves, not with the proofs that the witness verified.

use std::sync::{Arc, Barrier};
use std::thread;

use proptest::prelude::*;
use vambrace_ledger::{Digest, KeyKind, SigningKey, VerifyKey};
use vambrace_witness::{AddCheckpointRequest, Witness, WitnessAnswer};

use crate::fixtures::{ManualClock, NOON, ORIGIN, Tree, WitnessServer, open_witness};

const LINES: usize = 40;

/// One request of a log, or of an attacker who has its old messages.
#[derive(Debug, Clone)]
enum Attempt {
    /// From the size that the witness has, with the right proof.
    Grow { branch: usize, by: u64 },
    /// Any sizes with the right proof: rollbacks, forks, guesses.
    Jump { branch: usize, old: u64, new: u64 },
    /// The proof of one branch for the checkpoint of another, from the size that the witness has.
    Mixed { proof: usize, branch: usize, by: u64 },
    /// An honest body with one bit flipped.
    Flip { branch: usize, by: u64, at: prop::sample::Index, bit: u8 },
    /// A proof with one hash removed or added.
    Cut { branch: usize, by: u64, longer: bool },
    /// A body that was sent before.
    Replay(prop::sample::Index),
    /// Growth, signed by another key with the same name.
    ForeignKey { by: u64 },
    /// The witness restarts.
    Restart,
}

fn attempts() -> impl Strategy<Value = Attempt> {
    let size = 0..=LINES as u64;
    prop_oneof![
        4 => (0..4_usize, 0..12_u64).prop_map(|(branch, by)| Attempt::Grow { branch, by }),
        3 => (0..4_usize, size.clone(), size).prop_map(|(branch, old, new)| Attempt::Jump { branch, old, new }),
        2 => (0..4_usize, 0..4_usize, 0..12_u64).prop_map(|(proof, branch, by)| Attempt::Mixed { proof, branch, by }),
        3 => (0..4_usize, 0..12_u64, any::<prop::sample::Index>(), 0..8_u8)
            .prop_map(|(branch, by, at, bit)| Attempt::Flip { branch, by, at, bit }),
        1 => (0..4_usize, 0..12_u64, any::<bool>()).prop_map(|(branch, by, longer)| Attempt::Cut { branch, by, longer }),
        2 => any::<prop::sample::Index>().prop_map(Attempt::Replay),
        1 => (0..12_u64).prop_map(|by| Attempt::ForeignKey { by }),
        1 => Just(Attempt::Restart),
    ]
}

/// The signed trees, in the order of signing.
#[derive(Default)]
struct Signed(Vec<(u64, Digest)>);

impl Signed {
    /// Records what an answer signs. Verifies the signature against the body that was sent.
    fn note(&mut self, body: &[u8], answer: &WitnessAnswer, key: &VerifyKey) {
        let WitnessAnswer::Cosigned(line) = answer else { return };
        let sent = AddCheckpointRequest::parse(body).unwrap();
        let signed = sent.note.add_lines(line).unwrap();
        assert!(matches!(signed.signed_by(key), vambrace_ledger::SignatureStatus::Valid(Some(_))));
        self.0.push((sent.checkpoint.size, sent.checkpoint.root));
    }

    /// All of it lies on one branch, and sizes never decreased.
    fn check(&self, branches: &[Tree]) {
        assert!(self.0.is_sorted_by_key(|(size, _)| *size), "an older checkpoint was signed: {:?}", self.0);
        let on = |branch: &Tree| self.0.iter().all(|(size, root)| branch.root(*size) == *root);
        assert!(branches.iter().any(on), "two histories were signed");
    }
}

fn branches() -> [Tree; 4] {
    let main = Tree::of("a", LINES);
    [main.forked(3, "b"), main.forked(16, "c"), main.forked(29, "d"), main]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    // B5: about 12,000 random attempts
    #[test]
    fn no_sequence_of_requests_gets_two_histories_signed(attempts in prop::collection::vec(attempts(), 60)) {
        let dir = tempfile::tempdir().unwrap();
        let open = || open_witness(&dir.path().join("w"), ManualClock::at(NOON));
        let branches = branches();
        let (mut witness, mut sent, mut signed) = (open(), vec![b"old 0\n\n".to_vec()], Signed::default());
        let mut grown = 0;
        for made in attempts {
            let now = signed.0.last().map_or(0, |(size, _)| *size);
            let to = |by: u64| (now + by).min(LINES as u64);
            let body = match made {
                Attempt::Restart => {
                    drop(witness);
                    witness = open();
                    continue;
                }
                Attempt::Grow { branch, by } => branches[branch].body(now, to(by)).into_bytes(),
                Attempt::Jump { branch, old, new } => branches[branch].body(old, new).into_bytes(),
                Attempt::Mixed { proof, branch, by } => {
                    let proof = branches[proof].proof(now, to(by));
                    AddCheckpointRequest::new(now, proof, branches[branch].note(to(by))).unwrap().to_string().into_bytes()
                }
                Attempt::Flip { branch, by, at, bit } => {
                    let mut body = branches[branch].body(now, to(by)).into_bytes();
                    let at = at.index(body.len());
                    body[at] ^= 1 << bit;
                    body
                }
                Attempt::Cut { branch, by, longer } => {
                    let mut proof = branches[branch].proof(now, to(by));
                    if longer { proof.push(Digest::ZERO) } else { proof.pop(); }
                    AddCheckpointRequest::new(now, proof, branches[branch].note(to(by))).unwrap().to_string().into_bytes()
                }
                Attempt::Replay(which) => sent[which.index(sent.len())].clone(),
                Attempt::ForeignKey { by } => {
                    let foreign_key = SigningKey::new(ORIGIN, KeyKind::Log, &[9; 32]).unwrap();
                    let note = branches[3].checkpoint(to(by)).sign(&foreign_key).unwrap();
                    let proof = branches[3].proof(now, to(by));
                    AddCheckpointRequest::new(now, proof, note).unwrap().to_string().into_bytes()
                }
            };
            let answer = witness.add_checkpoint(&body);
            if let (Attempt::ForeignKey { .. }, answer) = (&made, &answer) {
                prop_assert_eq!(answer, &WitnessAnswer::Unsigned);
            }
            if let (Attempt::Grow { branch, .. }, Some((size, root))) = (&made, signed.0.last()) {
                // A log that only grew is signed: the witness does not just reject everything.
                let honest = branches[*branch].root(*size) == *root;
                prop_assert_eq!(matches!(answer, WitnessAnswer::Cosigned(_)), honest, "{:?}", answer);
                grown += usize::from(honest);
            }
            signed.note(&body, &answer, &witness.verify_key());
            sent.push(body);
        }
        signed.check(&branches);
        prop_assert!(grown > 0 || signed.0.len() < 20);
    }
}

/// Submits two histories concurrently, each from four threads.
fn race(witness: &Witness, branches: &[Tree; 2]) -> Vec<(u64, Digest)> {
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        let run = |branch: &Tree| {
            let (mut signed, mut old) = (Signed::default(), 0);
            barrier.wait();
            for new in (1..=LINES as u64).cycle().take(200) {
                let body = branch.body(old.min(new), new).into_bytes();
                let answer = witness.add_checkpoint(&body);
                signed.note(&body, &answer, &witness.verify_key());
                match answer {
                    WitnessAnswer::Conflict(size) => old = size,
                    WitnessAnswer::Cosigned(_) => old = new,
                    WitnessAnswer::Inconsistent { .. }
                    | WitnessAnswer::Forked { .. }
                    | WitnessAnswer::Malformed(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            signed.0
        };
        let runs: Vec<_> = (0..8).map(|n| scope.spawn(move || run(&branches[n % 2]))).collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    })
}

// B5
#[test]
fn concurrent_threads_get_only_one_history_signed() {
    let dir = tempfile::tempdir().unwrap();
    let witness = open_witness(&dir.path().join("w"), ManualClock::at(NOON));
    let main = Tree::of("a", LINES);
    let branches = [main.forked(1, "b"), main];
    let signed = race(&witness, &branches);
    assert!(signed.len() > 10, "only {} were signed", signed.len());
    let on = |branch: &Tree| signed.iter().all(|(size, root)| branch.root(*size) == *root);
    assert!(branches.iter().any(on), "two histories were signed");
}

// B5
#[test]
fn concurrent_connections_get_only_one_history_signed() {
    let server = Arc::new(WitnessServer::new());
    let main = Tree::of("a", LINES);
    let branches = [main.forked(1, "b"), main];
    let barrier = Barrier::new(8);
    let signed: Vec<(u64, Digest)> = thread::scope(|scope| {
        let run = |branch: &Tree| {
            barrier.wait();
            let (mut signed, mut old) = (Vec::new(), 0);
            for new in 1..=LINES as u64 {
                let (status, _, answer) = server.post(&branch.body(old.min(new), new));
                match status {
                    200 => signed.push((new, branch.root(new))),
                    409 => old = answer.trim().parse().unwrap(),
                    400 | 422 => {}
                    other => panic!("{other}: {answer}"),
                }
                old = if status == 200 { new } else { old };
            }
            signed
        };
        let runs: Vec<_> =
            branches.iter().cycle().take(8).map(|branch| scope.spawn(move || run(branch))).collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    assert!(!signed.is_empty());
    let on = |branch: &Tree| signed.iter().all(|(size, root)| branch.root(*size) == *root);
    assert!(branches.iter().any(on), "two histories were signed: {signed:?}");
}
