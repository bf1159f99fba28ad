//! The attacks, each as a move that can be made many times with other dice. Every one of them changes what the ledger
//! says or what speaks for it; the attacker has no key of the ledger.

use std::fs;

use serde_json::{Value, json};
use vambrace_ledger::{Checkpoint, Digest, Frontier, Note, SigningKey, handover, leaf};

use crate::forge::{Dice, Forge, Story, hash_of, own_key, resealed, write};

/// What an attack has at hand: the ledger, another one, a forge with a copy of the first, dice.
pub(crate) struct Hand<'a> {
    pub(crate) ours: &'a Story,
    pub(crate) other: &'a Story,
    pub(crate) forge: &'a Forge,
    pub(crate) dice: &'a mut Dice,
}

pub(crate) type Move = (&'static str, fn(&mut Hand<'_>));

/// All of them.
pub(crate) const MOVES: &[Move] = &[
    ("bit of a record in the table", |hand| {
        let (at, mut lines) = (hand.line(), hand.forge.lines());
        let mut bytes = lines[at].clone().into_bytes();
        hand.dice.flip(&mut bytes);
        match String::from_utf8(bytes) {
            Ok(line) => lines[at] = line,
            Err(_) => lines[at].push(' '),
        }
        let row = (i64::try_from(at).unwrap() + 1, &lines[at]);
        hand.forge.db.execute("UPDATE ledger SET line = ?2 WHERE seq = ?1", row).unwrap();
    }),
    ("bit of a segment", |hand| {
        let path = hand.segment();
        let mut bytes = fs::read(&path).unwrap();
        hand.dice.flip(&mut bytes);
        write(&path, &bytes);
    }),
    ("bit of the checkpoint file", |hand| {
        let mut bytes = fs::read(hand.forge.newest()).unwrap();
        hand.dice.flip(&mut bytes);
        write(&hand.forge.newest(), &bytes);
    }),
    ("bit of a checkpoint row", |hand| {
        let (size, note) = hand.note();
        let mut bytes = note.into_bytes();
        hand.dice.flip(&mut bytes);
        let sql = "UPDATE checkpoints SET note = CAST(?2 AS TEXT) WHERE size = ?1";
        hand.forge.db.execute(sql, (size, bytes)).unwrap();
    }),
    ("bit of the tree, the writer or a key row", |hand| {
        let columns = [("tree", "edge"), ("tree", "hash"), ("writer", "name"), ("ledger_keys", "key")];
        let (table, column) = columns[hand.dice.below(columns.len())];
        let sql = format!(
            "SELECT CAST({column} AS BLOB) FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})"
        );
        let mut bytes: Vec<u8> = hand.forge.db.query_row(&sql, (), |row| row.get(0)).unwrap();
        hand.dice.flip(&mut bytes);
        let kind = if column == "edge" { "BLOB" } else { "TEXT" };
        let sql = format!(
            "UPDATE {table} SET {column} = CAST(?1 AS {kind}) WHERE rowid = (SELECT max(rowid) FROM {table})"
        );
        hand.forge.db.execute(&sql, [bytes]).unwrap();
    }),
    ("a number of the tree, a key or a checkpoint row", |hand| {
        let columns = [("tree", "size"), ("ledger_keys", "seq"), ("checkpoints", "size")];
        let (table, column) = columns[hand.dice.below(columns.len())];
        let by = 1_i64 << hand.dice.below(12);
        hand.forge.sql(&format!(
            "UPDATE {table} SET {column} = {column} + {by} WHERE rowid = (SELECT max(rowid) FROM {table})"
        ));
    }),
    ("cut the table", |hand| {
        let keep = hand.line();
        hand.forge.sql(&format!("DELETE FROM ledger WHERE seq > {keep}"));
    }),
    ("cut everything but the checkpoints", |hand| {
        let keep = hand.line();
        hand.forge.sql(&format!("DELETE FROM ledger WHERE seq > {keep}"));
        hand.settle();
        hand.forge.sql(&format!("DELETE FROM ledger_keys WHERE seq > {keep}"));
        if hand.dice.below(2) == 0 {
            hand.forge.sql(&format!("DELETE FROM checkpoints WHERE size > {keep}"));
        }
    }),
    ("lines of old at the beginning of a segment", |hand| {
        let path = hand.segment();
        let old = hand.forge.lines().swap_remove(0);
        let bytes = fs::read(&path).unwrap();
        write(&path, &[old.as_bytes(), b"\n", &bytes].concat());
    }),
    ("a row before the first record", |hand| {
        let seq = [0, -1, i64::MIN][hand.dice.below(3)];
        let line = hand.forge.lines().swap_remove(0);
        hand.forge.db.execute("INSERT INTO ledger VALUES (?1, ?2)", (seq, line)).unwrap();
    }),
    ("cut a segment", |hand| {
        let path = hand.segment();
        let bytes = fs::read(&path).unwrap();
        let keep = hand.dice.below(bytes.len());
        write(&path, &bytes[..keep]);
    }),
    ("delete a segment", |hand| fs::remove_file(hand.segment()).unwrap()),
    ("delete records", |hand| {
        let (mut lines, at) = (hand.forge.lines(), hand.line());
        let end = (at + 1 + hand.dice.below(3)).min(lines.len());
        lines.drain(at..end);
        hand.rewrite(&lines, at);
    }),
    ("delete a row", |hand| {
        let at = hand.line() + 1;
        hand.forge.sql(&format!("DELETE FROM ledger WHERE seq = {at}"));
    }),
    ("reorder records", |hand| {
        let (mut lines, at, other) = (hand.forge.lines(), hand.line(), hand.line());
        lines.swap(at, other);
        if at == other {
            lines.swap(0, 1);
        }
        hand.rewrite(&lines, at.min(other));
    }),
    ("duplicate a record", |hand| {
        let (mut lines, at, to) = (hand.forge.lines(), hand.line(), hand.line());
        lines.insert(to, lines[at].clone());
        hand.rewrite(&lines, to);
    }),
    ("splice two ledgers", |hand| {
        let (mut lines, theirs) = (hand.forge.lines(), hand.theirs());
        let (at, from) = (hand.line(), hand.dice.below(theirs.len()));
        lines.truncate(at);
        lines.extend_from_slice(&theirs[from..]);
        hand.rewrite(&lines, at);
    }),
    ("segments or checkpoint of another ledger", |hand| {
        let theirs = hand.other.image.only(|name| name.starts_with("ledger/"));
        let theirs =
            if hand.dice.below(2) == 0 { theirs } else { theirs.only(|name| name == "ledger/checkpoint") };
        theirs.over(&hand.ours.image).put(&hand.forge.home);
    }),
    ("rewrite a record and chain anew", |hand| {
        let (mut lines, at) = (hand.forge.lines(), hand.line());
        hand.falsify(&mut lines, at);
        hand.forge.set_lines(&Forge::rechained(&lines, at));
        hand.forge.fix_segments();
    }),
    ("rewrite, chain and tree anew", |hand| {
        let (mut lines, at) = (hand.forge.lines(), hand.line());
        hand.falsify(&mut lines, at);
        hand.forge.set_lines(&Forge::rechained(&lines, at));
        hand.settle();
    }),
    ("rewrite all, checkpoints without signature", |hand| {
        hand.rewrite_all(&|said, _| {
            let note = said.sign(&own_key("x")).unwrap();
            note.text().to_owned() + "\n"
        });
    }),
    ("rewrite all, checkpoints with the old signatures", |hand| {
        hand.rewrite_all(&|said, old| {
            let text = said.sign(&own_key("x")).unwrap().text().to_owned();
            old.to_string().replacen(old.text(), &text, 1)
        });
    }),
    ("rewrite all, checkpoints signed by another key", |hand| {
        hand.rewrite_all(&|said, _| said.sign(&own_key(&said.origin)).unwrap().to_string());
    }),
    ("strip signatures", |hand| {
        let (size, note) = hand.note();
        let text = Note::parse(note.as_bytes()).unwrap().text().to_owned() + "\n";
        if hand.dice.below(2) == 0 {
            write(&hand.forge.newest(), text.as_bytes());
        } else {
            hand.forge.db.execute("UPDATE checkpoints SET note = ?2 WHERE size = ?1", (size, text)).unwrap();
        }
    }),
    ("sign a checkpoint with another key", |hand| {
        let (size, note) = hand.note();
        let note = Note::parse(note.as_bytes()).unwrap();
        let said = Checkpoint::of(&note).unwrap();
        let forged = said.sign(&own_key(&said.origin)).unwrap().to_string();
        hand.forge.db.execute("UPDATE checkpoints SET note = ?2 WHERE size = ?1", (size, forged)).unwrap();
    }),
    ("delete the checkpoints", |hand| {
        hand.forge.sql("DELETE FROM checkpoints");
        fs::remove_file(hand.forge.newest()).unwrap();
    }),
    ("forge records behind the end", |hand| {
        let mut lines = hand.forge.lines();
        for _ in 0..=hand.dice.below(3) {
            let at = hand.line();
            let next = resealed(&lines[at], lines.len() + 1, hash_of(lines.last().unwrap()));
            lines.push(next);
        }
        hand.forge.set_lines(&lines);
        hand.settle();
    }),
    ("roll back the database", |hand| {
        let back = &hand.ours.before[hand.dice.below(hand.ours.before.len())];
        back.only(|name| name == "vambrace.db").over(&hand.ours.image).put(&hand.forge.home);
    }),
    ("roll back the segments", |hand| {
        let back = &hand.ours.before[hand.dice.below(hand.ours.before.len())];
        let rest = hand.ours.image.only(|name| !name.ends_with(".jsonl"));
        back.only(|name| name.ends_with(".jsonl")).over(&rest).put(&hand.forge.home);
    }),
    ("roll back database and checkpoint, not the segments", |hand| {
        let back = &hand.ours.before[hand.dice.below(hand.ours.before.len())];
        back.only(|name| !name.ends_with(".jsonl")).over(&hand.ours.image).put(&hand.forge.home);
    }),
];

