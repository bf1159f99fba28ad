//! Two verifiers that share no code, on the same mutated ledgers: they must come to the same verdict every time. The
//! other one is `contrib/verify_ledger.py`; it is also shown what must not be a finding. A third one, ct-merkle,
//! looks at the roots and proofs of a real ledger.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use serde_json::{Value, json};
use sha2::Sha256;
use vambrace_store::{SqliteStore, StateDir, StoreError, VerifyOptions, VerifyReport};

use crate::attacks::{later, looked};
use crate::forge::{Dice, Forge, Image, Story, resealed, story, write};
use crate::given::{at, checked, quick};
use crate::moves::{Hand, MOVES, Move, replace_keys};

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/verify_ledger.py")
}

/// The other verifier, asked again and again.
struct Second {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Second {
    fn new() -> Self {
        let mut command = Command::new("python3");
        command.arg(script()).arg("--batch").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("python3 is needed: {error}"));
        let (ask, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, ask, answers }
    }

    fn look(&mut self, question: &Value) -> Value {
        writeln!(self.ask, "{question}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?} to {question}"))
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

thread_local! {
    static SECOND: std::cell::RefCell<Second> = std::cell::RefCell::new(Second::new());
}

/// What ours finds, once the other one has come to the same verdict, with the same words for what lies beside the chain.
pub(crate) fn agreed(home: &Path) -> VerifyReport {
    let question = json!({"folder": home, "now": at(5_000).to_string()});
    let (report, answer) = (checked(home), SECOND.with_borrow_mut(|second| second.look(&question)));
    let kinds =
        answer["findings"].as_array().unwrap().iter().map(|finding| finding["kind"].as_str().unwrap());
    let beside = |kind: &&str| kind.starts_with("payload_") || *kind == "bad_decision";
    let mut theirs: Vec<&str> = kinds.filter(beside).collect();
    let kinds = report.findings.faults().iter().map(|finding| finding.kind.as_str());
    let mut ours: Vec<&str> = kinds.filter(beside).collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    let verdicts = (Some(report.findings.is_clean()), answer["ok"].as_bool());
    assert!(verdicts.0 == verdicts.1 && ours == theirs, "{:#?} and {answer:#}", report.findings);
    report
}

/// What is no attack, or not one that the folder can show: an honest crash, or something that is only a hint.
const HONEST: &[Move] = &[
    ("nothing", |_| {}),
    ("a checkpoint row less", |hand| {
        hand.forge
            .sql("DELETE FROM checkpoints WHERE sealed = 0 AND size < (SELECT max(size) FROM checkpoints)");
    }),
    ("the newest row less", |hand| {
        hand.forge.sql("DELETE FROM checkpoints WHERE size = (SELECT max(size) FROM checkpoints)");
    }),
    ("an older checkpoint file", |hand| {
        let kept = &hand.ours.kept[hand.dice.below(hand.ours.kept.len())];
        write(&hand.forge.newest(), kept);
    }),
    ("the last segment torn, the cursor behind", |hand| {
        let (first, path) = hand.forge.segments().pop().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        write(&path, &bytes[..hand.dice.below(bytes.len())]);
        hand.forge.sql(&format!("UPDATE projection SET seq = {}, segment = {first}, offset = 0", first - 1));
    }),
    ("no key file", |hand| std::fs::remove_file(hand.forge.home.join("keys/ledger.key")).unwrap()),
    ("other times of signing", |hand| hand.forge.sql("UPDATE checkpoints SET at = at + 12345")),
    ("young records behind the end", |hand| {
        let mut lines = hand.forge.lines();
        let stamp = [-20_000, -3_000, 3_000, 20_000, 9_000_000_000][hand.dice.below(5)];
        let young = at(86_400_000 + stamp).to_string();
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        let line = lines[3].replacen(
            serde_json::from_str::<Value>(&lines[3]).unwrap()["ts"].as_str().unwrap(),
            &young,
            1,
        );
        lines.push(resealed(&line, lines.len() + 1, last["event_hash"].as_str().unwrap().parse().unwrap()));
        hand.forge.set_lines(&lines);
        hand.forge.fix_segments();
        hand.forge.fix_tree();
    }),
    ("the cursor elsewhere", |hand| {
        let column = ["seq", "segment", "offset"][hand.dice.below(3)];
        let by = 1_i64 << hand.dice.below(10);
        hand.forge.sql(&format!("UPDATE projection SET {column} = abs({column} - {by})"));
    }),
    ("no file of the newest checkpoint", |hand| {
        std::fs::remove_file(hand.forge.newest()).unwrap();
        let at = at(86_400_000 + [-20_000, -3_000, 20_000][hand.dice.below(3)]).millis();
        hand.forge.sql(&format!("UPDATE checkpoints SET at = {at}"));
    }),
    ("marks of seals", |hand| {
        hand.forge.sql(
            "UPDATE checkpoints SET sealed = 1 - sealed WHERE size = (SELECT min(size) FROM checkpoints)",
        );
    }),
    ("a kept subtree", |hand| {
        let change = ["hash = zeroblob(32)", "place = place + 1", "height = height + 1"][hand.dice.below(3)];
        hand.forge.sql(&format!("UPDATE tree_nodes SET {change} WHERE height = 8 AND place = 0"));
    }),
    ("an empty segment at the end", |hand| {
        let end = hand.forge.lines().len() + 1 + hand.dice.below(2);
        write(&hand.forge.home.join(format!("ledger/{end:020}.jsonl")), b"");
    }),
    ("keys of his own", |hand| drop(replace_keys(hand.forge, |_, _| {}))),
];

/// Makes all moves so many times and compares; returns how many were clean, and how many there were.
fn compare(ours: &Story, other: &Story, seed: u64, times: u64) -> (u64, u64) {
    let temp = crate::forge::folder();
    let home = temp.path().join("forged");
    let kept = temp.path().join("kept");
    let now = at(86_400_000).to_string();
    let (mut second, mut dice) = (Second::new(), Dice(seed));
    let (mut clean, mut all) = (0, 0);
    for (name, make) in MOVES.iter().chain(HONEST) {
        for round in 0..times {
            let forge = Forge::of(&ours.image, &home);
            make(&mut Hand { ours, other, forge: &forge, dice: &mut dice });
            drop(forge);
            let mut options = later();
            let mut question = json!({"folder": &home, "now": &now});
            if dice.below(3) == 0 {
                let text = &ours.kept[dice.below(ours.kept.len())];
                write(&kept, text);
                options.checkpoints = vec![("kept".into(), text.clone())];
                question["checkpoints"] = json!([&kept]);
            }
            if dice.below(3) == 0 {
                options.key = Some(ours.key.parse().unwrap());
                question["keys"] = json!([&ours.key]);
            }
            let (first, answer) = (looked(&home, &options), second.look(&question));
            assert_eq!(
                Some(first.findings.is_clean()),
                answer["ok"].as_bool(),
                "`{name}`, seed {seed}, round {round}: {:#?} and {answer:#}",
                first.findings
            );
            clean += u64::from(first.findings.is_clean());
            all += 1;
        }
    }
    (clean, all)
}

// B5
#[test]
fn two_verifiers_agree_on_thousands_of_ledgers() {
    let (small, large) = (story(3, 12, 3000), story(2, 140, 30_000));
    let sums = std::thread::scope(|scope| {
        let one = scope.spawn(|| compare(&small, &large, 11, 40));
        let two = scope.spawn(|| compare(&large, &small, 12, 16));
        [one.join().unwrap(), two.join().unwrap()]
    });
    let (clean, all) = (sums[0].0 + sums[1].0, sums[0].1 + sums[1].1);
    assert!(all > 2000 && clean > 100, "{clean} of {all} were clean");
}

// B5
#[test]
fn a_ledger_that_was_copied_while_it_was_open_is_clean_to_both() {
    let temp = crate::forge::folder();
    let (home, copy) = (temp.path().join("state"), temp.path().join("copy"));
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &quick()).unwrap();
    let runtime = crate::given::runtime();
    runtime.block_on(async {
        use vambrace_store::Store as _;
        let session = vambrace_store::Batch::durable(vec![], vec![crate::given::session("s-1")]);
        store.commit(session).await.unwrap();
        for n in 0..30 {
            store.commit(crate::given::start("s-1", &format!("c-{n}"), n)).await.unwrap();
        }
    });
    store.catch_up().unwrap();
    Image::of(&home).put(&copy);
    let options = VerifyOptions::new(at(9_000));
    let report = looked(&copy, &options);
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    let answer = Second::new().look(&json!({"folder": &copy, "now": at(9_000).to_string()}));
    assert_eq!((answer["ok"].as_bool(), answer["records"].as_u64()), (Some(true), Some(31)), "{answer:#}");
}

