//! The attacks, each as a mutation that can be applied many times with other random numbers. Each one changes
//! what the ledger says or what proves it; the attacker has no ledger key.

use std::fs;

use serde_json::{Value, json};
use vambrace_ledger::{Checkpoint, Digest, Frontier, SignedNote, SigningKey, handover, leaf};

use crate::forge::{Forge, SampleLedger, SeededRandom, hash_of, own_key, resealed, write};

/// What a mutation can use: the ledger, another one, a forged copy of the first, random numbers.
pub(crate) struct MutationContext<'a> {
    pub(crate) ours: &'a SampleLedger,
    pub(crate) other: &'a SampleLedger,
    pub(crate) forge: &'a Forge,
    pub(crate) random: &'a mut SeededRandom,
}

pub(crate) type Mutation = (&'static str, fn(&mut MutationContext<'_>));

/// All mutations.
pub(crate) const MUTATIONS: &[Mutation] = &[
    ("bit of a record in the table", |ctx| {
        let (at, mut lines) = (ctx.line(), ctx.forge.lines());
        let mut bytes = lines[at].clone().into_bytes();
        ctx.random.flip(&mut bytes);
        match String::from_utf8(bytes) {
            Ok(line) => lines[at] = line,
            Err(_) => lines[at].push(' '),
        }
        let row = (i64::try_from(at).unwrap() + 1, &lines[at]);
        ctx.forge.db.execute("UPDATE ledger SET line = ?2 WHERE seq = ?1", row).unwrap();
    }),
    ("bit of a segment", |ctx| {
        let path = ctx.segment();
        let mut bytes = fs::read(&path).unwrap();
        ctx.random.flip(&mut bytes);
        write(&path, &bytes);
    }),
    ("bit of the checkpoint file", |ctx| {
        let mut bytes = fs::read(ctx.forge.newest()).unwrap();
        ctx.random.flip(&mut bytes);
        write(&ctx.forge.newest(), &bytes);
    }),
    ("bit of a checkpoint row", |ctx| {
        let (size, note) = ctx.note();
        let mut bytes = note.into_bytes();
        ctx.random.flip(&mut bytes);
        let sql = "UPDATE checkpoints SET note = CAST(?2 AS TEXT) WHERE size = ?1";
        ctx.forge.db.execute(sql, (size, bytes)).unwrap();
    }),
    ("bit of the tree, the writer or a key row", |ctx| {
        let columns = [("tree", "edge"), ("tree", "hash"), ("writer", "name"), ("ledger_keys", "key")];
        let (table, column) = columns[ctx.random.below(columns.len())];
        let sql = format!(
            "SELECT CAST({column} AS BLOB) FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})"
        );
        let mut bytes: Vec<u8> = ctx.forge.db.query_row(&sql, (), |row| row.get(0)).unwrap();
        ctx.random.flip(&mut bytes);
        let kind = if column == "edge" { "BLOB" } else { "TEXT" };
        let sql = format!(
            "UPDATE {table} SET {column} = CAST(?1 AS {kind}) WHERE rowid = (SELECT max(rowid) FROM {table})"
        );
        ctx.forge.db.execute(&sql, [bytes]).unwrap();
    }),
    ("a number of the tree, a key or a checkpoint row", |ctx| {
        let columns = [("tree", "size"), ("ledger_keys", "seq"), ("checkpoints", "size")];
        let (table, column) = columns[ctx.random.below(columns.len())];
        let by = 1_i64 << ctx.random.below(12);
        ctx.forge.sql(&format!(
            "UPDATE {table} SET {column} = {column} + {by} WHERE rowid = (SELECT max(rowid) FROM {table})"
        ));
    }),
    ("cut the table", |ctx| {
        let keep = ctx.line();
        ctx.forge.sql(&format!("DELETE FROM ledger WHERE seq > {keep}"));
    }),
    ("cut everything but the checkpoints", |ctx| {
        let keep = ctx.line();
        ctx.forge.sql(&format!("DELETE FROM ledger WHERE seq > {keep}"));
        ctx.settle();
        ctx.forge.sql(&format!("DELETE FROM ledger_keys WHERE seq > {keep}"));
        if ctx.random.below(2) == 0 {
            ctx.forge.sql(&format!("DELETE FROM checkpoints WHERE size > {keep}"));
        }
    }),
    ("an old line at the start of a segment", |ctx| {
        let path = ctx.segment();
        let old = ctx.forge.lines().swap_remove(0);
        let bytes = fs::read(&path).unwrap();
        write(&path, &[old.as_bytes(), b"\n", &bytes].concat());
    }),
    ("a row before the first record", |ctx| {
        let seq = [0, -1, i64::MIN][ctx.random.below(3)];
        let line = ctx.forge.lines().swap_remove(0);
        ctx.forge.db.execute("INSERT INTO ledger VALUES (?1, ?2)", (seq, line)).unwrap();
    }),
    ("cut a segment", |ctx| {
        let path = ctx.segment();
        let bytes = fs::read(&path).unwrap();
        let keep = ctx.random.below(bytes.len());
        write(&path, &bytes[..keep]);
    }),
    ("delete a segment", |ctx| fs::remove_file(ctx.segment()).unwrap()),
    ("delete records", |ctx| {
        let (mut lines, at) = (ctx.forge.lines(), ctx.line());
        let end = (at + 1 + ctx.random.below(3)).min(lines.len());
        lines.drain(at..end);
        ctx.rewrite(&lines, at);
    }),
    ("delete a row", |ctx| {
        let at = ctx.line() + 1;
        ctx.forge.sql(&format!("DELETE FROM ledger WHERE seq = {at}"));
    }),
    ("reorder records", |ctx| {
        let (mut lines, at, other) = (ctx.forge.lines(), ctx.line(), ctx.line());
        lines.swap(at, other);
        if at == other {
            lines.swap(0, 1);
        }
        ctx.rewrite(&lines, at.min(other));
    }),
    ("duplicate a record", |ctx| {
        let (mut lines, at, to) = (ctx.forge.lines(), ctx.line(), ctx.line());
        lines.insert(to, lines[at].clone());
        ctx.rewrite(&lines, to);
    }),
    ("splice two ledgers", |ctx| {
        let (mut lines, theirs) = (ctx.forge.lines(), ctx.theirs());
        let (at, from) = (ctx.line(), ctx.random.below(theirs.len()));
        lines.truncate(at);
        lines.extend_from_slice(&theirs[from..]);
        ctx.rewrite(&lines, at);
    }),
    ("segments or checkpoint of another ledger", |ctx| {
        let theirs = ctx.other.image.only(|name| name.starts_with("ledger/"));
        let theirs =
            if ctx.random.below(2) == 0 { theirs } else { theirs.only(|name| name == "ledger/checkpoint") };
        theirs.over(&ctx.ours.image).put(&ctx.forge.home);
    }),
    ("rewrite a record and the chain", |ctx| {
        let (mut lines, at) = (ctx.forge.lines(), ctx.line());
        ctx.falsify(&mut lines, at);
        ctx.forge.set_lines(&Forge::rechained(&lines, at));
        ctx.forge.fix_segments();
    }),
    ("rewrite a record, the chain and the tree", |ctx| {
        let (mut lines, at) = (ctx.forge.lines(), ctx.line());
        ctx.falsify(&mut lines, at);
        ctx.forge.set_lines(&Forge::rechained(&lines, at));
        ctx.settle();
    }),
    ("rewrite all, checkpoints without signature", |ctx| {
        ctx.rewrite_all(&|fields, _| {
            let note = fields.sign(&own_key("x")).unwrap();
            note.text().to_owned() + "\n"
        });
    }),
    ("rewrite all, checkpoints with the old signatures", |ctx| {
        ctx.rewrite_all(&|fields, old| {
            let text = fields.sign(&own_key("x")).unwrap().text().to_owned();
            old.to_string().replacen(old.text(), &text, 1)
        });
    }),
    ("rewrite all, checkpoints signed by another key", |ctx| {
        ctx.rewrite_all(&|fields, _| fields.sign(&own_key(&fields.origin)).unwrap().to_string());
    }),
    ("strip signatures", |ctx| {
        let (size, note) = ctx.note();
        let text = SignedNote::parse(note.as_bytes()).unwrap().text().to_owned() + "\n";
        if ctx.random.below(2) == 0 {
            write(&ctx.forge.newest(), text.as_bytes());
        } else {
            ctx.forge.db.execute("UPDATE checkpoints SET note = ?2 WHERE size = ?1", (size, text)).unwrap();
        }
    }),
    ("sign a checkpoint with another key", |ctx| {
        let (size, note) = ctx.note();
        let note = SignedNote::parse(note.as_bytes()).unwrap();
        let fields = Checkpoint::of(&note).unwrap();
        let forged = fields.sign(&own_key(&fields.origin)).unwrap().to_string();
        ctx.forge.db.execute("UPDATE checkpoints SET note = ?2 WHERE size = ?1", (size, forged)).unwrap();
    }),
    ("delete the checkpoints", |ctx| {
        ctx.forge.sql("DELETE FROM checkpoints");
        fs::remove_file(ctx.forge.newest()).unwrap();
    }),
    ("forge records after the end", |ctx| {
        let mut lines = ctx.forge.lines();
        for _ in 0..=ctx.random.below(3) {
            let at = ctx.line();
            let next = resealed(&lines[at], lines.len() + 1, hash_of(lines.last().unwrap()));
            lines.push(next);
        }
        ctx.forge.set_lines(&lines);
        ctx.settle();
    }),
    ("roll back the database", |ctx| {
        let back = &ctx.ours.before[ctx.random.below(ctx.ours.before.len())];
        back.only(|name| name == "vambrace.db").over(&ctx.ours.image).put(&ctx.forge.home);
    }),
    ("roll back the segments", |ctx| {
        let back = &ctx.ours.before[ctx.random.below(ctx.ours.before.len())];
        let rest = ctx.ours.image.only(|name| !name.ends_with(".jsonl"));
        back.only(|name| name.ends_with(".jsonl")).over(&rest).put(&ctx.forge.home);
    }),
    ("roll back database and checkpoint, not the segments", |ctx| {
        let back = &ctx.ours.before[ctx.random.below(ctx.ours.before.len())];
        back.only(|name| !name.ends_with(".jsonl")).over(&ctx.ours.image).put(&ctx.forge.home);
    }),
];

