//! `vambrace audit`: the ledger's newest records, a search in it, its check, checkpoints, proofs, exports, payloads. With
//! `--json` a record is printed as the ledger's own line, byte for byte, so that what is piped on can still be verified.

mod export;
mod payload;
mod proof;
mod told;
mod verify;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::near::nearest;
use vambrace_core::timestamp::Timestamp;
use vambrace_ledger::{Op, Status};
use vambrace_store::{Query, Reader, Record, SqliteStore, StateDir};

pub(crate) use told::{one_line, time};

use crate::args::AuditCommand;
use crate::desk;
use crate::failure::{Failure, exit};
use crate::out::Out;
use crate::places;

/// How many records are fetched at once while following.
const PIECE: usize = 1000;
const POLL: Duration = Duration::from_secs(1);

pub(crate) async fn run(what: AuditCommand, out: &Out) -> Result<ExitCode, Failure> {
    match what {
        AuditCommand::Tail { lines, follow } => tail(lines, follow, *out).await?,
        AuditCommand::Query { op, tool, session, call, status, path, since, violations, limit } => {
            let query = Query {
                op: kind(op.as_deref(), violations)?,
                status: status.as_deref().map(standing).transpose()?,
                since: since.as_deref().map(moment).transpose()?,
                execution_id: call,
                tool,
                session,
                path,
                limit,
                ..Query::default()
            };
            query_ledger(&query, *out)?;
        }
        AuditCommand::Verify { home, since, checkpoint, key, jobs, thorough } => {
            let since = since.as_deref().map(moment).transpose()?;
            let against = verify::Against { since, checkpoint, key, jobs, thorough };
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

/// Opens the ledger to work with it; working with one that is not there must not make it.
pub(crate) fn ledger() -> Result<Arc<SqliteStore>, Failure> {
    there()?;
    desk::open_store()
}

/// Opens the ledger to look at its records, even where it contradicts its checkpoints and nothing else is possible.
fn reader() -> Result<Reader, Failure> {
    Ok(Reader::open(there()?)?)
}

fn there() -> Result<StateDir, Failure> {
    let state = places::state()?;
    let dir = StateDir::existing(&state).ok().filter(|dir| dir.database().try_exists().unwrap_or(true));
    dir.ok_or_else(|| no_ledger(&state))
}

fn no_ledger(place: &std::path::Path) -> Failure {
    let hint = "the first call makes it; VAMBRACE_HOME names another place; `vambrace demo` shows one";
    let error =
        CallError::new(ErrorCode::FileNotFound, format!("there is no ledger in `{}`", place.display()));
    Failure { error: error.suggest(hint), exit: exit::FAILED }
}

async fn tail(lines: usize, follow: bool, out: Out) -> Result<(), Failure> {
    let reader = reader()?;
    let mut records = reader.records(&Query::newest(lines))?;
    records.reverse();
    let last = match records.last() {
        Some(record) => record.seq,
        None => reader.newest()?,
    };
    print(&records, out);
    if last == 0 && !follow {
        out.say("the ledger has no records yet");
    }
    if follow { follow_from(last, &reader, out).await } else { Ok(()) }
}

async fn follow_from(mut last: u64, reader: &Reader, out: Out) -> Result<(), Failure> {
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let more = reader.records(&Query::after(last, PIECE))?;
        print(&more, out);
        last = more.last().map_or(last, |newest| newest.seq);
        if more.len() < PIECE {
            tokio::select! {
                _ = &mut interrupted => return Ok(()),
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }
}

fn query_ledger(query: &Query, out: Out) -> Result<(), Failure> {
    let limit = query.limit;
    let records = reader()?.records(query)?;
    print(&records, out);
    if records.is_empty() && !out.is_json() {
        out.say("no record fits");
    } else if records.len() == limit && !out.is_json() {
        out.say(format!("no more than {limit} are shown, newest first; `--limit` shows more"));
    }
    Ok(())
}

fn print(records: &[Record], out: Out) {
    for record in records {
        if out.is_json() {
            out.line(&record.line);
        } else {
            out.line(told::line(record));
        }
    }
}

fn kind(op: Option<&str>, violations: bool) -> Result<Option<Op>, Failure> {
    let asked = match op {
        Some(word) => {
            Some(Op::parse(word).ok_or_else(|| unknown("op", word, Op::ALL.iter().map(|op| op.as_str())))?)
        }
        None => None,
    };
    match (violations, asked) {
        (true, None | Some(Op::Violation)) => Ok(Some(Op::Violation)),
        (true, Some(op)) => Err(Failure::usage(
            format!("`--violations` and `--op {op}` exclude each other"),
            "leave one of them out",
        )),
        (false, asked) => Ok(asked),
    }
}

fn standing(word: &str) -> Result<Status, Failure> {
    Status::parse(word)
        .ok_or_else(|| unknown("status", word, Status::ALL.iter().map(|status| status.as_str())))
}

fn unknown(option: &str, word: &str, known: impl Iterator<Item = &'static str> + Clone) -> Failure {
    let near =
        nearest(word, known.clone()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let list: Vec<&str> = known.collect();
    Failure::usage(format!("there is no {option} `{word}`{near}"), format!("one of: {}", list.join(", ")))
}

/// A moment: RFC 3339, or a date (its first moment in UTC).
fn moment(text: &str) -> Result<Timestamp, Failure> {
    let stamp = text.parse::<jiff::Timestamp>().or_else(|error| {
        let day = text.parse::<jiff::civil::Date>().map_err(|_| error)?;
        day.to_zoned(jiff::tz::TimeZone::UTC).map(|start| start.timestamp())
    });
    let stamp = stamp.map_err(|_| {
        Failure::usage(format!("`{text}` is no moment"), "write 2026-01-31 or 2026-01-31T12:00:00Z")
    })?;
    Ok(Timestamp::from_millis(stamp.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_or_a_timestamp() {
        for (text, expected) in [
            ("2026-01-31", "2026-01-31T00:00:00.000Z"),
            ("2026-01-31T12:00:00.250Z", "2026-01-31T12:00:00.250Z"),
            ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000Z"),
        ] {
            assert_eq!(moment(text).unwrap().to_string(), expected, "{text}");
        }
        for bad in ["", "yesterday", "2026-13-01", "2026-02-30", "12:00"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_security_stream_is_one_kind_of_record() {
        assert_eq!(kind(None, true).unwrap(), Some(Op::Violation));
        assert_eq!(kind(Some("read_file"), false).unwrap(), Some(Op::ReadFile));
        assert!(kind(Some("read_file"), true).is_err());
        let wrong = kind(Some("read_fil"), false).unwrap_err();
        assert!(wrong.error.message.contains("did you mean `read_file`"), "{}", wrong.error.message);
    }
}
