//! `vambrace witness` as a process: its commands, and that killing it never makes it sign two histories.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;

use vambrace_ledger::{
    Checkpoint, Digest, Frontier, KeyKind, SignatureStatus, SigningKey, VerifyKey, consistency, leaf,
};
use vambrace_witness::AddCheckpointRequest;

use crate::home::Home;

const KILLS: usize = 150;
const ORIGIN: &str = "vambrace/w-whole";

fn log_key() -> SigningKey {
    SigningKey::new(ORIGIN, KeyKind::Log, &[1; 32]).unwrap()
}

/// A log: its leaves.
#[derive(Clone)]
struct TestLog(Vec<Digest>);

impl TestLog {
    fn grown(&self, branch: &str, by: usize) -> Self {
        let more = (0..by).map(|n| leaf(format!("{branch} {n}").as_bytes()));
        Self(self.0.iter().copied().chain(more).collect())
    }

    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn root_of(&self, stretch: Range<u64>) -> Digest {
        let mut tree = Frontier::new();
        let stretch = usize::try_from(stretch.start).unwrap()..usize::try_from(stretch.end).unwrap();
        self.0[stretch].iter().for_each(|leaf| tree.push(*leaf));
        tree.root()
    }

    fn request(&self, old: u64, new: u64) -> AddCheckpointRequest {
        let proof = consistency(old, new).unwrap().into_iter().map(|part| self.root_of(part)).collect();
        let checkpoint = Checkpoint { origin: ORIGIN.into(), size: new, root: self.root_of(0..new) };
        AddCheckpointRequest::new(old, proof, checkpoint.sign(&log_key()).unwrap()).unwrap()
    }
}

/// A running witness.
struct WitnessProcess {
    child: Child,
    address: String,
}

impl WitnessProcess {
    fn start(home: &Home, dir: &str) -> Self {
        let vkey = log_key().verify_key().to_string();
        let args = ["witness", "--state", dir, "--listen", "127.0.0.1:0", "--log", &vkey];
        let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }
}

