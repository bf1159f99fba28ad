//! `vambrace audit export`: converts records to the format of another system, on standard output or in a file that can be
//! continued. Every line is checked against its hash: an altered record ends the export with an error.

mod stdout;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use vambrace_core::config::AuditExportSettings;
use vambrace_host::{ConfigFiles, ExportCursor, ExportFile, Paths, export_records};
use vambrace_ledger::{ExportFormat, Op};
use vambrace_store::Store;

use crate::args::ExportArgs;
use crate::failure::Failure;
use crate::output::Out;

/// Polling interval while following; a poll reads one row.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn run(words: &ExportArgs, out: Out) -> Result<ExitCode, Failure> {
    // Without the project's configuration: an export covers all projects of the state directory.
    let configured = match (&words.format, &words.output) {
        (Some(_), Some(_)) => AuditExportSettings::default(),
        _ => ConfigFiles::without_project(&Paths::from_environment()?)?.effective()?.audit_export,
    };
    let format = words.format.as_deref().or(configured.format.as_deref()).unwrap_or("jsonl");
    let format = ExportFormat::parse(format).ok_or_else(|| {
        super::unknown("format", format, ExportFormat::ALL.iter().map(|format| format.as_str()))
    })?;
    let output = match &words.output {
        Some(path) => Some(path.clone()).filter(|path| path.as_os_str() != "-"),
        None => configured.output.map(PathBuf::from),
    };
    if words.output.is_none() && output.as_ref().is_some_and(|path| !path.is_absolute()) {
        let message = "`audit.export.output` is not an absolute path";
        return Err(Failure::usage(message, "set an absolute path, or use `--output`"));
    }
    let (host, reader) = super::ledger("audit export").await?;
    let mut cursor = ExportCursor {
        ops: words.op.iter().map(|word| op(word)).collect::<Result<_, _>>()?,
        since: words.since.as_deref().map(super::parse_time).transpose()?,
        until: words.until.as_deref().map(super::parse_time).transpose()?,
        owner: reader.owner().clone(),
        after: words.after.unwrap_or(0),
    };
    let mut target = match &output {
        None => ExportTarget::Stdout,
        Some(path) => ExportTarget::File(ExportFile::open(path, format, &mut cursor, &host).await?),
    };
    let exported = export(host.store().as_ref(), &mut cursor, format, &mut target, words.follow).await?;
    if let ExportTarget::File(file) = &target {
        out.message(format!(
            "exported {exported} records to `{}`, up to record {}",
            file.name(),
            cursor.after
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn op(word: &str) -> Result<Op, Failure> {
    Op::parse(word).ok_or_else(|| super::unknown("op", word, Op::ALL.iter().map(|op| op.as_str())))
}

/// Where the export goes.
enum ExportTarget {
    Stdout,
    File(ExportFile),
}

/// Whether the export still has a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    Reading,
    /// The other end of the pipe was closed.
    Gone,
}

impl ExportTarget {
    fn write(&mut self, bytes: &[u8]) -> Result<ReaderState, Failure> {
        match self {
            Self::Stdout => stdout::write(bytes),
            Self::File(file) => Ok(file.append(bytes).map(|()| ReaderState::Reading)?),
        }
    }

    /// Called when all current records were written.
    fn flush(&mut self, last: u64) -> Result<ReaderState, Failure> {
        match self {
            Self::Stdout => Ok(stdout::reader_state()),
            Self::File(file) => {
                file.sync()?;
                Ok(file.check(last).map(|()| ReaderState::Reading)?)
            }
        }
    }
}

async fn export(
    store: &dyn Store,
    cursor: &mut ExportCursor,
    format: ExportFormat,
    target: &mut ExportTarget,
    follow: bool,
) -> Result<u64, Failure> {
    let mut end = if follow { Some(FollowSignals::new()?) } else { None };
    let mut exported = 0;
    loop {
        let batch = cursor.next(store).await?;
        let (bytes, damaged) = export_records(format, &batch.records);
        exported += batch.records.len() as u64;
        if target.write(&bytes)? == ReaderState::Gone {
            return Ok(exported);
        }
        if let Some(damaged) = damaged {
            target.flush(cursor.after)?;
            return Err(damaged.into());
        }
        if !batch.complete {
            if end.as_mut().is_some_and(FollowSignals::arrived) {
                return Ok(exported);
            }
            continue;
        }
        if target.flush(cursor.after)? == ReaderState::Gone {
            return Ok(exported);
        }
        let Some(end) = &mut end else { return Ok(exported) };
        tokio::select! {
            () = end.next() => return Ok(exported),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Signals that end `--follow` cleanly: between two lines, with the file synced.
struct FollowSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl FollowSignals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals: {error}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Whether a signal has already arrived.
    fn arrived(&mut self) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        self.interrupt.poll_recv(&mut context).is_ready() || self.terminate.poll_recv(&mut context).is_ready()
    }
}
