//! `vambrace audit payload` and `audit forget`: what was too large for a record, printed or deleted for good.

use std::io::IsTerminal as _;

use serde_json::json;
use vambrace_core::clock::Clock as _;
use vambrace_core::digest::{Digest, PREFIX};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_ledger::{Forgotten, Op};
use vambrace_store::{Batch, Order, PayloadRow, Query, Record, SqliteStore, Standing, Store as _};

use super::{ledger, moment, time};
use crate::desk::clean;
use crate::failure::{Failure, exit};
use crate::harmless::plain;
use crate::machine::{self, SystemClock};
use crate::out::{Out, Tone, paint};

/// How many are forgotten in one batch.
const PIECE: usize = 100;
/// How often the log is asked to go; each time takes up to a second.
const TRIES: u32 = 4;

pub(super) async fn print(which: &str, field: Option<&str>, out: Out) -> Result<(), Failure> {
    let store = ledger()?;
    let mut rows = find(which, &store).await?;
    rows.retain(|row| field.is_none_or(|field| row.named.field == field));
    let row = match rows.as_slice() {
        [] => return Err(nothing(which)),
        [row] => row,
        [first, ..] => {
            let hint = format!("`--field {}` names the first of them", first.named.field);
            return Err(Failure::usage(format!("record {} has several payloads", first.seq), hint));
        }
    };
    let Some(content) = store.payload(row)? else { return Err(gone(row, &store).await?) };
    let text = String::from_utf8_lossy(&content);
    if out.is_json() {
        out.value(&json!({
            "seq": row.seq, "field": row.named.field, "commitment": row.named.commitment.to_string(),
            "bytes": row.named.bytes, "kept": row.named.kept, "content": text,
        }));
        return Ok(());
    }
    out.foreign(&text);
    if row.named.kept < row.named.bytes {
        out.say(format!("cut: {} of {} bytes were kept", row.named.kept, row.named.bytes));
    }
    Ok(())
}

pub(super) async fn forget(
    which: &[String],
    before: Option<&str>,
    yes: bool,
    out: Out,
) -> Result<(), Failure> {
    let store = ledger()?;
    let rows = match before {
        Some(before) => {
            let moment = moment(before)?;
            store.payloads_kept()?.into_iter().filter(|row| row.ts < moment).collect()
        }
        None => named(which, &store, out).await?,
    };
    if !rows.is_empty() {
        if !out.is_json() {
            rows.iter().for_each(|row| out.line(told(row)));
        }
        agree(rows.len(), yes, out)?;
    }
    let by = clean(&machine::user())?;
    for piece in rows.chunks(PIECE) {
        let (entries, changes) = piece.iter().map(|row| row.forget(SystemClock.now(), by.clone())).unzip();
        store.commit(Batch::durable(entries, changes)).await?;
    }
    // Also where nothing is left to forget: an earlier attempt may have been kept from it.
    let mut cleared = false;
    for _ in 0..TRIES {
        cleared = cleared || store.clear_log()?;
    }
    if !cleared {
        let message = "what was forgotten is on record and gone from the database, but the log still holds it, because \
                       another program reads an older state";
        return Err(Failure::failed(message).hint("run the same command again when it has ended"));
    }
    if out.is_json() {
        let row = |row: &PayloadRow| json!({"seq": row.seq, "field": row.named.field, "commitment": row.named.commitment.to_string()});
        out.value(&json!({"forgotten": rows.iter().map(row).collect::<Vec<_>>()}));
    } else if rows.is_empty() {
        out.say("there is nothing to forget");
    } else {
        out.line(format!("{}: {}", paint(Tone::Good, "forgotten"), count(rows.len())));
    }
    Ok(())
}

/// The payloads of a list that are still there. One that nobody has forgotten and that is missing all the same is a
/// failure: forgetting must not become an excuse for it.
async fn named(which: &[String], store: &SqliteStore, out: Out) -> Result<Vec<PayloadRow>, Failure> {
    let mut rows: Vec<PayloadRow> = Vec::new();
    for which in which {
        let found = find(which, store).await?;
        if found.is_empty() {
            return Err(nothing(which));
        }
        for row in found {
            match row.standing {
                Standing::Kept if rows.contains(&row) => {}
                Standing::Kept => rows.push(row),
                Standing::Gone => {
                    let why = gone(&row, store).await?;
                    if why.exit == exit::FOUND {
                        return Err(why);
                    }
                    out.say(plain(&why.error.message));
                }
            }
        }
    }
    Ok(rows)
}

