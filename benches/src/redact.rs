//! The redactor: speed compared with kingfisher with the same rules, the cost of streaming in pieces, recall and false
//! positives.
//!
//! The corpus is made here: source that is on this machine anyway (installed packages), and lines with planted secrets,
//! known values in all their encodings, and hard negatives from a seeded generator. Times are CPU time of one thread,
//! because the machine may be shared; kingfisher runs with one job, and its start-up time (an empty directory, with a warm
//! rule cache) is subtracted.

mod corpus;
mod planted;

use std::path::{Path, PathBuf};
use std::process::Command;

use vambrace_redact::{Redactor, RuleSet};

use crate::report::{Report, Requirement};
use corpus::Rng;

/// Bytes of source for the speed measurement.
const SPEED_BYTES: usize = 48 << 20;
const ROUNDS: usize = 3;
/// Bytes of a hostile text: more than the stream holds back for one token.
const HOSTILE: usize = 96 << 10;
/// Random values per context and alphabet.
const EACH: usize = 100;

/// Runs the bench.
pub(crate) fn run() -> Report {
    let mut report = Report::new("redact");
    let redactor = Redactor::new(RuleSet::built_in().expect("the rules load"), &[], &[], &[7; 32]);
    let source = corpus::source();
    let text =
        source.iter().flat_map(|(_, bytes)| bytes.iter().copied()).take(SPEED_BYTES).collect::<Vec<u8>>();
    speed(&mut report, &redactor, &text);
    hostile(&mut report, &redactor);
    peer(&mut report, &text);
    recall(&mut report, &redactor);
    noise(&mut report, &redactor, &source);
    vectors(&mut report, &redactor);
    report
}

fn speed(report: &mut Report, redactor: &Redactor, text: &[u8]) {
    let megabytes = text.len() as f64 / 1e6;
    redactor.redact_bytes(text).expect("it can be redacted");
    let whole = best(|| drop(redactor.redact_bytes(text).expect("it can be redacted")));
    let lines = best(|| assert!(memchr::memchr_iter(b'\n', text).count() > 0));
    let mut same = Vec::new();
    let pieces = best(|| {
        same.clear();
        let mut stream = redactor.stream();
        text.chunks(64 << 10).for_each(|piece| stream.push(piece, &mut same).expect("it can be redacted"));
        stream.finish(&mut same).expect("it can be redacted");
    });
    assert!(
        same == *redactor.redact_bytes(text).expect("it can be redacted").0,
        "the output of the stream differs"
    );
    let small = text.get(..4096).unwrap_or(text);
    let each =
        best(|| (0..2000).for_each(|_| drop(redactor.redact_bytes(small).expect("it can be redacted"))))
            / 2000.0;
    report.add("source, one core, warm", megabytes / whole, "MB/s");
    report.add("a newline count (memchr) is faster by", whole / lines, "times");
    report.require(
        "64 KiB pieces take longer than one piece by",
        (pieces / whole - 1.0) * 100.0,
        "%",
        Requirement::AtMost(10.0),
    );
    let clean = redactor.redact_bytes(small).expect("it can be redacted").1 == 0;
    assert!(clean && redactor.redact_bytes(corpus::RECORD.as_bytes()).expect("it can be redacted").1 == 0);
    let record = corpus::RECORD.as_bytes();
    let small_record =
        best(|| (0..20_000).for_each(|_| drop(redactor.redact_bytes(record).expect("it can be redacted"))))
            / 20_000.0;
    report.require("a text of 4 KiB without a secret", each * 1e6, "us", Requirement::AtMost(10.0));
    report.require(
        format!("a record of {} bytes without a secret", record.len()),
        small_record * 1e6,
        "us",
        Requirement::AtMost(1.0),
    );
}