impl Hand<'_> {
    /// A line of the table, counted from zero.
    fn line(&mut self) -> usize {
        let count: i64 =
            self.forge.db.query_row("SELECT count(*) FROM ledger", (), |row| row.get(0)).unwrap();
        self.dice.below(usize::try_from(count).unwrap())
    }

    fn segment(&mut self) -> std::path::PathBuf {
        let mut paths = self.forge.segments();
        paths.retain(|(_, path)| fs::metadata(path).unwrap().len() > 0);
        paths.remove(self.dice.below(paths.len())).1
    }

    fn note(&mut self) -> (i64, String) {
        let mut notes = self.forge.notes();
        notes.remove(self.dice.below(notes.len()))
    }

    fn theirs(&self) -> Vec<String> {
        let folder = self.forge.home.with_extension("theirs");
        Forge::of(&self.other.image, &folder).lines()
    }

    /// Another word in a record, of the same or another length.
    fn falsify(&mut self, lines: &mut [String], at: usize) {
        let changed =
            ["src/main.rs", "\"INFO\"", "key.", "segment."].iter().find(|word| lines[at].contains(**word));
        let (word, other) = (changed.unwrap(), ["x", "src/evil.rs", "allowed"][self.dice.below(3)]);
        lines[at] = lines[at].replacen(word, other, 1);
    }

    /// Puts lines in the table: as they are, or chained anew with everything else made to fit.
    fn rewrite(&mut self, lines: &[String], from: usize) {
        match self.dice.below(3) {
            0 => self.forge.set_lines(lines),
            1 => {
                self.forge.set_lines(&Forge::rechained(lines, from));
                self.forge.fix_segments();
            }
            _ => {
                self.forge.set_lines(&Forge::rechained(lines, from));
                self.settle();
            }
        }
    }

    fn settle(&self) {
        self.forge.fix_segments();
        self.forge.fix_tree();
    }

    fn rewrite_all(&mut self, sign: &dyn Fn(Checkpoint, &Note) -> String) {
        let (mut lines, at) = (self.forge.lines(), self.line());
        self.falsify(&mut lines, at);
        self.forge.set_lines(&Forge::rechained(&lines, at));
        self.settle();
        self.forge.fix_checkpoints(sign);
    }
}

