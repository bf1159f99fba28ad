//! Search compared with `rg` (T10, T11): the same tree, the same number of threads, the same lines found, in alternating
//! rounds; the cost of searching matches for secrets; and how soon hostile patterns end.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vambrace_core::blocked_paths::BlockList;
use vambrace_core::path::{AskedPath, ScopedPath, Zone};
use vambrace_redact::{Redactor, RuleSet};
use vambrace_workspace::{
    ReadRequest, ScopeRules, SearchError, SearchMode, SearchRequest, SearchResult, SecretFinder, Workspace,
};

use crate::report::{Report, Requirement};

const FOLDERS: u64 = 600;
const FILES_PER_FOLDER: u64 = 40;
const ROUNDS: usize = 9;
/// Name and pattern.
const PATTERNS: &[(&str, &str)] = &[
    ("rare literal", "zyzzyva"),
    ("common literal", "return"),
    ("regex", r"fn\s+\w+_(get|set)\w*\("),
    ("absent regex", r"[A-Z]{4}\d{9}x"),
];

pub(crate) fn run() -> Report {
    let mut report = Report::new("search");
    let dir = tempfile::tempdir().unwrap();
    let files = make_tree(dir.path());
    report.add("files in the tree", files as f64, "files");
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    report.add("threads", threads as f64, "");
    let rg = std::env::var_os("VAMBRACE_RG").unwrap_or_else(|| "rg".into());
    let ws = open(dir.path());
    for (name, pattern) in PATTERNS {
        for mode in [SearchMode::Count, SearchMode::Lines] {
            compare(&mut report, &ws, dir.path(), &rg, threads, (name, pattern), mode);
        }
    }
    drop(dir);
    hostile(&mut report);
    reads(&mut report);
    report
}

fn open(root: &Path) -> Workspace {
    let block = BlockList::with_defaults::<&str>(&[]).unwrap();
    Workspace::open(root, ScopeRules::new("", block)).unwrap()
}

fn request(pattern: &str, mode: SearchMode, threads: usize) -> SearchRequest {
    SearchRequest {
        regex: pattern.to_owned(),
        mode,
        threads,
        context_lines: 0,
        max_matches: usize::MAX,
        max_output_bytes: usize::MAX,
        max_line_chars: 10_000,
        // Wall time, and the machine is shared, so more than the default, which hostile patterns get.
        regex_budget: Duration::from_secs(10),
        ..SearchRequest::default()
    }
}

fn compare(
    report: &mut Report,
    ws: &Workspace,
    root: &Path,
    rg: &std::ffi::OsStr,
    threads: usize,
    (name, pattern): (&str, &str),
    mode: SearchMode,
) {
    let (mut ours, mut theirs, mut masked) = (Vec::new(), Vec::new(), Vec::new());
    let without = request(pattern, mode, threads);
    let looking = SearchRequest { secrets: Some(finder()), ..without.clone() };
    for round in 0..=ROUNDS {
        let (found, our_time) = timed(|| search(ws, &without));
        let (seen, masked_time) = timed(|| search(ws, &looking));
        let (reported, their_time) = timed(|| rg_search(rg, root, threads, pattern, mode));
        // The first round warms the caches and checks that both find the same.
        if round == 0 {
            assert_same(&found, &reported, mode, pattern);
            assert_eq!(seen, found, "{pattern}: the tree must not contain secrets");
            continue;
        }
        ours.push(our_time.as_secs_f64() * 1000.0);
        theirs.push(their_time.as_secs_f64() * 1000.0);
        masked.push(masked_time.as_secs_f64() * 1000.0);
    }
    let (ours, theirs, masked) = (median(&mut ours), median(&mut theirs), median(&mut masked));
    let what = if mode == SearchMode::Count { "count" } else { "lines" };
    report.add(format!("{name}, {what}: ours"), ours, "ms");
    report.add(format!("{name}, {what}: rg"), theirs, "ms");
    report.require(format!("{name}, {what}: rg / ours"), theirs / ours, "x", Requirement::AtLeast(0.9));
    report.add(format!("{name}, {what}: rg / ours with secret detection"), theirs / masked, "x");
}

/// The secret detection of the tools.
fn finder() -> SecretFinder {
    let redactor = Redactor::new(RuleSet::built_in().expect("the rules load"), &[], &[], &[7; 32]);
    SecretFinder::new(Arc::new(redactor))
}

