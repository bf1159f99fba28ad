//! What an attacker does to a copy of a state folder: everything but sign with the key of the ledger.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use vambrace_ledger::{Checkpoint, Digest, Frontier, KeyKind, Note, SigningKey, leaf};
use vambrace_store::{Batch, Options, SqliteStore, StateDir, Store as _};

use crate::given::{quick, runtime, session, start};

/// A folder for forged copies: in memory where that exists, since no disk has to be real for them.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Numbers by chance, the same ones every time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below a number.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    pub(crate) fn flip(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len());
        bytes[at] ^= 1 << self.below(8);
    }
}

/// The files of a folder at a moment.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Image(BTreeMap<PathBuf, Vec<u8>>);

impl Image {
    pub(crate) fn of(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(bytes) = fs::read(&path) {
                    // What a running store has removed meanwhile, or is a socket, is not part of it.
                    files.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
                }
            }
        }
        Self(files)
    }

    /// Makes a folder be this and nothing else.
    pub(crate) fn put(&self, folder: &Path) {
        let _ = fs::remove_dir_all(folder);
        let inner = self.0.keys().filter_map(|name| name.parent()?.to_str());
        let names: std::collections::BTreeSet<&str> = inner.chain(["", "ledger", "keys"]).collect();
        for name in names {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        self.0.iter().for_each(|(name, bytes)| write(&folder.join(name), bytes));
    }

    /// The files whose names the question likes.
    pub(crate) fn only(&self, like: impl Fn(&str) -> bool) -> Self {
        let files = self.0.iter().filter(|(name, _)| like(name.to_str().unwrap()));
        Self(files.map(|(name, bytes)| (name.clone(), bytes.clone())).collect())
    }

    /// These files, and otherwise those of another.
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

/// A ledger of several segments, and what somebody kept of it along its way.
pub(crate) struct Story {
    pub(crate) image: Image,
    /// The folder after every round.
    pub(crate) before: Vec<Image>,
    /// The newest checkpoint after every round.
    pub(crate) kept: Vec<Vec<u8>>,
    /// Its first key.
    pub(crate) key: String,
}

/// Writes a ledger: rounds of records with a restart after each, a new key in the middle when there is one.
pub(crate) fn story(rounds: u64, records: u64, segment: u64) -> Story {
    let temp = folder();
    let home = temp.path().join("state");
    let options = Options { max_segment_bytes: segment, ..quick() };
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
                    store.catch_up().unwrap();
                }
            }
        });
        key.get_or_insert_with(|| store.ledger_keys().unwrap()[0].to_string());
        if rounds > 1 && round == rounds / 2 {
            store.rotate_key().unwrap();
        }
        drop(store);
        // One file, so that a copy is a copy.
        let settled = "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE; VACUUM";
        Connection::open(home.join("vambrace.db")).unwrap().execute_batch(settled).unwrap();
        before.push(
            Image::of(&home).only(|name| {
                name.starts_with("ledger/") || name.starts_with("keys/") || name == "vambrace.db"
            }),
        );
        kept.push(fs::read(home.join("ledger/checkpoint")).unwrap());
    }
    Story { image: before.pop().unwrap(), before, kept, key: key.unwrap() }
}

/// A folder that is being forged.
pub(crate) struct Forge {
    pub(crate) home: PathBuf,
    pub(crate) db: Connection,
}

impl Forge {
    /// Begins with a copy.
    pub(crate) fn of(image: &Image, home: &Path) -> Self {
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

    /// Puts other lines in the table, numbered by where they stand.
    pub(crate) fn set_lines(&self, lines: &[String]) {
        self.sql("BEGIN; DELETE FROM ledger");
        let mut insert = self.db.prepare("INSERT INTO ledger (seq, line) VALUES (?1, ?2)").unwrap();
        for (seq, line) in (1_i64..).zip(lines) {
            insert.execute((seq, line)).unwrap();
        }
        self.sql("COMMIT");
    }

    /// The segments say what the table says, cut where they were cut, and the cursor stands at their end.
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

    /// What is kept of the tree is the tree of the table.
    pub(crate) fn fix_tree(&self) {
        let lines = self.lines();
        self.sql("DELETE FROM tree_nodes");
        let mut tree = Frontier::new();
        for line in &lines {
            tree.push_telling(leaf(line.as_bytes()), |height, place, root| {
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

    /// Every checkpoint has the root that the table has now; those that are too large are gone.
    pub(crate) fn fix_checkpoints(&self, sign: &dyn Fn(Checkpoint, &Note) -> String) {
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
            let note = Note::parse(note.as_bytes()).unwrap();
            let said = Checkpoint { root: tree.root(), ..Checkpoint::of(&note).unwrap() };
            let forged = sign(said, &note);
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

    /// First records and files.
    pub(crate) fn segments(&self) -> Vec<(usize, PathBuf)> {
        let paths = crate::given::segments(&self.home).into_iter().map(|(path, _)| path);
        paths.map(|path| (path.file_stem().unwrap().to_str().unwrap().parse().unwrap(), path)).collect()
    }

    /// Chains the lines anew from a place on (counted from zero).
    pub(crate) fn rechained(lines: &[String], from: usize) -> Vec<String> {
        let mut lines = lines.to_vec();
        for at in from..lines.len() {
            let prev = if at == 0 { Digest::ZERO } else { hash_of(&lines[at - 1]) };
            lines[at] = resealed(&lines[at], at + 1, prev);
        }
        lines
    }
}

/// The hash that a line ends with.
pub(crate) fn hash_of(line: &str) -> Digest {
    line.get(line.len().saturating_sub(73)..line.len() - 2)
        .and_then(|hash| hash.parse().ok())
        .unwrap_or(Digest::ZERO)
}

/// The same content at another place in the chain, with a right hash.
pub(crate) fn resealed(line: &str, seq: usize, prev: Digest) -> String {
    let (before, rest) = line.split_once("\"seq\":").unwrap();
    let (_, rest) = rest.split_once(",\"ts\"").unwrap();
    let (fields, _) = rest.rsplit_once(",\"prev_hash\"").unwrap();
    let body = format!("{before}\"seq\":{seq},\"ts\"{fields},\"prev_hash\":\"{prev}\"");
    format!("{body},\"event_hash\":\"{}\"}}", Digest::of(body.as_bytes()))
}

/// A key of the attacker's own, with the name of the ledger.
pub(crate) fn own_key(name: &str) -> SigningKey {
    SigningKey::new(name, KeyKind::Log, &[66; 32]).unwrap()
}