/// Replaces the keys: every record and every checkpoint is made anew, perfectly, by somebody with keys of his own.
pub(crate) fn replace_keys(forge: &Forge, falsify: impl Fn(usize, &mut Value)) -> SigningKey {
    let writer: String = forge.db.query_row("SELECT name FROM writer", (), |row| row.get(0)).unwrap();
    let origin = format!("vambrace/{writer}");
    let keys = [1, 2, 3].map(|n| SigningKey::new(&origin, vambrace_ledger::KeyKind::Log, &[n; 32]).unwrap());
    let (mut lines, mut tree, mut now): (Vec<String>, _, _) = (Vec::new(), Frontier::new(), 0);
    let mut roots = vec![tree.root()];
    forge.sql("DELETE FROM ledger_keys");
    let old: Vec<(i64, String)> = forge.notes();
    let signer =
        |at: usize, from: &[(usize, usize)]| from.iter().rev().find(|(seq, _)| *seq <= at).unwrap().1;
    let mut from = Vec::new();
    for (at, line) in forge.lines().iter().enumerate() {
        let mut said: Value = serde_json::from_str(line).unwrap();
        falsify(at, &mut said);
        let event = said["event_type"].as_str().unwrap().to_owned();
        if event == "key.created" || event == "key.rotated" {
            let last = now;
            now += usize::from(event == "key.rotated");
            from.push((at + 1, now));
            let key = keys[now].verify_key();
            said["key"] = json!(key.to_string());
            if event == "key.rotated" {
                let note = handover(&origin, &keys[last].verify_key(), &key).unwrap();
                said["note"] = json!(note.sign(&keys[last]).sign(&keys[now]).to_string());
            }
            let row = (i64::try_from(at + 1).unwrap(), key.to_string());
            forge.db.execute("INSERT INTO ledger_keys VALUES (?1, ?2)", row).unwrap();
        }
        if let Some(size) = said["tree_size"].as_u64() {
            let root = roots[usize::try_from(size).unwrap()];
            said["root_hash"] = json!(root.to_string());
            if said["note"].is_string() {
                let key = &keys[signer(usize::try_from(size).unwrap(), &from)];
                said["note"] =
                    json!(Checkpoint { origin: origin.clone(), size, root }.sign(key).unwrap().to_string());
            }
        }
        let prev = lines.last().map_or(Digest::ZERO, |line| hash_of(line));
        let line = resealed(&said.to_string(), at + 1, prev);
        tree.push(leaf(line.as_bytes()));
        roots.push(tree.root());
        lines.push(line);
    }
    forge.set_lines(&lines);
    forge.fix_segments();
    forge.fix_tree();
    forge.fix_checkpoints(&|said, _| {
        let key = &keys[signer(usize::try_from(said.size).unwrap(), &from)];
        said.sign(key).unwrap().to_string()
    });
    assert!(!old.is_empty());
    write(&forge.home.join("keys/ledger.key"), keys[now].secret_text().as_bytes());
    keys[now].clone()
}