fn search(ws: &Workspace, want: &SearchRequest) -> SearchResult {
    ws.search(&ScopedPath::root(Zone::Service), want).unwrap()
}

fn rg_search(rg: &std::ffi::OsStr, root: &Path, threads: usize, pattern: &str, mode: SearchMode) -> String {
    let how: &[&str] = match mode {
        SearchMode::Count => &["--count-matches"],
        SearchMode::Lines => &["--line-number"],
    };
    let output = Command::new(rg)
        .current_dir(root)
        .args(["--no-config", "--no-heading", "--with-filename", "--color=never"])
        .args(["--threads", &threads.to_string()])
        .args(how)
        .args(["--regexp", pattern, "."])
        .stdin(Stdio::null())
        .output()
        .expect("rg runs; set VAMBRACE_RG to its path");
    String::from_utf8(output.stdout).unwrap()
}

/// The same set of `path:line`, or the same number of matches in the same number of files.
fn assert_same(found: &SearchResult, reported: &str, mode: SearchMode, pattern: &str) {
    let fields = |line: &str| {
        let mut fields = line.strip_prefix("./").unwrap_or(line).splitn(3, ':');
        let path = fields.next().unwrap().to_owned();
        (path, fields.next().unwrap().parse::<u64>().unwrap())
    };
    let theirs: BTreeSet<(String, u64)> = reported.lines().map(fields).collect();
    if mode == SearchMode::Count {
        let sum: u64 = theirs.iter().map(|(_, count)| count).sum();
        assert_eq!((found.total, found.files), (sum, theirs.len() as u64), "{pattern}");
        return;
    }
    let ours: BTreeSet<_> = found.matches.iter().map(|m| (m.path.clone(), m.line)).collect();
    assert_eq!(ours.len() as u64, found.total, "{pattern}");
    assert!(ours == theirs, "{pattern}: {:?}", ours.symmetric_difference(&theirs).next());
}

/// How soon each hostile pattern ends, the worst of several runs, and how: a pattern that is rejected by the compiler says
/// nothing about matching, so the name of the figure includes it.
fn hostile(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(dir.path().join(name), text).unwrap();
    write("as", format!("{}!", "a".repeat(160_000)).as_bytes());
    write("unicode", "äöüß漢字ſK".repeat(5000).as_bytes());
    write("xs", &[b'x'; 60_000]);
    write("disorder", &random_letters());
    write("line", &vec![b'a'; 100 << 20]);
    let many = (0..700).map(|n| format!("w{n}x")).collect::<Vec<_>>().join("|");
    let repeated = r"(?i)\pL".repeat(500);
    let patterns: &[(&str, &str, &str)] = &[
        ("nested repetition", "as", "((a{0,100}){0,100}){0,10}$"),
        ("quadratic", "as", ".*[^a!]|[a!]"),
        ("long window", "as", "(?s).{0,900}z"),
        ("alternating ambiguity", "as", "(a|aa)+$"),
        ("ambiguous runs", "xs", "(x+x+)+y"),
        ("repeated class", "unicode", r"\pL{50}\pN"),
        ("folded class", "unicode", r"(?i)[\w\p{Greek}\p{Cyrillic}ſK]{20}!"),
        ("two windows", "as", ".{1,300}.{1,300}z"),
        ("many captures", "as", "(.*)(.*)(.*)(.*)(.*)[^a]$"),
        ("large alternation", "as", &many),
        ("many folded classes", "unicode", &repeated),
        ("large automaton", "disorder", "[ab]*a[ab]{600}c"),
        ("large automaton, grouped", "disorder", "(a|b)*a(a|b){300}(c|d)"),
        ("large automaton, boundary", "disorder", r"\b[ab]*a[ab]{400}\B[cd]"),
        ("a line of 100 MB", "line", "a{3}z"),
    ];
    for (name, file, pattern) in patterns {
        let mut worst = 0.0_f64;
        let mut ends = BTreeSet::new();
        for mode in [SearchMode::Count, SearchMode::Lines] {
            for _ in 0..3 {
                // A new workspace, without leftover threads of earlier searches.
                let ws = open(dir.path());
                let path = AskedPath::new(*file).parse().unwrap();
                let want = SearchRequest { threads: 2, mode, ..hostile_request(pattern) };
                let (got, time) = timed(|| ws.search(&path, &want));
                worst = worst.max(time.as_secs_f64() * 1000.0);
                ends.insert(match got {
                    Ok(result) if result.skipped > 0 => "skipped, not matched",
                    Ok(_) => "matched",
                    Err(SearchError::OverLimit { .. }) => "rejected by the compiler",
                    Err(SearchError::OverBudget { .. }) => "over budget",
                    Err(other) => panic!("{name}: {other}"),
                });
            }
        }
        let ends: Vec<_> = ends.into_iter().collect();
        let figure = format!("hostile, {name} ({})", ends.join(" / "));
        report.require(figure, worst, "ms", Requirement::AtMost(150.0));
    }
}