impl MutationContext<'_> {
    /// The index of a random line.
    fn line(&mut self) -> usize {
        let count: i64 =
            self.forge.db.query_row("SELECT count(*) FROM ledger", (), |row| row.get(0)).unwrap();
        self.random.below(usize::try_from(count).unwrap())
    }

    fn segment(&mut self) -> std::path::PathBuf {
        let mut paths = self.forge.segments();
        paths.retain(|(_, path)| fs::metadata(path).unwrap().len() > 0);
        paths.remove(self.random.below(paths.len())).1
    }

    fn note(&mut self) -> (i64, String) {
        let mut notes = self.forge.notes();
        notes.remove(self.random.below(notes.len()))
    }

    fn theirs(&self) -> Vec<String> {
        let dir = self.forge.home.with_extension("theirs");
        Forge::of(&self.other.image, &dir).lines()
    }

    /// Changes a word in a record, to one of the same or another length.
    fn falsify(&mut self, lines: &mut [String], at: usize) {
        let changed =
            ["src/main.rs", "\"INFO\"", "key.", "segment."].iter().find(|word| lines[at].contains(**word));
        let (word, other) = (changed.unwrap(), ["x", "src/evil.rs", "allowed"][self.random.below(3)]);
        lines[at] = lines[at].replacen(word, other, 1);
    }

    /// Puts lines into the table: as they are, or rechained with everything else adapted.
    fn rewrite(&mut self, lines: &[String], from: usize) {
        match self.random.below(3) {
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

    fn rewrite_all(&mut self, sign: &dyn Fn(Checkpoint, &SignedNote) -> String) {
        let (mut lines, at) = (self.forge.lines(), self.line());
        self.falsify(&mut lines, at);
        self.forge.set_lines(&Forge::rechained(&lines, at));
        self.settle();
        self.forge.fix_checkpoints(sign);
    }
}

/// Forges every record and every checkpoint completely, with the attacker's own keys.
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
        let mut fields: Value = serde_json::from_str(line).unwrap();
        falsify(at, &mut fields);
        let event = fields["event_type"].as_str().unwrap().to_owned();
        if event == "key.created" || event == "key.rotated" {
            let last = now;
            now += usize::from(event == "key.rotated");
            from.push((at + 1, now));
            let key = keys[now].verify_key();
            fields["key"] = json!(key.to_string());
            if event == "key.rotated" {
                let note = handover(&origin, &keys[last].verify_key(), &key).unwrap();
                fields["note"] = json!(note.sign(&keys[last]).sign(&keys[now]).to_string());
            }
            let row = (i64::try_from(at + 1).unwrap(), key.to_string());
            forge.db.execute("INSERT INTO ledger_keys VALUES (?1, ?2)", row).unwrap();
        }
        if let Some(size) = fields["tree_size"].as_u64() {
            let root = roots[usize::try_from(size).unwrap()];
            fields["root_hash"] = json!(root.to_string());
            if fields["note"].is_string() {
                let key = &keys[signer(usize::try_from(size).unwrap(), &from)];
                fields["note"] =
                    json!(Checkpoint { origin: origin.clone(), size, root }.sign(key).unwrap().to_string());
            }
        }
        let prev = lines.last().map_or(Digest::ZERO, |line| hash_of(line));
        let line = resealed(&fields.to_string(), at + 1, prev);
        tree.push(leaf(line.as_bytes()));
        roots.push(tree.root());
        lines.push(line);
    }
    forge.set_lines(&lines);
    forge.fix_segments();
    forge.fix_tree();
    forge.fix_checkpoints(&|fields, _| {
        let key = &keys[signer(usize::try_from(fields.size).unwrap(), &from)];
        fields.sign(key).unwrap().to_string()
    });
    assert!(!old.is_empty());
    write(&forge.home.join("keys/ledger.key"), keys[now].secret_text().as_bytes());
    keys[now].clone()
}
