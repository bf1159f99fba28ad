//! `vambrace audit payload` and `audit forget`: prints or deletes arguments that were too large for their record.

use std::io::IsTerminal as _;

use serde_json::json;
use vambrace_core::clock::Clock as _;
use vambrace_core::digest::{Digest, PREFIX};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::terminal_escape::sanitize;
use vambrace_host::Reader;
use vambrace_host::system::SystemClock;
use vambrace_ledger::{ForgottenPayload, Op};
use vambrace_store::{
    Batch, LedgerRecord, PayloadRow, PayloadState, RecordId, RecordOrder, RecordQuery, Store,
};

use super::{ledger, parse_time, time};
use crate::failure::{Failure, exit};
use crate::output::{Out, Tone, paint};

/// Payloads deleted in one batch.
const FORGET_BATCH: usize = 100;
/// Attempts to truncate the database's write-ahead log; each takes up to a second.
const CLEAR_LOG_ATTEMPTS: u32 = 4;

pub(super) async fn print(which: &str, field: Option<&str>, out: Out) -> Result<(), Failure> {
    let (host, reader) = ledger("audit payload").await?;
    let store = host.store().as_ref();
    let mut rows = find(which, store, &reader).await?;
    rows.retain(|row| field.is_none_or(|field| row.named.field == field));
    let row = match rows.as_slice() {
        [] => return Err(nothing(which)),
        [row] => row,
        [first, ..] => {
            let hint = format!("`--field {}` selects the first one", first.named.field);
            return Err(Failure::usage(format!("record {} has several payloads", first.record.seq), hint));
        }
    };
    let Some(content) = store.admin().payload(row)? else { return Err(gone(row, store).await?) };
    let text = String::from_utf8_lossy(&content);
    if out.is_json() {
        out.value(&json!({
            "seq": row.record.seq, "field": row.named.field, "commitment": row.named.commitment.to_string(),
            "bytes": row.named.bytes, "kept": row.named.kept, "content": text,
        }));
        return Ok(());
    }
    out.untrusted(&text);
    if row.named.kept < row.named.bytes {
        out.message(format!("truncated: {} of {} bytes were stored", row.named.kept, row.named.bytes));
    }
    Ok(())
}

pub(super) async fn forget(
    which: &[String],
    before: Option<&str>,
    yes: bool,
    out: Out,
) -> Result<(), Failure> {
    let (host, reader) = ledger("audit forget").await?;
    // An administrator reads the payloads of others, and deletes none.
    let reader = reader.deciding()?;
    let store = host.store().as_ref();
    let rows = match before {
        Some(before) => {
            let before = parse_time(before)?;
            let stored = store.admin().stored_payloads()?;
            visible(stored.into_iter().filter(|row| row.ts < before).collect(), store, &reader).await?
        }
        None => named(which, store, &reader, out).await?,
    };
    if !rows.is_empty() {
        if !out.is_json() {
            rows.iter().for_each(|row| out.line(describe(row)));
        }
        confirm(rows.len(), yes, out)?;
    }
    let by = host.redact(reader.user())?;
    for piece in rows.chunks(FORGET_BATCH) {
        let (entries, changes) = piece.iter().map(|row| row.forget(SystemClock.now(), by.clone())).unzip();
        store.commit(Batch::durable(entries, changes)).await?;
    }
    // Even if there is nothing to delete: an earlier attempt may have failed here.
    let mut cleared = false;
    for _ in 0..CLEAR_LOG_ATTEMPTS {
        cleared = cleared || store.admin().truncate_log()?;
    }
    if !cleared {
        let message = "the payloads are deleted from the database, and this is recorded, but its write-ahead log still \
                       contains them because another process reads an older snapshot";
        return Err(Failure::failed(message).hint("run the same command again when that process has ended"));
    }
    if out.is_json() {
        let row = |row: &PayloadRow| json!({"seq": row.record.seq, "field": row.named.field, "commitment": row.named.commitment.to_string()});
        out.value(&json!({"forgotten": rows.iter().map(row).collect::<Vec<_>>()}));
    } else if rows.is_empty() {
        out.message("there is nothing to delete");
    } else {
        out.line(format!("{}: {}", paint(Tone::Good, "deleted"), count(rows.len())));
    }
    Ok(())
}

/// The stored payloads of a list. A payload that is missing without a record of its deletion is an error: `forget` must not
/// hide it.
async fn named(
    which: &[String],
    store: &dyn Store,
    reader: &Reader,
    out: Out,
) -> Result<Vec<PayloadRow>, Failure> {
    let mut rows: Vec<PayloadRow> = Vec::new();
    for which in which {
        let found = find(which, store, reader).await?;
        if found.is_empty() {
            return Err(nothing(which));
        }
        for row in found {
            match row.state {
                PayloadState::Present if rows.contains(&row) => {}
                PayloadState::Present => rows.push(row),
                PayloadState::Absent => {
                    let why = gone(&row, store).await?;
                    if why.exit == exit::FOUND {
                        return Err(why);
                    }
                    out.message(sanitize(&why.error.message));
                }
            }
        }
    }
    Ok(rows)
}

