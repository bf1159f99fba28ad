//! `vambrace witness` from outside: its commands, and that no kill makes it sign two histories.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;

use vambrace_ledger::{
    Checkpoint, Digest, Frontier, KeyKind, Signed, SigningKey, VerifyKey, consistency, leaf,
};
use vambrace_witness::Submission;

use crate::home::Home;

const KILLS: usize = 150;
const ORIGIN: &str = "vambrace/w-whole";

fn log_key() -> SigningKey {
    SigningKey::new(ORIGIN, KeyKind::Log, &[1; 32]).unwrap()
}

/// A log: its leaves.
#[derive(Clone)]
struct Log(Vec<Digest>);

impl Log {
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

    fn submission(&self, old: u64, new: u64) -> Submission {
        let proof = consistency(old, new).unwrap().into_iter().map(|part| self.root_of(part)).collect();
        let checkpoint = Checkpoint { origin: ORIGIN.into(), size: new, root: self.root_of(0..new) };
        Submission::new(old, proof, checkpoint.sign(&log_key()).unwrap()).unwrap()
    }
}

/// A witness that runs.
struct Eye {
    child: Child,
    address: String,
}

impl Eye {
    fn start(home: &Home, folder: &str) -> Self {
        let vkey = log_key().verify_key().to_string();
        let args = ["witness", "--state", folder, "--listen", "127.0.0.1:0", "--log", &vkey];
        let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, address }
    }
}

