//! `vambrace audit checkpoint`, `prove`, `consistency` and `rotate-key`: proofs that can be checked offline. A proof is
//! verified before it is printed, so a corrupted tree cannot produce a wrong proof.
#![expect(clippy::disallowed_methods, reason = "the user names the checkpoint file")]

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use vambrace_core::digest::Digest;
use vambrace_host::{Host, Reader};
use vambrace_ledger::{Checkpoint, SignedNote, is_consistent, is_included, leaf};
use vambrace_store::{LedgerRecord, RecordId, RecordQuery, Store};

use super::BATCH_RECORDS;
use crate::failure::Failure;
use crate::output::Out;

/// Signs the ledger and prints the newest checkpoint. Standard output has only the signed note.
pub(super) async fn checkpoint(out: Out) -> Result<(), Failure> {
    let (host, _) = caught_up().await?;
    let store = host.store().as_ref();
    let (checkpoint, note) = newest(store)?;
    let key = store.admin().ledger_keys()?.last().map(ToString::to_string).unwrap_or_default();
    if out.is_json() {
        let Checkpoint { origin, size, root } = checkpoint;
        out.value(&json!({"origin": origin, "size": size, "root": root.to_string(), "key": key, "note": note.to_string()}));
    } else {
        out.untrusted(&note.to_string());
        out.message(format!("key: {key}"));
        out.message("keep both elsewhere; `vambrace audit verify --checkpoint FILE --key KEY` compares the ledger with them");
    }
    Ok(())
}

/// Prints the proof that a record is in the ledger of a checkpoint (C2SP tlog-proof), including the record.
pub(super) async fn prove(which: &str, kept: Option<&Path>, out: Out) -> Result<(), Failure> {
    let (host, reader) = caught_up().await?;
    let store = host.store().as_ref();
    let record = find(which, store).await?;
    if !reader.sees_record(store, &record.id).await? {
        return Err(no_record(which));
    }
    let seq = record.id.seq;
    let (checkpoint, note) = match kept {
        Some(file) => read(file)?,
        None => newest(store)?,
    };
    if seq > checkpoint.size {
        let why = format!("record {seq} is not among the {} records of that checkpoint", checkpoint.size);
        return Err(Failure::usage(why, "omit `--checkpoint` to use the newest one"));
    }
    let proof = store.admin().inclusion_proof(&record.id, checkpoint.size)?;
    if !is_included(seq - 1, checkpoint.size, leaf(record.line.as_bytes()), &proof, checkpoint.root) {
        return Err(contradicted("the record and the checkpoint do not belong to the same ledger"));
    }
    if out.is_json() {
        out.value(&json!({
            "record": record.line, "index": seq - 1, "proof": texts(&proof),
            "size": checkpoint.size, "root": checkpoint.root.to_string(), "note": note.to_string(),
        }));
    } else {
        let mut text =
            format!("c2sp.org/tlog-proof@v1\nextra {}\nindex {}\n", STANDARD.encode(&record.line), seq - 1);
        proof.iter().for_each(|hash| text.push_str(&format!("{}\n", STANDARD.encode(hash.as_bytes()))));
        out.untrusted(&format!("{text}\n{note}"));
    }
    Ok(())
}

/// Finds a record by its number or event hash.
async fn find(which: &str, store: &dyn Store) -> Result<LedgerRecord, Failure> {
    if let Ok(seq) = which.parse() {
        return store.record(&RecordId::new(store.writer(), seq)).await?.ok_or_else(|| no_record(which));
    }
    let digits = which.strip_prefix("sha256:").unwrap_or(which);
    let hash = Digest::from_hex(digits.as_bytes()).ok_or_else(|| {
        let hint = "use the number of a record, or its `event_hash`; `vambrace audit tail --json` shows both";
        Failure::usage(format!("`{which}` is neither a record number nor an event hash"), hint)
    })?;
    let text = hash.to_string();
    let mut last = RecordId::new(store.writer(), 0);
    loop {
        let records = store.records(RecordQuery::after(last, BATCH_RECORDS)).await?;
        last = records.last().ok_or_else(|| no_record(which))?.id.clone();
        let is_it = |record: &LedgerRecord| {
            // A text search first: parsing every line would be slow.
            record.line.contains(&text)
                && record.fields().get("event_hash").and_then(Value::as_str) == Some(&text)
        };
        if let Some(record) = records.into_iter().find(is_it) {
            return Ok(record);
        }
    }
}