fn hostile_request(pattern: &str) -> SearchRequest {
    SearchRequest { regex: pattern.to_owned(), ..SearchRequest::default() }
}

/// Random `a` and `b` in one line: visits every state of a large automaton.
fn random_letters() -> Vec<u8> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if seed & 1 == 0 { b'a' } else { b'b' }
    };
    (0..6 << 20).map(letter).collect()
}

/// The hot path: a small file, read with its hash.
fn reads(report: &mut Report) {
    const READS: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    let text: String = (0..).map(|n| format!("    let value_{n} = {n};\n")).take(400).collect();
    std::fs::write(dir.path().join("src/small.rs"), text.get(..4096).unwrap()).unwrap();
    let ws = open(dir.path());
    let path = AskedPath::new("src/small.rs").parse().unwrap();
    let want = ReadRequest::default();
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        let before = cpu_seconds();
        let (_, time) = timed(|| {
            for _ in 0..READS {
                ws.read(&path, &want).unwrap();
            }
        });
        let cpu = cpu_seconds() - before;
        best = (best.0.min(time.as_secs_f64()), best.1.min(cpu));
    }
    let micros = |seconds: f64| seconds / f64::from(READS) * 1e6;
    report.add("reading 4 KiB with its hash, wall time", micros(best.0), "us");
    // User and system time of this thread: independent of other load.
    report.require("reading 4 KiB with its hash, CPU time", micros(best.1), "us", Requirement::AtMost(20.0));
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap().as_secs_f64()
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let value = work();
    (value, begun.elapsed())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A tree like a large source tree: nested directories, files up to 200 KB, ignored build directories.
fn make_tree(root: &Path) -> u64 {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    std::fs::create_dir(root.join(".git")).unwrap();
    std::fs::write(root.join(".gitignore"), "*.log\n/build\nout/\n!keep.log\n").unwrap();
    let mut files = 0;
    for number in 0..FOLDERS {
        let mut dir = root.join(format!("area{}", number % 12)).join(format!("module{}", number % 60));
        if number % 3 == 0 {
            dir = dir.join(format!("part{number}")).join("inner");
        } else {
            dir = dir.join(format!("part{number}"));
        }
        std::fs::create_dir_all(&dir).unwrap();
        if number % 20 == 0 {
            std::fs::write(dir.join(".gitignore"), "*.tmp\ngen_*\n").unwrap();
        }
        if number % 25 == 0 {
            std::fs::create_dir(dir.join("out")).unwrap();
            std::fs::write(dir.join("out/x.rs"), "return zyzzyva\n").unwrap();
        }
        for file in 0..FILES_PER_FOLDER {
            let extension = ["rs", "md", "py", "ts", "log", "tmp", "json", "rs"][(file % 8) as usize];
            let lines = match random(40) {
                0 => 3000,
                1..4 => 600,
                4..20 => 120,
                _ => 25,
            };
            let text = words(&mut random, lines);
            std::fs::write(dir.join(format!("file_{file}.{extension}")), text).unwrap();
            files += 1;
        }
        let binary = [b"return\0".as_slice(), &[7; 3000]].concat();
        std::fs::write(dir.join("blob.bin"), binary).unwrap();
        files += 1;
    }
    files
}

fn words(random: &mut impl FnMut(u64) -> u64, lines: u64) -> String {
    let mut text = String::new();
    for line in 0..lines {
        match random(60) {
            0..3 => writeln!(text, "    return value_{line};"),
            3 => writeln!(
                text,
                "pub fn item_{}_{line}(self) -> u64 {{",
                ["get", "set", "do"][(line % 3) as usize]
            ),
            4 if random(400) == 0 => writeln!(text, "// the zyzzyva of line {line}"),
            5 => writeln!(text),
            n => writeln!(text, "        let name_{n} = compute(input_{line}, {}); // step {n}", n * line),
        }
        .unwrap();
    }
    text
}
