//! Whatever a log with a valid key sends, in whatever order, from however many sides: what was signed is one log
//! that only grew. Checked with the leaves, not with the proofs that the witness itself looked at.

use std::sync::{Arc, Barrier};
use std::thread;

use proptest::prelude::*;
use vambrace_ledger::{Digest, KeyKind, SigningKey, VerifyKey};
use vambrace_witness::{Answer, Submission, Witness};

use crate::given::{NOON, ORIGIN, Running, Stopped, Tree, witness};

const LINES: usize = 40;

/// One attempt of a log, or of somebody who has its old messages.
#[derive(Debug, Clone)]
enum Move {
    /// From the size that the witness has, with the right proof.
    Grow { branch: usize, by: u64 },
    /// Any sizes with the right proof: rollbacks, forks, guesses.
    Jump { branch: usize, old: u64, new: u64 },
    /// The proof of one branch for the checkpoint of another, from the size that the witness has.
    Mixed { proof: usize, branch: usize, by: u64 },
    /// An honest body with one bit turned.
    Flip { branch: usize, by: u64, at: prop::sample::Index, bit: u8 },
    /// A proof that was cut, or lengthened.
    Cut { branch: usize, by: u64, longer: bool },
    /// A body that was sent before.
    Replay(prop::sample::Index),
    /// Growth, signed by somebody else under the same name.
    Strange { by: u64 },
    /// The witness stops and starts anew.
    Restart,
}

fn moves() -> impl Strategy<Value = Move> {
    let size = 0..=LINES as u64;
    prop_oneof![
        4 => (0..4_usize, 0..12_u64).prop_map(|(branch, by)| Move::Grow { branch, by }),
        3 => (0..4_usize, size.clone(), size).prop_map(|(branch, old, new)| Move::Jump { branch, old, new }),
        2 => (0..4_usize, 0..4_usize, 0..12_u64).prop_map(|(proof, branch, by)| Move::Mixed { proof, branch, by }),
        3 => (0..4_usize, 0..12_u64, any::<prop::sample::Index>(), 0..8_u8)
            .prop_map(|(branch, by, at, bit)| Move::Flip { branch, by, at, bit }),
        1 => (0..4_usize, 0..12_u64, any::<bool>()).prop_map(|(branch, by, longer)| Move::Cut { branch, by, longer }),
        2 => any::<prop::sample::Index>().prop_map(Move::Replay),
        1 => (0..12_u64).prop_map(|by| Move::Strange { by }),
        1 => Just(Move::Restart),
    ]
}

/// What was signed, in the order of signing.
#[derive(Default)]
struct Signed(Vec<(u64, Digest)>);

impl Signed {
    /// Notes what an answer signs. The signature is checked with the body that was sent.
    fn note(&mut self, body: &[u8], answer: &Answer, key: &VerifyKey) {
        let Answer::Cosigned(line) = answer else { return };
        let sent = Submission::parse(body).unwrap();
        let signed = sent.note.add_lines(line).unwrap();
        assert!(matches!(signed.signed_by(key), vambrace_ledger::Signed::Yes(Some(_))));
        self.0.push((sent.checkpoint.size, sent.checkpoint.root));
    }

    /// All of it lies on one of the branches, and sizes never fell.
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