/// Prints the proof that one checkpoint's ledger is a prefix of another's.
pub(super) async fn consistency(old: &str, new: Option<&str>, out: Out) -> Result<(), Failure> {
    let (host, _) = caught_up().await?;
    let store = host.store().as_ref();
    let newest = newest(store)?;
    let old = tree_head(old, store)?;
    let new = match new {
        Some(new) => tree_head(new, store)?,
        None => TreeHead { size: newest.0.size, root: newest.0.root, note: Some(newest.1) },
    };
    if old.size > new.size || new.size > newest.0.size {
        let why =
            format!("{} and {} are not two sizes of this ledger in ascending order", old.size, new.size);
        return Err(Failure::usage(why, format!("it has {} records", newest.0.size)));
    }
    let proof = store.admin().consistency_proof(old.size, new.size)?;
    if !is_consistent((old.size, old.root), (new.size, new.root), &proof) {
        return Err(contradicted("the older ledger is not a prefix of the newer one"));
    }
    if out.is_json() {
        out.value(&json!({"old": old.as_json(), "new": new.as_json(), "proof": texts(&proof)}));
    } else {
        out.line(format!(
            "consistent: the first {} records are a prefix of the first {}",
            old.size, new.size
        ));
        out.line(format!("old  {} {}", old.size, old.root));
        out.line(format!("new  {} {}", new.size, new.root));
        proof.iter().for_each(|hash| out.line(format!("     {hash}")));
    }
    Ok(())
}

/// Replaces the signing key.
pub(super) async fn rotate(out: Out) -> Result<(), Failure> {
    let (host, reader) = super::ledger("audit rotate-key").await?;
    reader.require_owner()?;
    let store = Arc::clone(host.store());
    let key = blocking(move || store.admin().rotate_key()).await?;
    if out.is_json() {
        out.value(&json!({"key": key.to_string()}));
    } else {
        out.line(key.to_string());
        out.message("the old key signed the new one; both are recorded in the ledger");
    }
    Ok(())
}

/// A size of the ledger and its root, with the signed note if there is one.
struct TreeHead {
    size: u64,
    root: Digest,
    note: Option<SignedNote>,
}

impl TreeHead {
    fn as_json(&self) -> Value {
        let note = self.note.as_ref().map(ToString::to_string);
        json!({"size": self.size, "root": self.root.to_string(), "note": note})
    }
}

/// Parses a size, or reads a checkpoint file.
fn tree_head(text: &str, store: &dyn Store) -> Result<TreeHead, Failure> {
    let Ok(size) = text.parse::<u64>() else {
        let (checkpoint, note) = read(Path::new(text))?;
        return Ok(TreeHead { size: checkpoint.size, root: checkpoint.root, note: Some(note) });
    };
    let root = store.admin().root_at(size).map_err(|_| {
        Failure::usage(
            format!("the ledger has fewer than {size} records"),
            "`vambrace audit checkpoint` prints the number of records",
        )
    })?;
    let row = store.admin().checkpoint_of(size)?;
    let note = row.and_then(|row| SignedNote::parse(row.note.as_bytes()).ok());
    Ok(TreeHead { size, root, note })
}

fn read(file: &Path) -> Result<(Checkpoint, SignedNote), Failure> {
    let hint = "name a file that `vambrace audit checkpoint` printed";
    let bytes = std::fs::read(file)
        .map_err(|error| Failure::usage(format!("`{}`: {error}", file.display()), hint))?;
    Checkpoint::parse(&bytes).map_err(|error| Failure::usage(format!("`{}`: {error}", file.display()), hint))
}

/// Opens the ledger and signs all its records.
async fn caught_up() -> Result<(Arc<Host>, Reader), Failure> {
    let (host, reader) = super::ledger("audit prove").await?;
    let store = Arc::clone(host.store());
    blocking(move || store.admin().catch_up()).await?;
    Ok((host, reader))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, vambrace_store::StoreError> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|_| Failure::failed("the ledger task panicked"))??)
}

fn newest(store: &dyn Store) -> Result<(Checkpoint, SignedNote), Failure> {
    let row =
        store.admin().newest_checkpoint()?.ok_or_else(|| Failure::failed("there is no checkpoint yet"))?;
    Checkpoint::parse(row.note.as_bytes()).map_err(|error| contradicted(&error.to_string()))
}

fn texts(proof: &[Digest]) -> Vec<String> {
    proof.iter().map(ToString::to_string).collect()
}

fn no_record(which: &str) -> Failure {
    Failure::usage(format!("there is no record `{which}`"), "`vambrace audit tail` shows the newest ones")
}

fn contradicted(why: &str) -> Failure {
    Failure::failed(why).hint("run `vambrace audit verify`")
}