impl Drop for Eye {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body; none when the witness is gone.
fn post(address: &str, submission: &Submission) -> Option<(u16, String)> {
    let body = submission.to_string();
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

fn own_folder(home: &Home) -> (PathBuf, String) {
    let path = home.path("witness");
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

fn witness_key(home: &Home, folder: &str) -> VerifyKey {
    let ran = home.run(["witness", "key", "--state", folder]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out.trim().parse().unwrap()
}

/// Pushes a log step by step; the sizes that were signed for it.
fn push(address: &str, log: &Log, from: u64, key: &VerifyKey, answered: &mpsc::Sender<()>) -> Vec<u64> {
    let (mut old, mut signed) = (from, Vec::new());
    for new in from + 1..=log.size() {
        if old > new {
            continue;
        }
        let submission = log.submission(old, new);
        let Some((status, body)) = post(address, &submission) else { break };
        match status {
            200 => {
                let seen = submission.note.add_lines(&body).unwrap();
                assert!(matches!(seen.signed_by(key), Signed::Yes(Some(_))), "{body}");
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

// B5: two histories race, the witness is killed in the middle, again and again
#[test]
fn no_kill_makes_the_witness_sign_two_histories_or_forget_one() {
    let home = Home::bare();
    let (_, folder) = own_folder(&home);
    let key = witness_key(&home, &folder);
    let mut base = Log(Vec::new()).grown("first", 1);
    let mut eye = Eye::start(&home, &folder);
    assert_eq!(post(&eye.address, &base.submission(0, 1)).unwrap().0, 200);
    let (mut acknowledged, mut lost) = (0, 0);
    for round in 0..KILLS {
        let branches = ["a", "b"].map(|name| base.grown(&format!("{name} {round}"), 8));
        let (sender, answers) = mpsc::channel();
        let address = eye.address.clone();
        let signed: Vec<Vec<u64>> = thread::scope(|scope| {
            let pushes: Vec<_> = branches
                .iter()
                .map(|log| {
                    let (sender, address, from, key) = (sender.clone(), &address, base.size(), &key);
                    scope.spawn(move || push(address, log, from, key, &sender))
                })
                .collect();
            drop(sender);
            // After so many answers, with others under way; the channel also ends when both are done.
            answers.iter().take(round % 9).for_each(drop);
            eye.child.kill().unwrap();
            eye.child.wait().unwrap();
            pushes.into_iter().map(|push| push.join().unwrap()).collect()
        });
        assert!(signed.iter().any(Vec::is_empty), "round {round}: two histories were signed: {signed:?}");

        eye = Eye::start(&home, &folder);
        let (status, size) = post(&eye.address, &base.submission(0, 1)).unwrap();
        assert_eq!(status, 409);
        let size: u64 = size.trim().parse().unwrap();
        let most = signed.iter().flatten().copied().max().unwrap_or(base.size());
        assert!(size >= most, "round {round}: {most} was signed, {size} is remembered");
        let stands = |log: &Log| post(&eye.address, &log.submission(size, size)).unwrap().0 == 200;
        let [on_a, on_b] = [stands(&branches[0]), stands(&branches[1])];
        assert!(on_a || on_b, "round {round}: another history is remembered");
        assert!(size == base.size() || on_a != on_b);
        assert!((signed[0].is_empty() || on_a) && (signed[1].is_empty() || on_b), "round {round}");
        acknowledged += usize::from(most > base.size());
        lost += usize::from(size > most);
        let winner = &branches[usize::from(!on_a)];
        base = Log(winner.0[..usize::try_from(size).unwrap()].to_vec());
    }
    // That the kills met something: some rounds ended with a signature, in some an answer was lost on the way.
    assert!(acknowledged > KILLS / 3, "{acknowledged} rounds were signed, {lost} lost an answer");
}

#[test]
fn the_witness_is_told_about_and_told_from_the_command_line() {
    let home = Home::bare();
    let (path, folder) = own_folder(&home);
    let ran = home.run(["witness", "key", "--state", &folder, "--name", "eye.example/w"]);
    assert!(ran.out.starts_with("eye.example/w+"), "{ran:?}");
    assert_eq!(ran.out.trim().parse::<VerifyKey>().unwrap(), witness_key(&home, &folder));
    assert_eq!(home.run(["witness", "key", "--state", &folder, "--name", "other"]).code, 2);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path.join("witness.key")).unwrap());
    assert_eq!(mode & 0o777, 0o600);

    let eye = Eye::start(&home, &folder);
    let log = Log(Vec::new()).grown("a", 9);
    assert_eq!(post(&eye.address, &log.submission(0, 9)).unwrap().0, 200);
    let listed = home.run(["witness", "list", "--state", &folder, "--json"]).json();
    assert_eq!((&listed[0]["origin"], &listed[0]["size"]), (&ORIGIN.into(), &9.into()), "{listed}");
    assert!(home.run(["witness", "list", "--state", &folder]).out.contains(ORIGIN));
    let vkey = log_key().verify_key().to_string();
    let second = home.run(["witness", "--state", &folder, "--listen", "127.0.0.1:0", "--log", &vkey]);
    assert_eq!(second.code, 5, "{second:?}");
    assert_eq!(home.run(["witness", "forget", ORIGIN, "--state", &folder]).code, 5);
    drop(eye);
    assert_eq!(home.run(["witness", "forget", ORIGIN, "--state", &folder]).code, 0);
    assert_eq!(home.run(["witness", "forget", ORIGIN, "--state", &folder]).code, 2);
}

// Beside the ledger it watches, a witness would be rolled back with it.
#[test]
fn a_witness_needs_a_folder_of_its_own_and_logs_to_sign_for() {
    let home = Home::new();
    assert_eq!(home.run(["witness", "key"]).code, 2);
    for folder in [home.state(), home.state().join("w"), home.path("")] {
        let ran = home.run(["witness", "key", "--state", folder.to_str().unwrap()]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains("rolled back together"), "{ran:?}");
    }
    assert!(!home.state().join("w").exists());
    let (_, folder) = own_folder(&home);
    let ran = home.run(["witness", "--state", &folder]);
    assert!(ran.code == 2 && ran.err.contains("no log"), "{ran:?}");
    let witness = witness_key(&home, &folder).to_string();
    let ran = home.run(["witness", "--state", &folder, "--log", &witness]);
    assert!(ran.code == 2 && ran.err.contains("key of a witness"), "{ran:?}");
    std::fs::write(home.path("logs.txt"), "# ours\nnonsense\n").unwrap();
    let logs = home.path("logs.txt");
    let ran = home.run(["witness", "--state", &folder, "--logs", logs.to_str().unwrap()]);
    assert!(ran.code == 2 && ran.err.contains("line 2"), "{ran:?}");
}
