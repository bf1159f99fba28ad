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

use vambrace_core::suggest::nearest;
use vambrace_core::timestamp::Timestamp;
use vambrace_host::{Host, Paths, Reader, ledger_reader};
use vambrace_ledger::{Op, RecordStatus};
use vambrace_store::{LedgerReader, LedgerRecord, OwnerFilter, RecordId, RecordQuery};

pub(crate) use render::time;

use crate::args::AuditCommand;
use crate::failure::Failure;
use crate::output::Out;

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
            query_ledger(query, *out).await?;
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

/// Opens an existing ledger for a command that reads it; does not create one.
pub(crate) async fn ledger(what: &str) -> Result<(Arc<Host>, Reader), Failure> {
    let host = Host::open_existing(Paths::from_environment()?)?;
    let reader = Reader::from_environment(what, || Ok(Arc::clone(&host))).await?;
    Ok((host, reader))
}

/// Opens the ledger read-only, even if it contradicts its checkpoints.
async fn read_only(what: &str) -> Result<(LedgerReader, Reader), Failure> {
    let paths = Paths::from_environment()?;
    let reader = Reader::from_environment(what, || Host::open_existing(paths.clone())).await?;
    Ok((ledger_reader(&paths)?, reader))
}

async fn tail(lines: usize, follow: bool, out: Out) -> Result<(), Failure> {
    let (ledger, reader) = read_only("audit tail").await?;
    let owner = reader.owner();
    let mut records = ledger.records(&RecordQuery { owner: owner.clone(), ..RecordQuery::newest(lines) })?;
    records.reverse();
    let last = match records.last() {
        Some(record) => record.id.clone(),
        None => ledger.newest()?,
    };
    print(&records, out);
    if last.seq == 0 && !follow {
        out.message("the ledger has no records yet");
    }
    if follow { follow_from(last, &ledger, owner, out).await } else { Ok(()) }
}

async fn follow_from(
    mut last: RecordId,
    ledger: &LedgerReader,
    owner: &OwnerFilter,
    out: Out,
) -> Result<(), Failure> {
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let after = RecordQuery::after(last.clone(), BATCH_RECORDS);
        let more = ledger.records(&RecordQuery { owner: owner.clone(), ..after })?;
        print(&more, out);
        last = more.last().map_or(last, |newest| newest.id.clone());
        if more.len() < BATCH_RECORDS {
            tokio::select! {
                _ = &mut interrupted => return Ok(()),
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }
}

async fn query_ledger(query: RecordQuery, out: Out) -> Result<(), Failure> {
    let limit = query.limit;
    let (ledger, reader) = read_only("audit query").await?;
    let records = ledger.records(&RecordQuery { owner: reader.owner().clone(), ..query })?;
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