// B5: what is kept elsewhere is looked at before the table, which may grow meanwhile
#[test]
fn a_ledger_that_grows_while_it_is_looked_at_is_clean_to_the_second() {
    let temp = crate::forge::folder();
    let (home, pipe) = (temp.path().join("state"), temp.path().join("newest"));
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &quick()).unwrap();
    store.catch_up().unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let question = json!({"folder": &home, "now": at(9_000).to_string(), "checkpoints": [&pipe]});
    let looking = std::thread::spawn(move || Second::new().look(&question));
    // It opens when the other one has come to the checkpoint that was kept.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let open = || std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&pipe);
    let began = Instant::now();
    let mut pipe = loop {
        match open() {
            Err(_) if began.elapsed() < Duration::from_secs(20) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    crate::given::runtime().block_on(async {
        use vambrace_store::Store as _;
        store.commit(crate::given::start("s-1", "c-1", 1)).await.unwrap();
    });
    store.catch_up().unwrap();
    pipe.write_all(store.newest_checkpoint().unwrap().unwrap().note.as_bytes()).unwrap();
    drop(pipe);
    let answer = looking.join().unwrap();
    assert_eq!((answer["ok"].as_bool(), answer["records"].as_u64()), (Some(true), Some(2)), "{answer:#}");
}

/// As the program before the last two migrations left it, with an applied change that can be undone.
const WITH_HEAD: &str = "
    CREATE TABLE head (id INTEGER PRIMARY KEY, writer TEXT NOT NULL, seq INTEGER NOT NULL, event_hash TEXT NOT NULL) STRICT;
    INSERT INTO head SELECT 1, name, (SELECT max(seq) FROM ledger), (SELECT hash FROM tree) FROM writer;
    DROP TABLE writer; ALTER TABLE calls DROP COLUMN events;
    DROP TABLE ways_back; ALTER TABLE proposals ADD COLUMN back BLOB;
    INSERT INTO proposals (id, call, session, user, project, tool, path, summary, files, patch_hash, digest, state, created,
        changed, shown, back)
        VALUES ('hitl-1', 'c', 's', 'u', 'p', 't', 'f', 'MODIFY f', 1, zeroblob(32), zeroblob(32), 'applied', 1, 1, x'01', x'02');
    DELETE FROM migrations WHERE version >= 5; PRAGMA user_version = 4";

// Issue 3, 2
#[test]
fn a_folder_that_no_newer_program_has_opened_is_verified_as_it_is() {
    let ours = story(2, 12, 3000);
    let temp = crate::forge::folder();
    let home = temp.path().join("state");
    Forge::of(&ours.image, &home).sql(WITH_HEAD);
    let records = agreed(&home).records;
    assert!(agreed(&home).findings.is_clean());
    Forge::of(&ours.image, &home).sql(&format!("{WITH_HEAD}; DELETE FROM ledger WHERE seq = 5"));
    assert!(!agreed(&home).findings.is_clean());
    // Opening it brings it up to date, and nothing is lost.
    Forge::of(&ours.image, &home).sql(WITH_HEAD);
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &quick()).unwrap();
    crate::given::runtime().block_on(async {
        use vambrace_store::Questions as _;
        assert!(store.proposal("hitl-1").await.unwrap().unwrap().back.is_some());
        assert_eq!(store.way_back("hitl-1").await.unwrap(), Some(vambrace_store::Kept::stored(vec![2])));
    });
    drop(store);
    let after = agreed(&home);
    assert!(after.findings.is_clean() && after.records == records, "{after:?}");
    // The first form of all knew no keys; that is told, and is no finding.
    let first = "DROP TABLE tree; DROP TABLE tree_nodes; DROP TABLE checkpoints; DROP TABLE ledger_keys";
    Forge::of(&ours.image, &home).sql(&format!("{WITH_HEAD}; {first}"));
    let told = vambrace_store::verify(&StateDir::existing(&home).unwrap(), &later(), &mut |_| {});
    assert!(matches!(told, Err(StoreError::Unsigned)), "{told:?}");
}

// B5
#[test]
fn a_third_tree_has_the_same_roots_and_takes_the_same_proofs() {
    let ours = story(2, 150, 30_000);
    let temp = crate::forge::folder();
    let home = temp.path().join("state");
    let lines = Forge::of(&ours.image, &home).lines();
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &quick()).unwrap();
    let mut theirs = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    for (size, line) in (1_u64..).zip(&lines) {
        theirs.push(line.clone().into_bytes());
        assert_eq!(store.root_at(size).unwrap().as_bytes().as_slice(), theirs.root().as_bytes().as_slice());
    }
    let size = lines.len() as u64;
    for seq in (1..=size).step_by(7) {
        let proof = store.inclusion_proof(seq, size).unwrap();
        let flat: Vec<u8> = proof.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let index = usize::try_from(seq - 1).unwrap();
        assert_eq!(flat, theirs.prove_inclusion(index).as_bytes());
    }
    for old in (1..size).step_by(11) {
        let proof = store.consistency_proof(old, size).unwrap();
        let flat: Vec<u8> = proof.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let added = usize::try_from(size - old).unwrap();
        assert_eq!(flat, theirs.prove_consistency(added).as_bytes(), "{old}");
    }
}