    // B5: about 12,000 random moves
    #[test]
    fn no_sequence_of_moves_gets_two_histories_signed(moves in prop::collection::vec(moves(), 60)) {
        let folder = tempfile::tempdir().unwrap();
        let open = || witness(&folder.path().join("w"), Stopped::at(NOON));
        let branches = branches();
        let (mut eye, mut sent, mut signed) = (open(), vec![b"old 0\n\n".to_vec()], Signed::default());
        let mut grown = 0;
        for made in moves {
            let now = signed.0.last().map_or(0, |(size, _)| *size);
            let to = |by: u64| (now + by).min(LINES as u64);
            let body = match made {
                Move::Restart => {
                    drop(eye);
                    eye = open();
                    continue;
                }
                Move::Grow { branch, by } => branches[branch].body(now, to(by)).into_bytes(),
                Move::Jump { branch, old, new } => branches[branch].body(old, new).into_bytes(),
                Move::Mixed { proof, branch, by } => {
                    let proof = branches[proof].proof(now, to(by));
                    Submission::new(now, proof, branches[branch].note(to(by))).unwrap().to_string().into_bytes()
                }
                Move::Flip { branch, by, at, bit } => {
                    let mut body = branches[branch].body(now, to(by)).into_bytes();
                    let at = at.index(body.len());
                    body[at] ^= 1 << bit;
                    body
                }
                Move::Cut { branch, by, longer } => {
                    let mut proof = branches[branch].proof(now, to(by));
                    if longer { proof.push(Digest::ZERO) } else { proof.pop(); }
                    Submission::new(now, proof, branches[branch].note(to(by))).unwrap().to_string().into_bytes()
                }
                Move::Replay(which) => sent[which.index(sent.len())].clone(),
                Move::Strange { by } => {
                    let stranger = SigningKey::new(ORIGIN, KeyKind::Log, &[9; 32]).unwrap();
                    let note = branches[3].checkpoint(to(by)).sign(&stranger).unwrap();
                    let proof = branches[3].proof(now, to(by));
                    Submission::new(now, proof, note).unwrap().to_string().into_bytes()
                }
            };
            let answer = eye.add(&body);
            if let (Move::Strange { .. }, answer) = (&made, &answer) {
                prop_assert_eq!(answer, &Answer::Unsigned);
            }
            if let (Move::Grow { branch, .. }, Some((size, root))) = (&made, signed.0.last()) {
                // Not by refusing everything: a log that only grew is signed.
                let honest = branches[*branch].root(*size) == *root;
                prop_assert_eq!(matches!(answer, Answer::Cosigned(_)), honest, "{:?}", answer);
                grown += usize::from(honest);
            }
            signed.note(&body, &answer, &eye.verify_key());
            sent.push(body);
        }
        signed.check(&branches);
        prop_assert!(grown > 0 || signed.0.len() < 20);
    }
}

/// Two histories at once, each from many threads, as fast as they can.
fn race(eye: &Witness, branches: &[Tree; 2]) -> Vec<(u64, Digest)> {
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        let run = |branch: &Tree| {
            let (mut signed, mut old) = (Signed::default(), 0);
            barrier.wait();
            for new in (1..=LINES as u64).cycle().take(200) {
                let body = branch.body(old.min(new), new).into_bytes();
                let answer = eye.add(&body);
                signed.note(&body, &answer, &eye.verify_key());
                match answer {
                    Answer::Conflict(size) => old = size,
                    Answer::Cosigned(_) => old = new,
                    Answer::Inconsistent { .. } | Answer::Forked { .. } | Answer::Malformed(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            signed.0
        };
        let runs: Vec<_> = (0..8).map(|n| scope.spawn(move || run(&branches[n % 2]))).collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    })
}

#[test]
fn threads_that_push_two_histories_get_one_signed() {
    let folder = tempfile::tempdir().unwrap();
    let eye = witness(&folder.path().join("w"), Stopped::at(NOON));
    let main = Tree::of("a", LINES);
    let branches = [main.forked(1, "b"), main];
    let signed = race(&eye, &branches);
    assert!(signed.len() > 10, "only {} were signed", signed.len());
    let on = |branch: &Tree| signed.iter().all(|(size, root)| branch.root(*size) == *root);
    assert!(branches.iter().any(on), "two histories were signed");
}

#[test]
fn connections_that_push_two_histories_get_one_signed() {
    let running = Arc::new(Running::new());
    let main = Tree::of("a", LINES);
    let branches = [main.forked(1, "b"), main];
    let barrier = Barrier::new(8);
    let signed: Vec<(u64, Digest)> = thread::scope(|scope| {
        let run = |branch: &Tree| {
            barrier.wait();
            let (mut signed, mut old) = (Vec::new(), 0);
            for new in 1..=LINES as u64 {
                let (status, _, answer) = running.post(&branch.body(old.min(new), new));
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