/// The payloads that the reader may see.
async fn visible(
    rows: Vec<PayloadRow>,
    store: &dyn Store,
    reader: &Reader,
) -> Result<Vec<PayloadRow>, Failure> {
    let mut seen = Vec::with_capacity(rows.len());
    for row in rows {
        if reader.sees_record(store, &row.record).await? {
            seen.push(row);
        }
    }
    Ok(seen)
}

/// The payloads of a record, or the payload with a commitment.
async fn find(which: &str, store: &dyn Store, reader: &Reader) -> Result<Vec<PayloadRow>, Failure> {
    visible(find_any(which, store).await?, store, reader).await
}

async fn find_any(which: &str, store: &dyn Store) -> Result<Vec<PayloadRow>, Failure> {
    if let Ok(seq) = which.parse() {
        return Ok(store.admin().payloads_of(&RecordId::new(store.writer(), seq))?);
    }
    let digits = which.strip_prefix(PREFIX).unwrap_or(which);
    let commitment = Digest::from_hex(digits.as_bytes()).ok_or_else(|| {
        let hint = "use the number of a record, or a `commitment` from its `payloads`";
        Failure::usage(format!("`{which}` is neither a record number nor a commitment"), hint)
    })?;
    let kept = store.admin().stored_payloads()?.into_iter().find(|row| row.named.commitment == commitment);
    if let Some(row) = kept {
        return Ok(vec![row]);
    }
    let Some((_, forgotten)) = forgetting(commitment, store).await? else { return Ok(Vec::new()) };
    let mut rows = store.admin().payloads_of(&RecordId::new(store.writer(), forgotten.seq))?;
    rows.retain(|row| row.named.commitment == commitment);
    Ok(rows)
}

/// The record of a payload's deletion.
async fn forgetting(
    commitment: Digest,
    store: &dyn Store,
) -> Result<Option<(LedgerRecord, ForgottenPayload)>, Failure> {
    let query = RecordQuery {
        op: Some(Op::PayloadForgotten),
        limit: usize::MAX,
        order: RecordOrder::OldestFirst,
        ..RecordQuery::default()
    };
    let mut said =
        store.records(query).await?.into_iter().filter_map(|record| {
            ForgottenPayload::of_line(&record.line).map(|forgotten| (record, forgotten))
        });
    Ok(said.find(|(_, forgotten)| forgotten.commitment == commitment))
}

/// Why a payload is missing.
async fn gone(row: &PayloadRow, store: &dyn Store) -> Result<Failure, Failure> {
    let failure = |message: String, hint: &str, exit| Failure {
        error: CallError::new(ErrorCode::FileNotFound, message).suggest(hint),
        exit,
    };
    let Some((record, _)) = forgetting(row.named.commitment, store).await? else {
        let message = format!(
            "the payload of record {} is missing, and no record says that it was deleted",
            row.record.seq
        );
        return Ok(failure(message, "run `vambrace audit verify`", exit::FOUND));
    };
    let fields = record.fields();
    let word = |key: &str| fields.get(key).and_then(|value| value.as_str()).unwrap_or("an unknown user");
    let message = format!(
        "the payload of record {} was deleted by {} on {} (record {})",
        row.record.seq,
        word("user"),
        time(word("ts")),
        record.id.seq
    );
    Ok(failure(message, "only its size is still known", exit::FAILED))
}

fn nothing(which: &str) -> Failure {
    let hint = "records with large arguments have a field `payloads`; `vambrace audit query --json` shows it";
    Failure::usage(format!("there is no payload for `{which}`"), hint)
}

fn describe(row: &PayloadRow) -> String {
    let commitment = paint(Tone::Faint, row.named.commitment);
    let ts = time(&row.ts.to_string());
    format!(
        "{:>5}  {ts}  {:<12} {:>8} bytes  {commitment}",
        row.record.seq,
        sanitize(&row.named.field),
        row.named.kept
    )
}

fn count(number: usize) -> String {
    if number == 1 { "1 payload".to_owned() } else { format!("{number} payloads") }
}

fn confirm(number: usize, yes: bool, out: Out) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if out.is_json() || !std::io::stdin().is_terminal() {
        let hint = "run this at a terminal, or add `--yes`";
        return Err(Failure::usage("confirmation is required; nothing was deleted", hint));
    }
    if out.confirm(&format!("Delete {} permanently?", count(number)))? {
        return Ok(());
    }
    Err(Failure::denied(ErrorCode::ApprovalRejected, "not confirmed: nothing was deleted", ""))
}
