//! `vambrace audit export`: records in the form of another system, to standard output or to a file that can be continued.
//! Every line is checked against its hash on the way: an altered record ends the export, loudly.

mod course;
mod file;
mod pipe;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use vambrace_core::config::AuditExport;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_ledger::{Format, Op};
use vambrace_store::{Record, SqliteStore};

use self::course::Course;
use self::file::ExportFile;
use crate::args::ExportWords;
use crate::failure::{Failure, exit};
use crate::found;
use crate::out::Out;

/// How often a follower looks for records. Looking is reading one row.
const POLL: Duration = Duration::from_millis(250);

pub(super) async fn run(words: &ExportWords, out: Out) -> Result<ExitCode, Failure> {
    // Only what stands above the project: an export is about every project of the state folder.
    let configured = match (&words.format, &words.output) {
        (Some(_), Some(_)) => AuditExport::default(),
        _ => found::settled(&found::find_above()?)?.audit_export,
    };
    let format = words.format.as_deref().or(configured.format.as_deref()).unwrap_or("jsonl");
    let format = Format::parse(format)
        .ok_or_else(|| super::unknown("format", format, Format::ALL.iter().map(|format| format.as_str())))?;
    let output = match &words.output {
        Some(path) => Some(path.clone()).filter(|path| path.as_os_str() != "-"),
        None => configured.output.map(PathBuf::from),
    };
    if words.output.is_none() && output.as_ref().is_some_and(|path| !path.is_absolute()) {
        let message = "audit.export.output: it is not an absolute path";
        return Err(Failure::usage(message, "name the file from `/` on, or say `--output`"));
    }
    let store = super::ledger()?;
    let mut course = Course {
        ops: words.op.iter().map(|word| op(word)).collect::<Result<_, _>>()?,
        since: words.since.as_deref().map(super::moment).transpose()?,
        until: words.until.as_deref().map(super::moment).transpose()?,
        after: words.after.unwrap_or(0),
    };
    let mut goal = match &output {
        None => Goal::Pipe,
        Some(path) => Goal::File(ExportFile::open(path, format, &mut course, &store).await?),
    };
    let told = export(&store, &mut course, format, &mut goal, words.follow).await?;
    if let Goal::File(file) = &goal {
        out.say(format!("{told} records exported to `{}`, up to record {}", file.name(), course.after));
    }
    Ok(ExitCode::SUCCESS)
}

fn op(word: &str) -> Result<Op, Failure> {
    Op::parse(word).ok_or_else(|| super::unknown("op", word, Op::ALL.iter().map(|op| op.as_str())))
}

/// Where the export goes.
enum Goal {
    Pipe,
    File(ExportFile),
}

/// Whether somebody still wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Yes.
    Gladly,
    /// The reader has gone.
    NoMore,
}

impl Goal {
    fn take(&mut self, bytes: &[u8]) -> Result<Taken, Failure> {
        match self {
            Self::Pipe => pipe::write(bytes),
            Self::File(file) => file.append(bytes).map(|()| Taken::Gladly),
        }
    }

    /// Called when all that there is was handed over.
    fn rest(&mut self, last: u64) -> Result<Taken, Failure> {
        match self {
            Self::Pipe => Ok(pipe::state()),
            Self::File(file) => {
                file.sync()?;
                file.check(last).map(|()| Taken::Gladly)
            }
        }
    }
}

async fn export(
    store: &SqliteStore,
    course: &mut Course,
    format: Format,
    goal: &mut Goal,
    follow: bool,
) -> Result<u64, Failure> {
    let mut end = if follow { Some(End::new()?) } else { None };
    let mut told = 0;
    loop {
        let piece = course.next(store).await?;
        let (bytes, damaged) = converted(format, &piece.records);
        told += piece.records.len() as u64;
        if goal.take(&bytes)? == Taken::NoMore {
            return Ok(told);
        }
        if let Some(damaged) = damaged {
            goal.rest(course.after)?;
            return Err(damaged);
        }
        if !piece.complete {
            if end.as_mut().is_some_and(End::has_come) {
                return Ok(told);
            }
            continue;
        }
        if goal.rest(course.after)? == Taken::NoMore {
            return Ok(told);
        }
        let Some(end) = &mut end else { return Ok(told) };
        tokio::select! {
            () = end.comes() => return Ok(told),
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// The records as lines, up to the first that is not what was recorded.
fn converted(format: Format, records: &[Record]) -> (Vec<u8>, Option<Failure>) {
    let mut bytes = Vec::with_capacity(records.len() * 1024);
    for record in records {
        if let Err(fault) = format.write(&record.line, &mut bytes) {
            let message = format!("record {} cannot be exported: {fault}", record.seq);
            let error = CallError::new(ErrorCode::Internal, message)
                .suggest("run `vambrace audit verify`; `--after` goes on behind the record");
            return (bytes, Some(Failure { error, exit: exit::FOUND }));
        }
    }
    (bytes, None)
}

/// The signals that end a follower in good order: between two lines, with the file synced.
struct End {
    interrupt: Signal,
    terminate: Signal,
}

impl End {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals: {error}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn comes(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Whether one has come already.
    fn has_come(&mut self) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        self.interrupt.poll_recv(&mut context).is_ready() || self.terminate.poll_recv(&mut context).is_ready()
    }
}