/// Texts that repeat the prefix of a rule, so that every position is a candidate. The slowest ones are measured again at four
/// times the length.
fn hostile(report: &mut Report, redactor: &Redactor) {
    let rules = RuleSet::built_in().expect("the rules load");
    let text =
        |beginning: &[u8], size: usize| beginning.iter().copied().cycle().take(size).collect::<Vec<u8>>();
    let time = |text: &[u8]| {
        let before = thread_time();
        redactor.redact_bytes(text).expect("it can be redacted");
        thread_time() - before
    };
    let mut slowest: Vec<(f64, &[u8])> = rules
        .anchor_texts()
        .into_iter()
        .map(|beginning| (time(&text(beginning, HOSTILE)), beginning))
        .collect();
    slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
    slowest.truncate(5);
    let grows = |&(_, beginning): &(f64, &[u8])| {
        let (short, long) = (text(beginning, HOSTILE), text(beginning, 4 * HOSTILE));
        let best = |text: &[u8]| (0..ROUNDS).map(|_| time(text)).fold(f64::MAX, f64::min);
        best(&long) / best(&short)
    };
    let most = slowest.iter().map(grows).fold(0.0, f64::max);
    for (time, beginning) in &slowest {
        let reported = String::from_utf8_lossy(beginning).into_owned();
        report.add(format!("{reported:?}, repeated"), HOSTILE as f64 / 1e6 / time, "MB/s");
    }
    report.require(
        "four times the length of the slowest takes longer by",
        most,
        "times",
        Requirement::AtMost(6.0),
    );
}