impl Drop for WitnessProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request; returns status and body, `None` when the witness is gone.
fn post(address: &str, request: &AddCheckpointRequest) -> Option<(u16, String)> {
    let body = request.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

fn witness_dir(home: &Home) -> (PathBuf, String) {
    let path = home.path("witness");
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

fn witness_key(home: &Home, dir: &str) -> VerifyKey {
    let ran = home.run(["witness", "key", "--state", dir]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out.trim().parse().unwrap()
}

/// Submits a log step by step; returns the sizes that were signed for it.
fn push(address: &str, log: &TestLog, from: u64, key: &VerifyKey, answered: &mpsc::Sender<()>) -> Vec<u64> {
    let (mut old, mut signed) = (from, Vec::new());
    for new in from + 1..=log.size() {
        if old > new {
            continue;
        }
        let request = log.request(old, new);
        let Some((status, body)) = post(address, &request) else { break };
        match status {
            200 => {
                let seen = request.note.add_lines(&body).unwrap();
                assert!(matches!(seen.signed_by(key), SignatureStatus::Valid(Some(_))), "{body}");
                signed.push(new);
                old = new;
            }
            409 => old = body.trim().parse().unwrap(),
            422 => {}
            other => panic!("{other}: {body}"),
        }
        let _ = answered.send(());
    }
    signed
}

// B5: two histories race, and the witness is killed again and again
#[test]
fn killed_witness_never_signs_two_histories_or_forgets_one() {
    let home = Home::bare();
    let (_, dir) = witness_dir(&home);
    let key = witness_key(&home, &dir);
    let mut base = TestLog(Vec::new()).grown("first", 1);
    let mut witness = WitnessProcess::start(&home, &dir);
    assert_eq!(post(&witness.address, &base.request(0, 1)).unwrap().0, 200);
    let (mut acknowledged, mut lost) = (0, 0);
    for round in 0..KILLS {
        let branches = ["a", "b"].map(|name| base.grown(&format!("{name} {round}"), 8));
        let (sender, answers) = mpsc::channel();
        let address = witness.address.clone();
        let signed: Vec<Vec<u64>> = thread::scope(|scope| {
            let pushes: Vec<_> = branches
                .iter()
                .map(|log| {
                    let (sender, address, from, key) = (sender.clone(), &address, base.size(), &key);
                    scope.spawn(move || push(address, log, from, key, &sender))
                })
                .collect();
            drop(sender);
            // Kill after this many answers, with others in flight; the channel also ends when both threads are done.
            answers.iter().take(round % 9).for_each(drop);
            witness.child.kill().unwrap();
            witness.child.wait().unwrap();
            pushes.into_iter().map(|push| push.join().unwrap()).collect()
        });
        assert!(signed.iter().any(Vec::is_empty), "round {round}: two histories were signed: {signed:?}");

        witness = WitnessProcess::start(&home, &dir);
        let (status, size) = post(&witness.address, &base.request(0, 1)).unwrap();
        assert_eq!(status, 409);
        let size: u64 = size.trim().parse().unwrap();
        let most = signed.iter().flatten().copied().max().unwrap_or(base.size());
        assert!(size >= most, "round {round}: {most} was signed, {size} is stored");
        let stands = |log: &TestLog| post(&witness.address, &log.request(size, size)).unwrap().0 == 200;
        let [on_a, on_b] = [stands(&branches[0]), stands(&branches[1])];
        assert!(on_a || on_b, "round {round}: another history is stored");
        assert!(size == base.size() || on_a != on_b);
        assert!((signed[0].is_empty() || on_a) && (signed[1].is_empty() || on_b), "round {round}");
        acknowledged += usize::from(most > base.size());
        lost += usize::from(size > most);
        let winner = &branches[usize::from(!on_a)];
        base = TestLog(winner.0[..usize::try_from(size).unwrap()].to_vec());
    }
    // The kills hit running requests: some rounds ended with a signature, in some a response was lost.
    assert!(acknowledged > KILLS / 3, "{acknowledged} rounds were signed, {lost} lost an answer");
}

#[test]
fn witness_is_managed_from_the_command_line() {
    let home = Home::bare();
    let (path, dir) = witness_dir(&home);
    let ran = home.run(["witness", "key", "--state", &dir, "--name", "witness.example/w"]);
    assert!(ran.out.starts_with("witness.example/w+"), "{ran:?}");
    assert_eq!(ran.out.trim().parse::<VerifyKey>().unwrap(), witness_key(&home, &dir));
    assert_eq!(home.run(["witness", "key", "--state", &dir, "--name", "other"]).code, 2);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path.join("witness.key")).unwrap());
    assert_eq!(mode & 0o777, 0o600);

    let witness = WitnessProcess::start(&home, &dir);
    let log = TestLog(Vec::new()).grown("a", 9);
    assert_eq!(post(&witness.address, &log.request(0, 9)).unwrap().0, 200);
    let listed = home.run(["witness", "list", "--state", &dir, "--json"]).json();
    assert_eq!((&listed[0]["origin"], &listed[0]["size"]), (&ORIGIN.into(), &9.into()), "{listed}");
    assert!(home.run(["witness", "list", "--state", &dir]).out.contains(ORIGIN));
    let vkey = log_key().verify_key().to_string();
    let second = home.run(["witness", "--state", &dir, "--listen", "127.0.0.1:0", "--log", &vkey]);
    assert_eq!(second.code, 5, "{second:?}");
    assert_eq!(home.run(["witness", "forget", ORIGIN, "--state", &dir]).code, 5);
    drop(witness);
    assert_eq!(home.run(["witness", "forget", ORIGIN, "--state", &dir]).code, 0);
    assert_eq!(home.run(["witness", "forget", ORIGIN, "--state", &dir]).code, 2);
}

// In the same state directory as the ledger, a witness would be rolled back with it.
#[test]
fn witness_needs_a_directory_of_its_own_and_logs_to_sign_for() {
    let home = Home::new();
    assert_eq!(home.run(["witness", "key"]).code, 2);
    for dir in [home.state(), home.state().join("w"), home.path("")] {
        let ran = home.run(["witness", "key", "--state", dir.to_str().unwrap()]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("rolled back together"), "{ran:?}");
    }
    assert!(!home.state().join("w").exists());
    let (_, dir) = witness_dir(&home);
    let ran = home.run(["witness", "--state", &dir]);
    assert!(ran.code == 2 && ran.err.contains("no log"), "{ran:?}");
    let witness = witness_key(&home, &dir).to_string();
    let ran = home.run(["witness", "--state", &dir, "--log", &witness]);
    assert!(ran.code == 2 && ran.err.contains("key of a witness"), "{ran:?}");
    std::fs::write(home.path("logs.txt"), "# ours\nnonsense\n").unwrap();
    let logs = home.path("logs.txt");
    let ran = home.run(["witness", "--state", &dir, "--logs", logs.to_str().unwrap()]);
    assert!(ran.code == 2 && ran.err.contains("line 2"), "{ran:?}");
}
