//! `vambrace audit`: newest records, search, verification, checkpoints, proofs, exports, payloads. With `--json` a record is
//! printed as its ledger line, byte for byte, so that it can still be verified.

mod export;
mod payload;
mod proof;
mod render;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::suggest::nearest;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{LedgerReader, LedgerRecord, RecordQuery, SqliteStore, StateDir};

pub(crate) use render::{one_line, time};

use crate::args::AuditCommand;
use crate::failure::{Failure, exit};
use crate::output::Out;
use crate::paths;
use crate::project_context;

/// Records read at once while following.
const BATCH_RECORDS: usize = 1000;
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(what: AuditCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        AuditCommand::Tail { lines, follow } => tail(lines, follow, *out).await?,
        AuditCommand::Query { op, tool, session, call, status, path, since, violations, limit } => {
            let query = RecordQuery {
                op: parse_op(op.as_deref(), violations)?,
                status: status.as_deref().map(parse_status).transpose()?,
                since: since.as_deref().map(parse_time).transpose()?,
                execution_id: call,
                tool,
                session,
                path,
                limit,
                ..RecordQuery::default()
            };
            query_ledger(&query, *out)?;
        }
        AuditCommand::Verify { home, since, checkpoint, key, jobs, thorough } => {
            let since = since.as_deref().map(parse_time).transpose()?;
            let against = verify::VerifyArgs { since, checkpoint, key, jobs, thorough };
            return verify::run(home.as_deref(), against, *out).await;
        }
        AuditCommand::Checkpoint => proof::checkpoint(*out).await?,
        AuditCommand::Prove { record, checkpoint } => {
            proof::prove(&record, checkpoint.as_deref(), *out).await?
        }
        AuditCommand::Consistency { old, new } => proof::consistency(&old, new.as_deref(), *out).await?,
        AuditCommand::RotateKey => proof::rotate(*out).await?,
        AuditCommand::Export(words) => return export::run(&words, *out).await,
        AuditCommand::Payload { which, field } => payload::print(&which, field.as_deref(), *out).await?,
        AuditCommand::Forget { which, before, yes } => {
            payload::forget(&which, before.as_deref(), yes, *out).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens an existing ledger; does not create one.
pub(crate) fn ledger() -> Result<Arc<SqliteStore>, Failure> {
    state_dir()?;
    project_context::open_store()
}

/// Opens the ledger read-only. This works even if it contradicts its checkpoints and cannot be opened otherwise.
fn reader() -> Result<LedgerReader, Failure> {
    Ok(LedgerReader::open(state_dir()?)?)
}

fn state_dir() -> Result<StateDir, Failure> {
    let state = paths::state()?;
    let dir = StateDir::existing(&state).ok().filter(|dir| dir.database().try_exists().unwrap_or(true));
    dir.ok_or_else(|| no_ledger(&state))
}

fn no_ledger(place: &std::path::Path) -> Failure {
    let hint = "the first call creates it; VAMBRACE_HOME selects another state directory; `vambrace demo` shows an example";
    let error =
        CallError::new(ErrorCode::FileNotFound, format!("there is no ledger in `{}`", place.display()));
    Failure { error: error.suggest(hint), exit: exit::FAILED }
}

async fn tail(lines: usize, follow: bool, out: Out) -> Result<(), Failure> {
    let reader = reader()?;
    let mut records = reader.records(&RecordQuery::newest(lines))?;
    records.reverse();
    let last = match records.last() {
        Some(record) => record.seq,
        None => reader.newest()?,
    };
    print(&records, out);
    if last == 0 && !follow {
        out.message("the ledger has no records yet");
    }
    if follow { follow_from(last, &reader, out).await } else { Ok(()) }
}

async fn follow_from(mut last: u64, reader: &LedgerReader, out: Out) -> Result<(), Failure> {
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let more = reader.records(&RecordQuery::after(last, BATCH_RECORDS))?;
        print(&more, out);
        last = more.last().map_or(last, |newest| newest.seq);
        if more.len() < BATCH_RECORDS {
            tokio::select! {
                _ = &mut interrupted => return Ok(()),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }
}

fn query_ledger(query: &RecordQuery, out: Out) -> Result<(), Failure> {
    let limit = query.limit;
    let records = reader()?.records(query)?;
    print(&records, out);
    if records.is_empty() && !out.is_json() {
        out.message("no matching records");
    } else if records.len() == limit && !out.is_json() {
        out.message(format!("only the newest {limit} are shown; `--limit` shows more"));
    }
    Ok(())
}

fn print(records: &[LedgerRecord], out: Out) {
    for record in records {
        if out.is_json() {
            out.line(&record.line);
        } else {
            out.line(render::line(record));
        }
    }
}

fn parse_op(op: Option<&str>, violations: bool) -> Result<Option<Op>, Failure> {
    let asked = match op {
        Some(word) => {
            Some(Op::parse(word).ok_or_else(|| unknown("op", word, Op::ALL.iter().map(|op| op.as_str())))?)
        }
        None => None,
    };
    match (violations, asked) {
        (true, None | Some(Op::Violation)) => Ok(Some(Op::Violation)),
        (true, Some(op)) => Err(Failure::usage(
            format!("`--violations` and `--op {op}` cannot be combined"),
            "remove one of them",
        )),
        (false, asked) => Ok(asked),
    }
}

fn parse_status(word: &str) -> Result<RecordStatus, Failure> {
    RecordStatus::parse(word)
        .ok_or_else(|| unknown("status", word, RecordStatus::ALL.iter().map(|status| status.as_str())))
}

fn unknown(option: &str, word: &str, known: impl Iterator<Item = &'static str> + Clone) -> Failure {
    let near =
        nearest(word, known.clone()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let list: Vec<&str> = known.collect();
    Failure::usage(format!("there is no {option} `{word}`{near}"), format!("one of: {}", list.join(", ")))
}

/// Parses an RFC 3339 time, or a date (midnight UTC).
fn parse_time(text: &str) -> Result<Timestamp, Failure> {
    let stamp = text.parse::<jiff::Timestamp>().or_else(|error| {
        let day = text.parse::<jiff::civil::Date>().map_err(|_| error)?;
        day.to_zoned(jiff::tz::TimeZone::UTC).map(|start| start.timestamp())
    });
    let stamp = stamp.map_err(|_| {
        Failure::usage(format!("`{text}` is not a date or time"), "write 2026-01-31 or 2026-01-31T12:00:00Z")
    })?;
    Ok(Timestamp::from_millis(stamp.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_date_or_a_timestamp() {
        for (text, expected) in [
            ("2026-01-31", "2026-01-31T00:00:00.000Z"),
            ("2026-01-31T12:00:00.250Z", "2026-01-31T12:00:00.250Z"),
            ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000Z"),
        ] {
            assert_eq!(parse_time(text).unwrap().to_string(), expected, "{text}");
        }
        for bad in ["", "yesterday", "2026-13-01", "2026-02-30", "12:00"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn violations_option_selects_one_operation() {
        assert_eq!(parse_op(None, true).unwrap(), Some(Op::Violation));
        assert_eq!(parse_op(Some("read_file"), false).unwrap(), Some(Op::ReadFile));
        assert!(parse_op(Some("read_file"), true).is_err());
        let wrong = parse_op(Some("read_fil"), false).unwrap_err();
        assert!(wrong.error.message.contains("did you mean `read_file`"), "{}", wrong.error.message);
    }
}