/// The same rules, as TOML, in both programs.
fn peer(report: &mut Report, text: &[u8]) {
    let Some(kingfisher) = std::env::var_os("VAMBRACE_PEER_KINGFISHER") else {
        panic!("VAMBRACE_PEER_KINGFISHER names the peer: `cargo xtask bench` sets it");
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (rules, corpus, empty) =
        (dir.path().join("rules.toml"), dir.path().join("corpus"), dir.path().join("empty"));
    let toml = RuleSet::built_in().expect("the rules load").to_toml();
    std::fs::write(&rules, &toml).expect("a file");
    for place in [&corpus, &empty] {
        std::fs::create_dir(place).expect("a directory");
    }
    // Several files, as a file scanner expects.
    for (n, piece) in text.chunks(1 << 20).enumerate() {
        std::fs::write(corpus.join(format!("{n}.txt")), piece).expect("a file");
    }
    let scan = |place: &Path| {
        let run = || {
            let mut command = Command::new(&kingfisher);
            command.args([
                "scan",
                "--jobs",
                "1",
                "--no-validate",
                "--load-builtins",
                "false",
                "--confidence",
                "low",
                "--no-dedup",
                "--quiet",
                "--format",
                "jsonl",
                "--git-history",
                "none",
                "--rules-path",
            ]);
            command
                .arg(&rules)
                .arg("--rule-cache-dir")
                .arg(dir.path().join("cache"))
                .arg(place)
                .env("HOME", dir.path());
            let before = children();
            let output = command.output().expect("kingfisher starts");
            assert!(
                matches!(output.status.code(), Some(0 | 200..=205)),
                "kingfisher: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            children() - before
        };
        run();
        (0..ROUNDS).map(|_| run()).fold(f64::MAX, f64::min)
    };
    let theirs = scan(&corpus) - scan(&empty);
    let imported = Redactor::new(
        RuleSet::empty().with_file(&toml, Path::new("rules.toml")).expect("the rules load"),
        &[],
        &[],
        &[7; 32],
    );
    imported.findings(text).expect("it can be searched");
    let file = best(|| drop(imported.findings(text).expect("it can be searched")));
    let own = Redactor::new(RuleSet::built_in().expect("the rules load"), &[], &[], &[7; 32]);
    own.findings(text).expect("it can be searched");
    let ours = best(|| drop(own.findings(text).expect("it can be searched")));
    report.add("kingfisher with our rules, without its start-up", text.len() as f64 / 1e6 / theirs, "MB/s");
    report.add("the same rule file imported by us", text.len() as f64 / 1e6 / file, "MB/s");
    report.require(
        "faster than kingfisher, the same rule file imported",
        theirs / file,
        "times",
        Requirement::AtLeast(2.0),
    );
    report.add("faster than kingfisher, built-in rules with contexts", theirs / ours, "times");
}

fn recall(report: &mut Report, redactor: &Redactor) {
    let mut rng = Rng(2026);
    let share = |found: usize, all: usize| 100.0 * found as f64 / all as f64;
    let prefixed = corpus::prefixed(&mut rng, 2000);
    let found = prefixed.iter().filter(|(line, secret)| gone(redactor, line, secret)).count();
    report.require(
        "planted tokens with a prefix, found",
        share(found, prefixed.len()),
        "%",
        Requirement::AtLeast(99.0),
    );
    contexts(report, redactor, &mut rng);
    let (values, texts) = corpus::known(&mut rng);
    let knowing = Redactor::new(RuleSet::empty(), &values, &[], &[7; 32]);
    let mut missed = 0;
    for (text, form) in &texts {
        let (mut stream, mut out, mut from) = (knowing.stream(), Vec::new(), 0);
        while from < text.len() {
            let to = (from + 1 + rng.below(200)).min(text.len());
            stream.push(&text[from..to], &mut out).expect("it can be redacted");
            from = to;
        }
        stream.finish(&mut out).expect("it can be redacted");
        missed += usize::from(out.windows(form.len()).any(|window| window == form.as_slice()));
    }
    report.add("known values in all encodings", texts.len() as f64, "texts");
    report.require(
        "of them found, streamed in random pieces",
        share(texts.len() - missed, texts.len()),
        "%",
        Requirement::AtLeast(100.0),
    );
}

/// Random values in context, per context and per alphabet; nothing of a value may be left.
fn contexts(report: &mut Report, redactor: &Redactor, rng: &mut Rng) {
    let mut lines = planted::passwords(rng, EACH);
    lines.extend(planted::tokens(rng, EACH));
    let mut tally: std::collections::BTreeMap<String, (usize, usize)> = std::collections::BTreeMap::new();
    for line in &lines {
        let clean = redactor.redact_bytes(line.text.as_bytes()).expect("it can be redacted").0;
        let gone = usize::from(planted::is_gone(&String::from_utf8_lossy(&clean), &line.secret));
        for family in [format!("made of {}", line.alphabet), format!("in {}", line.place)] {
            let row = tally.entry(family).or_default();
            *row = (row.0 + 1, row.1 + gone);
        }
    }
    report.add("random values in context", lines.len() as f64, "texts");
    for (family, (all, gone)) in tally {
        report.require(
            format!("random values {family}, found"),
            100.0 * gone as f64 / all as f64,
            "%",
            Requirement::AtLeast(95.0),
        );
    }
}

fn gone(redactor: &Redactor, line: &str, secret: &str) -> bool {
    let clean = redactor.redact_bytes(line.as_bytes()).expect("it can be redacted").0;
    !String::from_utf8_lossy(&clean).contains(secret)
}

fn noise(report: &mut Report, redactor: &Redactor, source: &[(PathBuf, Vec<u8>)]) {
    // The rules were tuned on the hits in this source, so it says little about any other.
    let (megabytes, all, odd) = hits(redactor, source);
    report.add("source that the rules were tuned on", megabytes, "MB");
    report.add("unplanted hits in it", all as f64 / megabytes, "per MB");
    report.add("except keys, web tokens and hashes in its tests", odd as f64 / megabytes, "per MB");
    let (megabytes, all, odd) = hits(redactor, &corpus::system());
    report.add("source of the system, hits reviewed", megabytes, "MB");
    report.add("unplanted hits in it", all as f64 / megabytes, "per MB");
    report.add("except keys, web tokens and hashes", odd as f64 / megabytes, "per MB");
    let (megabytes, all, odd) = hits(redactor, &corpus::held_out());
    report.add("held-out packages", megabytes, "MB");
    report.add("except keys, web tokens and hashes", odd as f64 / megabytes, "per MB");
    report.require("unplanted hits in them", all as f64 / megabytes, "per MB", Requirement::AtMost(0.05));
    let negatives = corpus::negatives(&mut Rng(77), 200_000);
    let hits = redactor.findings(&negatives).expect("it can be searched").len();
    report.require(
        "hits in lockfiles, hashes, UUIDs, data URLs, certificates",
        hits as f64,
        "",
        Requirement::AtMost(0.0),
    );
}

/// Megabytes, number of hits, and of those that are not a private key, a web token or a password hash.
fn hits(redactor: &Redactor, source: &[(PathBuf, Vec<u8>)]) -> (f64, usize, usize) {
    let (mut all, mut odd) = (0, 0);
    for (path, bytes) in source {
        for finding in redactor.findings(bytes).expect("it can be searched") {
            all += 1;
            odd += usize::from(!matches!(finding.kind.as_str(), "private-key" | "jwt" | "password-hash"));
            if std::env::var_os("VAMBRACE_BENCH_LIST").is_some() {
                let before = bytes.iter().take(usize::try_from(finding.start).unwrap_or(0));
                println!(
                    "{}:{} {}",
                    path.display(),
                    before.filter(|byte| **byte == b'\n').count() + 1,
                    finding.kind
                );
            }
        }
    }
    let size: usize = source.iter().map(|(_, bytes)| bytes.len()).sum();
    (size as f64 / 1e6, all, odd)
}

/// The public examples; each in its own file for gitleaks.
fn vectors(report: &mut Report, redactor: &Redactor) {
    let examples = corpus::vectors();
    let theirs = std::env::var_os("VAMBRACE_PEER_GITLEAKS").map(|gitleaks| found_by(&gitleaks, &examples));
    let mut tally: std::collections::BTreeMap<&str, (usize, usize, usize)> =
        std::collections::BTreeMap::new();
    for (n, (source, text)) in examples.iter().enumerate() {
        let row = tally.entry(source).or_default();
        row.0 += 1;
        row.1 += usize::from(!redactor.findings(text.as_bytes()).expect("it can be searched").is_empty());
        row.2 += usize::from(theirs.as_ref().is_some_and(|theirs| theirs.contains(&n)));
    }
    for (source, (all, ours, their)) in tally {
        let what = format!("examples of {source} found, of {all}");
        match theirs {
            None => report.add(what, ours as f64, ""),
            Some(_) => {
                report.add(format!("gitleaks: {what}"), their as f64, "");
                report.require(what, ours as f64, "", Requirement::AtLeast(their as f64));
            }
        }
    }
}

/// The indexes of the examples in which gitleaks finds anything, with its own rules.
fn found_by(gitleaks: &std::ffi::OsStr, examples: &[(String, String)]) -> std::collections::HashSet<usize> {
    let dir = tempfile::tempdir().expect("a directory");
    let (texts, reported) = (dir.path().join("texts"), dir.path().join("told.json"));
    std::fs::create_dir(&texts).expect("a directory");
    for (n, (_, text)) in examples.iter().enumerate() {
        std::fs::write(texts.join(format!("{n}.txt")), text).expect("a file");
    }
    let mut command = Command::new(gitleaks);
    command.args([
        "dir",
        "--no-banner",
        "--log-level",
        "error",
        "--ignore-gitleaks-allow",
        "--exit-code",
        "0",
    ]);
    command.args(["--report-format", "json", "--report-path"]).arg(&reported).arg(&texts);
    assert!(command.status().expect("gitleaks starts").success(), "gitleaks failed");
    let reported: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&reported).expect("a report")).expect("it is JSON");
    let number =
        |hit: &serde_json::Value| Path::new(hit["File"].as_str()?).file_stem()?.to_str()?.parse().ok();
    reported.as_array().expect("a list").iter().filter_map(number).collect()
}

/// The minimum CPU time of this thread over several rounds.
fn best(mut work: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let before = thread_time();
            work();
            thread_time() - before
        })
        .fold(f64::MAX, f64::min)
}

fn thread_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time of child processes that have ended, in seconds.
fn children() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // cutime and cstime, in ticks of 10 ms.
    (ticks(13) + ticks(14)) / 100.0
}
