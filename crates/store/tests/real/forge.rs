//! What an attacker does to a copy of a state directory: everything except signing with the ledger key.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use vambrace_ledger::{Checkpoint, Digest, Frontier, KeyKind, SignedNote, SigningKey, leaf};
use vambrace_store::{Batch, SqliteStore, StateDir, Store as _, StoreOptions};

use crate::fixtures::{runtime, session, start, test_options};

/// A directory for forged copies: in memory if possible, since they need no real disk.
pub(crate) fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Pseudo-random numbers, the same ones in every run.
pub(crate) struct SeededRandom(pub(crate) u64);

impl SeededRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    pub(crate) fn flip(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        bytes[at] ^= 1 << self.below(8);
    }
}

/// The files of a directory at one moment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DirSnapshot(BTreeMap<PathBuf, Vec<u8>>);

impl DirSnapshot {
    pub(crate) fn of(dir: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut dirs = vec![dir.to_owned()];
        while let Some(next) = dirs.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if let Ok(bytes) = fs::read(&path) {
                    // Files that a running store removed meanwhile, and sockets, are not part of it.
                    files.insert(path.strip_prefix(dir).unwrap().to_owned(), bytes);
                }
            }
        }
        Self(files)
    }

    /// Replaces the content of a directory by this snapshot.
    pub(crate) fn put(&self, dir: &Path) {
        let _ = fs::remove_dir_all(dir);
        let inner = self.0.keys().filter_map(|name| name.parent()?.to_str());
        let names: std::collections::BTreeSet<&str> = inner.chain(["", "ledger", "keys"]).collect();
        for name in names {
            fs::create_dir_all(dir.join(name)).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        self.0.iter().for_each(|(name, bytes)| write(&dir.join(name), bytes));
    }

    /// The files whose names match.
    pub(crate) fn only(&self, like: impl Fn(&str) -> bool) -> Self {
        let files = self.0.iter().filter(|(name, _)| like(name.to_str().unwrap()));
        Self(files.map(|(name, bytes)| (name.clone(), bytes.clone())).collect())
    }

    /// These files on top of those of another snapshot.
    pub(crate) fn over(&self, other: &Self) -> Self {
        let mut files = other.0.clone();
        files.extend(self.0.clone());
        Self(files)
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    use std::io::Write as _;
    let _ = fs::remove_file(path);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).unwrap().write_all(bytes).unwrap();
}

/// A ledger of several segments, and what was kept of it over time.
pub(crate) struct SampleLedger {
    pub(crate) image: DirSnapshot,
    /// The directory after every round.
    pub(crate) before: Vec<DirSnapshot>,
    /// The newest checkpoint after every round.
    pub(crate) kept: Vec<Vec<u8>>,
    /// Its first key.
    pub(crate) key: String,
}

/// Writes a ledger: rounds of records with a restart after each, and a key rotation in the middle round.
pub(crate) fn sample_ledger(rounds: u64, records: u64, segment: u64) -> SampleLedger {
    let temp = temp_dir();
    let home = temp.path().join("state");
    let options = StoreOptions { max_segment_bytes: segment, ..test_options() };
    let (mut before, mut kept, mut key) = (Vec::new(), Vec::new(), None);
    for round in 0..rounds {
        let store = SqliteStore::open(StateDir::open(&home).unwrap(), &options).unwrap();
        let name = format!("s-{round}");
        runtime().block_on(async {
            store.commit(Batch::durable(vec![], vec![session(&name)])).await.unwrap();
            for n in 0..records {
                let millis = i64::try_from(n).unwrap();
                store.commit(start(&name, &format!("{name}-{n}"), millis)).await.unwrap();
                if n % 7 == 3 {
                    store.admin().catch_up().unwrap();
                }
            }
        });
        key.get_or_insert_with(|| store.admin().ledger_keys().unwrap()[0].to_string());
        if rounds > 1 && round == rounds / 2 {
            store.admin().rotate_key().unwrap();
        }
        drop(store);
        // Merges the WAL into the database file, so that copying one file copies the database.
        let settled = "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE; VACUUM";
        Connection::open(home.join("vambrace.db")).unwrap().execute_batch(settled).unwrap();
        before.push(
            DirSnapshot::of(&home).only(|name| {
                name.starts_with("ledger/") || name.starts_with("keys/") || name == "vambrace.db"
            }),
        );
        kept.push(fs::read(home.join("ledger/checkpoint")).unwrap());
    }
    SampleLedger { image: before.pop().unwrap(), before, kept, key: key.unwrap() }
}

/// A directory that is being forged.
pub(crate) struct Forge {
    pub(crate) home: PathBuf,
    pub(crate) db: Connection,
}

impl Forge {
    /// Starts with a copy.
    pub(crate) fn of(image: &DirSnapshot, home: &Path) -> Self {
        image.put(home);
        let db = Connection::open(home.join("vambrace.db")).unwrap();
        db.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF").unwrap();
        Self { home: home.to_owned(), db }
    }