/// The payloads of a record, or the one of a commitment.
async fn find(which: &str, store: &SqliteStore) -> Result<Vec<PayloadRow>, Failure> {
    if let Ok(seq) = which.parse() {
        return Ok(store.payloads_of(seq)?);
    }
    let digits = which.strip_prefix(PREFIX).unwrap_or(which);
    let commitment = Digest::from_hex(digits.as_bytes()).ok_or_else(|| {
        let hint = "write the number of a record, or the `commitment` that its `payloads` name";
        Failure::usage(format!("`{which}` is neither a record nor a commitment"), hint)
    })?;
    let kept = store.payloads_kept()?.into_iter().find(|row| row.named.commitment == commitment);
    if let Some(row) = kept {
        return Ok(vec![row]);
    }
    let Some((_, forgotten)) = forgetting(commitment, store).await? else { return Ok(Vec::new()) };
    let mut rows = store.payloads_of(forgotten.seq)?;
    rows.retain(|row| row.named.commitment == commitment);
    Ok(rows)
}

/// The record that says that a payload was forgotten.
async fn forgetting(commitment: Digest, store: &SqliteStore) -> Result<Option<(Record, Forgotten)>, Failure> {
    let query = Query {
        op: Some(Op::PayloadForgotten),
        limit: usize::MAX,
        order: Order::OldestFirst,
        ..Query::default()
    };
    let mut said = store
        .records(query)
        .await?
        .into_iter()
        .filter_map(|record| Forgotten::of_line(&record.line).map(|forgotten| (record, forgotten)));
    Ok(said.find(|(_, forgotten)| forgotten.commitment == commitment))
}

/// Why a payload is not there.
async fn gone(row: &PayloadRow, store: &SqliteStore) -> Result<Failure, Failure> {
    let failure = |message: String, hint: &str, exit| Failure {
        error: CallError::new(ErrorCode::FileNotFound, message).suggest(hint),
        exit,
    };
    let Some((record, _)) = forgetting(row.named.commitment, store).await? else {
        let message = format!("the payload of record {} is missing, and nobody has forgotten it", row.seq);
        return Ok(failure(message, "run `vambrace audit verify`", exit::FOUND));
    };
    let fields = record.fields();
    let word = |key: &str| fields.get(key).and_then(|value| value.as_str()).unwrap_or("somebody");
    let message = format!(
        "the payload of record {} was forgotten by {} on {} (record {})",
        row.seq,
        word("user"),
        time(word("ts")),
        record.seq
    );
    Ok(failure(message, "nothing is left of it but its size", exit::FAILED))
}

fn nothing(which: &str) -> Failure {
    let hint = "records whose arguments were too large name their `payloads`; `vambrace audit query --json` shows them";
    Failure::usage(format!("there is no payload of `{which}`"), hint)
}

fn told(row: &PayloadRow) -> String {
    let commitment = paint(Tone::Faint, row.named.commitment);
    let ts = time(&row.ts.to_string());
    format!("{:>5}  {ts}  {:<12} {:>8} bytes  {commitment}", row.seq, plain(&row.named.field), row.named.kept)
}

fn count(number: usize) -> String {
    if number == 1 { "1 payload".to_owned() } else { format!("{number} payloads") }
}

fn agree(number: usize, yes: bool, out: Out) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if out.is_json() || !std::io::stdin().is_terminal() {
        let hint = "answer at a terminal, or say `--yes`";
        return Err(Failure::usage("nobody is there to answer, so nothing is forgotten", hint));
    }
    if out.is_agreed_to(&format!("Delete {} for good?", count(number)))? {
        return Ok(());
    }
    Err(Failure::denied(ErrorCode::ApprovalRejected, "not forgotten: nothing was changed", ""))
}
