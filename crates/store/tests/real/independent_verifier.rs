//! Two verifiers that share no code must reach the same verdict on the same mutated ledgers. The other one is
//! `contrib/verify_ledger.py`; it also gets ledgers without a fault. A third implementation, ct-merkle, checks
//! the roots and proofs of a real ledger.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use serde_json::{Value, json};
use sha2::Sha256;
use vambrace_store::{RecordId, SqliteStore, StateDir, Store as _, StoreError, VerifyOptions, VerifyReport};

use crate::attacks::{later, verify_with};
use crate::fixtures::{at, test_options, verified};
use crate::forge::{DirSnapshot, Forge, SampleLedger, SeededRandom, resealed, sample_ledger, write};
use crate::mutations::{MUTATIONS, Mutation, MutationContext, replace_keys};

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/verify_ledger.py")
}

/// The Python verifier in batch mode.
struct PythonVerifier {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl PythonVerifier {
    fn new() -> Self {
        let mut command = Command::new("python3");
        command.arg(script()).arg("--batch").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("python3 is needed: {error}"));
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn verify(&mut self, request: &Value) -> Value {
        writeln!(self.stdin, "{request}").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?} to {request}"))
    }
}

impl Drop for PythonVerifier {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

thread_local! {
    static PYTHON_VERIFIER: std::cell::RefCell<PythonVerifier> = std::cell::RefCell::new(PythonVerifier::new());
}

/// The report of our verifier, after the Python one reached the same verdict, with the same kinds for payloads
/// and decisions.
pub(crate) fn verify_with_both(home: &Path) -> VerifyReport {
    let request = json!({"folder": home, "now": at(5_000).to_string()});
    let (report, answer) =
        (verified(home), PYTHON_VERIFIER.with_borrow_mut(|python| python.verify(&request)));
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

/// Not an attack, or none that the directory can show: a crash, or data that is only a hint.
const HONEST: &[Mutation] = &[
    ("nothing", |_| {}),
    ("an unsealed checkpoint row deleted", |ctx| {
        ctx.forge
            .sql("DELETE FROM checkpoints WHERE sealed = 0 AND size < (SELECT max(size) FROM checkpoints)");
    }),
    ("the newest checkpoint row deleted", |ctx| {
        ctx.forge.sql("DELETE FROM checkpoints WHERE size = (SELECT max(size) FROM checkpoints)");
    }),
    ("an older checkpoint file", |ctx| {
        let kept = &ctx.ours.kept[ctx.random.below(ctx.ours.kept.len())];
        write(&ctx.forge.newest(), kept);
    }),
    ("the last segment torn, the cursor before it", |ctx| {
        let (first, path) = ctx.forge.segments().pop().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        write(&path, &bytes[..ctx.random.below(bytes.len())]);
        ctx.forge.sql(&format!("UPDATE projection SET seq = {}, segment = {first}, offset = 0", first - 1));
    }),
    ("no key file", |ctx| std::fs::remove_file(ctx.forge.home.join("keys/ledger.key")).unwrap()),
    ("other signing times", |ctx| ctx.forge.sql("UPDATE checkpoints SET at = at + 12345")),
    ("young records after the end", |ctx| {
        let mut lines = ctx.forge.lines();
        let stamp = [-20_000, -3_000, 3_000, 20_000, 9_000_000_000][ctx.random.below(5)];
        let young = at(86_400_000 + stamp).to_string();
        let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        let line = lines[3].replacen(
            serde_json::from_str::<Value>(&lines[3]).unwrap()["ts"].as_str().unwrap(),
            &young,
            1,
        );
        lines.push(resealed(&line, lines.len() + 1, last["event_hash"].as_str().unwrap().parse().unwrap()));
        ctx.forge.set_lines(&lines);
        ctx.forge.fix_segments();
        ctx.forge.fix_tree();
    }),
    ("the cursor moved", |ctx| {
        let column = ["seq", "segment", "offset"][ctx.random.below(3)];
        let by = 1_i64 << ctx.random.below(10);
        ctx.forge.sql(&format!("UPDATE projection SET {column} = abs({column} - {by})"));
    }),
    ("no file of the newest checkpoint", |ctx| {
        std::fs::remove_file(ctx.forge.newest()).unwrap();
        let at = at(86_400_000 + [-20_000, -3_000, 20_000][ctx.random.below(3)]).millis();
        ctx.forge.sql(&format!("UPDATE checkpoints SET at = {at}"));
    }),
    ("seal marks flipped", |ctx| {
        ctx.forge.sql(
            "UPDATE checkpoints SET sealed = 1 - sealed WHERE size = (SELECT min(size) FROM checkpoints)",
        );
    }),
    ("a stored subtree changed", |ctx| {
        let change = ["hash = zeroblob(32)", "place = place + 1", "height = height + 1"][ctx.random.below(3)];
        ctx.forge.sql(&format!("UPDATE tree_nodes SET {change} WHERE height = 8 AND place = 0"));
    }),
    ("an empty segment at the end", |ctx| {
        let end = ctx.forge.lines().len() + 1 + ctx.random.below(2);
        write(&ctx.forge.home.join(format!("ledger/{end:020}.jsonl")), b"");
    }),
    ("all keys replaced", |ctx| drop(replace_keys(ctx.forge, |_, _| {}))),
];

/// Applies every mutation `times` times and compares the verdicts; returns how many were clean, and how many
/// there were.
fn compare(ours: &SampleLedger, other: &SampleLedger, seed: u64, times: u64) -> (u64, u64) {
    let temp = crate::forge::temp_dir();
    let home = temp.path().join("forged");
    let kept = temp.path().join("kept");
    let now = at(86_400_000).to_string();
    let (mut python, mut random) = (PythonVerifier::new(), SeededRandom(seed));
    let (mut clean, mut all) = (0, 0);
    for (name, make) in MUTATIONS.iter().chain(HONEST) {
        for round in 0..times {
            let forge = Forge::of(&ours.image, &home);
            make(&mut MutationContext { ours, other, forge: &forge, random: &mut random });
            drop(forge);
            let mut options = later();
            let mut request = json!({"folder": &home, "now": &now});
            if random.below(3) == 0 {
                let text = &ours.kept[random.below(ours.kept.len())];
                write(&kept, text);
                options.checkpoints = vec![("kept".into(), text.clone())];
                request["checkpoints"] = json!([&kept]);
            }
            if random.below(3) == 0 {
                options.key = Some(ours.key.parse().unwrap());
                request["keys"] = json!([&ours.key]);
            }
            let (first, answer) = (verify_with(&home, &options), python.verify(&request));
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
    let (small, large) = (sample_ledger(3, 12, 3000), sample_ledger(2, 140, 30_000));
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
fn a_ledger_copied_while_open_is_clean_for_both_verifiers() {
    let temp = crate::forge::temp_dir();
    let (home, copy) = (temp.path().join("state"), temp.path().join("copy"));
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &test_options()).unwrap();
    let runtime = crate::fixtures::runtime();
    runtime.block_on(async {
        let session = vambrace_store::Batch::durable(vec![], vec![crate::fixtures::session("s-1")]);
        store.commit(session).await.unwrap();
        for n in 0..30 {
            store.commit(crate::fixtures::start("s-1", &format!("c-{n}"), n)).await.unwrap();
        }
    });
    store.admin().catch_up().unwrap();
    DirSnapshot::of(&home).put(&copy);
    let options = VerifyOptions::new(at(9_000));
    let report = verify_with(&copy, &options);
    assert!(report.findings.is_clean(), "{:#?}", report.findings);
    let answer = PythonVerifier::new().verify(&json!({"folder": &copy, "now": at(9_000).to_string()}));
    assert_eq!((answer["ok"].as_bool(), answer["records"].as_u64()), (Some(true), Some(31)), "{answer:#}");
}

// B5: the Python verifier reads checkpoints kept elsewhere before the table, which may grow meanwhile
#[test]
fn a_ledger_that_grows_during_verification_is_clean_for_the_python_verifier() {
    let temp = crate::forge::temp_dir();
    let (home, pipe) = (temp.path().join("state"), temp.path().join("newest"));
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &test_options()).unwrap();
    store.admin().catch_up().unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let request = json!({"folder": &home, "now": at(9_000).to_string(), "checkpoints": [&pipe]});
    let verifying = std::thread::spawn(move || PythonVerifier::new().verify(&request));
    // The open succeeds when the Python verifier reads the kept checkpoint.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let open = || std::fs::OpenOptions::new().write(true).custom_flags(flags).open(&pipe);
    let began = Instant::now();
    let mut pipe = loop {
        match open() {
            Err(_) if began.elapsed() < Duration::from_secs(20) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    crate::fixtures::runtime().block_on(async {
        store.commit(crate::fixtures::start("s-1", "c-1", 1)).await.unwrap();
    });
    store.admin().catch_up().unwrap();
    pipe.write_all(store.admin().newest_checkpoint().unwrap().unwrap().note.as_bytes()).unwrap();
    drop(pipe);
    let answer = verifying.join().unwrap();
    assert_eq!((answer["ok"].as_bool(), answer["records"].as_u64()), (Some(true), Some(2)), "{answer:#}");
}

/// The layout of schema version 4, with an applied change that can be rolled back.
const WITH_HEAD: &str = "
    CREATE TABLE head (id INTEGER PRIMARY KEY, writer TEXT NOT NULL, seq INTEGER NOT NULL, event_hash TEXT NOT NULL) STRICT;
    INSERT INTO head SELECT 1, name, (SELECT max(seq) FROM ledger), (SELECT hash FROM tree) FROM writer;
    DROP TABLE writer; ALTER TABLE calls DROP COLUMN events;
    ALTER TABLE sessions DROP COLUMN tenant; ALTER TABLE tokens DROP COLUMN tenant;
    ALTER TABLE approvals DROP COLUMN waiter; ALTER TABLE approvals DROP COLUMN performer;
    ALTER TABLE decisions DROP COLUMN amendment; DROP TABLE call_outcomes;
    DROP TABLE ways_back; ALTER TABLE proposals ADD COLUMN back BLOB;
    INSERT INTO proposals (id, call, session, user, project, tool, path, summary, files, patch_hash, digest, state, created,
        changed, shown, back)
        VALUES ('hitl-1', 'c', 's', 'u', 'p', 't', 'f', 'MODIFY f', 1, zeroblob(32), zeroblob(32), 'applied', 1, 1, x'01', x'02');
    DELETE FROM migrations WHERE version >= 5; PRAGMA user_version = 4";

#[test]
fn a_directory_of_an_older_program_is_verified_as_it_is() {
    let ours = sample_ledger(2, 12, 3000);
    let temp = crate::forge::temp_dir();
    let home = temp.path().join("state");
    Forge::of(&ours.image, &home).sql(WITH_HEAD);
    let records = verify_with_both(&home).records;
    assert!(verify_with_both(&home).findings.is_clean());
    Forge::of(&ours.image, &home).sql(&format!("{WITH_HEAD}; DELETE FROM ledger WHERE seq = 5"));
    assert!(!verify_with_both(&home).findings.is_clean());
    // Opening it migrates it, and nothing is lost.
    Forge::of(&ours.image, &home).sql(WITH_HEAD);
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &test_options()).unwrap();
    crate::fixtures::runtime().block_on(async {
        use vambrace_store::ApprovalQueries as _;
        assert!(store.proposal("hitl-1").await.unwrap().unwrap().undo.is_some());
        assert_eq!(
            store.undo_data("hitl-1").await.unwrap(),
            Some(vambrace_store::SealedBlob::stored(vec![2]))
        );
    });
    drop(store);
    let after = verify_with_both(&home);
    assert!(after.findings.is_clean() && after.records == records, "{after:?}");
    // The first layout had no keys; that is an error of its own, not a finding.
    let first = "DROP TABLE tree; DROP TABLE tree_nodes; DROP TABLE checkpoints; DROP TABLE ledger_keys";
    Forge::of(&ours.image, &home).sql(&format!("{WITH_HEAD}; {first}"));
    let result = vambrace_store::verify(&StateDir::existing(&home).unwrap(), &later(), &mut |_| {});
    assert!(matches!(result, Err(StoreError::Unsigned)), "{result:?}");
}

// B5
#[test]
fn ct_merkle_computes_the_same_roots_and_proofs() {
    let ours = sample_ledger(2, 150, 30_000);
    let temp = crate::forge::temp_dir();
    let home = temp.path().join("state");
    let lines = Forge::of(&ours.image, &home).lines();
    let store = SqliteStore::open(StateDir::open(&home).unwrap(), &test_options()).unwrap();
    let mut theirs = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    for (size, line) in (1_u64..).zip(&lines) {
        theirs.push(line.clone().into_bytes());
        assert_eq!(
            store.admin().root_at(size).unwrap().as_bytes().as_slice(),
            theirs.root().as_bytes().as_slice()
        );
    }
    let size = lines.len() as u64;
    for seq in (1..=size).step_by(7) {
        let proof = store.admin().inclusion_proof(&RecordId::new(store.writer(), seq), size).unwrap();
        let flat: Vec<u8> = proof.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let index = usize::try_from(seq - 1).unwrap();
        assert_eq!(flat, theirs.prove_inclusion(index).as_bytes());
    }
    for old in (1..size).step_by(11) {
        let proof = store.admin().consistency_proof(old, size).unwrap();
        let flat: Vec<u8> = proof.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let added = usize::try_from(size - old).unwrap();
        assert_eq!(flat, theirs.prove_consistency(added).as_bytes(), "{old}");
    }
}