    pub(crate) fn sql(&self, statements: &str) {
        self.db.execute_batch(statements).unwrap();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut statement = self.db.prepare("SELECT line FROM ledger ORDER BY seq").unwrap();
        statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// Replaces the lines of the table, numbered by position.
    pub(crate) fn set_lines(&self, lines: &[String]) {
        self.sql("BEGIN; DELETE FROM ledger");
        let mut insert = self.db.prepare("INSERT INTO ledger (seq, line) VALUES (?1, ?2)").unwrap();
        for (seq, line) in (1_i64..).zip(lines) {
            insert.execute((seq, line)).unwrap();
        }
        self.sql("COMMIT");
    }

    /// Rewrites the segments from the table, with the same boundaries, and the cursor at their end.
    pub(crate) fn fix_segments(&self) {
        let lines = self.lines();
        let mut starts: Vec<usize> = self.segments().iter().map(|(first, _)| *first).collect();
        starts.retain(|first| *first <= lines.len());
        for (_, path) in self.segments() {
            fs::remove_file(path).unwrap();
        }
        starts.push(lines.len() + 1);
        for pair in starts.windows(2) {
            let text: String =
                lines[pair[0] - 1..pair[1] - 1].iter().map(|line| format!("{line}\n")).collect();
            write(&self.home.join(format!("ledger/{:020}.jsonl", pair[0])), text.as_bytes());
            let cursor = [lines.len(), pair[0], text.len()].map(|number| i64::try_from(number).unwrap());
            self.db.execute("UPDATE projection SET seq = ?1, segment = ?2, offset = ?3", cursor).unwrap();
        }
    }

    /// Rewrites the stored tree from the table.
    pub(crate) fn fix_tree(&self) {
        let lines = self.lines();
        self.sql("DELETE FROM tree_nodes");
        let mut tree = Frontier::new();
        for line in &lines {
            tree.push_with(leaf(line.as_bytes()), |height, place, root| {
                if height >= 8 {
                    let row = (height, i64::try_from(place).unwrap(), root.as_bytes().as_slice());
                    self.db.execute("INSERT INTO tree_nodes VALUES (?1, ?2, ?3)", row).unwrap();
                }
            });
        }
        let hash = lines.last().map_or(Digest::ZERO, |line| hash_of(line)).to_string();
        let row = (i64::try_from(tree.size()).unwrap(), tree.bytes(), hash);
        self.db.execute("UPDATE tree SET size = ?1, edge = ?2, hash = ?3", row).unwrap();
    }

    /// Gives every checkpoint the root of the changed table; deletes those that are too large.
    pub(crate) fn fix_checkpoints(&self, sign: &dyn Fn(Checkpoint, &SignedNote) -> String) {
        let lines = self.lines();
        let notes: Vec<(i64, String)> = self.notes();
        let mut newest = None;
        for (size, note) in notes {
            let count = usize::try_from(size).unwrap();
            if count > lines.len() {
                self.db.execute("DELETE FROM checkpoints WHERE size = ?1", [size]).unwrap();
                continue;
            }
            let mut tree = Frontier::new();
            lines[..count].iter().for_each(|line| tree.push(leaf(line.as_bytes())));
            let note = SignedNote::parse(note.as_bytes()).unwrap();
            let checkpoint = Checkpoint { root: tree.root(), ..Checkpoint::of(&note).unwrap() };
            let forged = sign(checkpoint, &note);
            self.db.execute("UPDATE checkpoints SET note = ?2 WHERE size = ?1", (size, &forged)).unwrap();
            newest = Some(forged);
        }
        newest.iter().for_each(|note| write(&self.newest(), note.as_bytes()));
    }

    pub(crate) fn notes(&self) -> Vec<(i64, String)> {
        let mut statement = self.db.prepare("SELECT size, note FROM checkpoints ORDER BY size").unwrap();
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub(crate) fn newest(&self) -> PathBuf {
        self.home.join("ledger/checkpoint")
    }

    /// First record and path of each segment.
    pub(crate) fn segments(&self) -> Vec<(usize, PathBuf)> {
        let paths = crate::fixtures::segments(&self.home).into_iter().map(|(path, _)| path);
        paths.map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), path)).collect()
    }

    /// Recomputes the chain from an index on (counted from zero).
    pub(crate) fn rechained(lines: &[String], from: usize) -> Vec<String> {
        let mut lines = lines.to_vec();
        for at in from..lines.len() {
            let prev = if at == 0 { Digest::ZERO } else { hash_of(&lines[at - 1]) };
            lines[at] = resealed(&lines[at], at + 1, prev);
        }
        lines
    }
}

/// The hash at the end of a line.
pub(crate) fn hash_of(line: &str) -> Digest {
    line.get(line.len().saturating_sub(73)..line.len() - 2)
        .and_then(|hash| hash.parse().ok())
        .unwrap_or(Digest::ZERO)
}

/// The same content at another position in the chain, with a correct hash.
pub(crate) fn resealed(line: &str, seq: usize, prev: Digest) -> String {
    let (before, rest) = line.split_once("\"seq\":").unwrap();
    let (_, rest) = rest.split_once(",\"ts\"").unwrap();
    let (fields, _) = rest.rsplit_once(",\"prev_hash\"").unwrap();
    let body = format!("{before}\"seq\":{seq},\"ts\"{fields},\"prev_hash\":\"{prev}\"");
    format!("{body},\"event_hash\":\"{}\"}}", Digest::of(body.as_bytes()))
}

/// The attacker's own key, with the name of the ledger.
pub(crate) fn own_key(name: &str) -> SigningKey {
    SigningKey::new(name, KeyKind::Log, &[66; 32]).unwrap()
}
