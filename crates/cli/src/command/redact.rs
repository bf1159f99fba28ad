//! `vambrace redact`: redacts secrets in files or standard input, or reports their locations. Output is flushed when the input
//! pauses. A report never contains the secret itself.

mod report;

use std::fs::File;
use std::io::{ErrorKind, IsTerminal as _, Read, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vambrace_host::{ConfigFiles, HostError, HostErrorKind, Paths, ProjectFiles, SecretStore, invalid_rule};
use vambrace_redact::{RedactStream, Redactor, RuleSet};

use crate::args::ReportFormat;
use crate::failure::{Failure, exit};
use crate::output::Out;
use report::{LineCounter, SecretReport};

/// Size of the read buffer.
const READ_BYTES: usize = 64 * 1024;
/// Pause of the input after which held-back output is flushed.
const IDLE_MS: i64 = 50;
/// A progress bar is shown for files of at least this total size.
const PROGRESS_BAR_BYTES: u64 = 16 * 1024 * 1024;

pub(crate) fn run(
    files: &[PathBuf],
    report: Option<ReportFormat>,
    rules: &[PathBuf],
    out: &Out,
) -> Result<ExitCode, Failure> {
    let form = report.or_else(|| out.is_json().then_some(ReportFormat::Json));
    let redactor = redactor(rules)?;
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    let mut job = FilterJob {
        redactor,
        report: form.map(|_| SecretReport::default()),
        count: 0,
        bar: bar(files),
        unread: Vec::new(),
    };
    for file in files {
        let filtered = if file == Path::new("-") { job.pipe() } else { job.file(file) };
        match filtered {
            Err(FilterError::ReaderGone) => return Ok(ExitCode::from(exit::READER_GONE)),
            Err(FilterError::Failed(failure)) => return Err(failure),
            // An unreadable file does not stop the others.
            Err(FilterError::Unreadable(why)) => {
                let name = file.display().to_string();
                job.bar.suspend(|| out.error("unreadable", &format!("`{name}`: {why}"), ""));
                job.unread.push(name);
            }
            Ok(()) => {}
        }
    }
    job.bar.finish_and_clear();
    if let (Some(form), Some(report)) = (form, &job.report) {
        let document = match form {
            ReportFormat::Json => report.json(&job.unread),
            ReportFormat::Sarif => report.sarif(),
        };
        let text = serde_json::to_string_pretty(&document).unwrap_or_else(|_| document.to_string());
        match write(format!("{text}\n").as_bytes()) {
            Err(FilterError::ReaderGone) => return Ok(ExitCode::from(exit::READER_GONE)),
            Err(FilterError::Failed(failure)) => return Err(failure),
            Err(FilterError::Unreadable(_)) | Ok(()) => {}
        }
    }
    Ok(match (job.unread.is_empty(), job.count) {
        (false, _) => ExitCode::from(exit::BAD_USAGE),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(exit::SECRETS),
    })
}

/// Uses the configuration without trust: the project can add patterns and remove nothing.
fn redactor(rules: &[PathBuf]) -> Result<Redactor, Failure> {
    // A home directory contains the state directory and is not a project; the filter works there too.
    let paths = Paths::from_environment()?;
    let files = match paths.project_outside_state()? {
        Some(project) => ConfigFiles::read(&paths, &ProjectFiles::open(&project)?, false)?,
        None => ConfigFiles::without_project(&paths)?,
    };
    let more = |own: RuleSet| {
        rules.iter().try_fold(own, |own, path| {
            let invalid = |fault| HostError { kind: HostErrorKind::Usage, ..invalid_rule(fault) };
            own.with_file(&text(path)?, path).map_err(invalid)
        })
    };
    Ok(SecretStore::with_rules(&paths, &files.effective()?.secrets, more)?.redactor().clone())
}

#[expect(clippy::disallowed_methods, reason = "the user names the file")]
fn text(path: &Path) -> Result<String, HostError> {
    std::fs::read_to_string(path).map_err(|error| {
        HostError::usage(
            format!("rules `{}`: {error}", path.display()),
            "name a file with rules in gitleaks or betterleaks format",
        )
    })
}

#[expect(clippy::disallowed_methods, reason = "the user names the files")]
fn bar(files: &[PathBuf]) -> ProgressBar {
    let all: u64 =
        files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|facts| facts.len()).sum();
    if all < PROGRESS_BAR_BYTES || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::new(all).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Why the filter stopped.
enum FilterError {
    /// The reader of standard output is gone.
    ReaderGone,
    /// This input cannot be read; others may.
    Unreadable(std::io::Error),
    Failed(Failure),
}

impl From<Failure> for FilterError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

struct FilterJob {
    redactor: Redactor,
    report: Option<SecretReport>,
    count: u64,
    bar: ProgressBar,
    /// Unreadable files.
    unread: Vec<String>,
}

impl FilterJob {
    fn file(&mut self, path: &Path) -> Result<(), FilterError> {
        #[expect(clippy::disallowed_methods, reason = "the user names the file")]
        let opened = File::open(path);
        let name = path.display().to_string();
        let mut file = opened.map_err(FilterError::Unreadable)?;
        self.through(&name, &mut file, || Ok(true))
    }

    fn pipe(&mut self) -> Result<(), FilterError> {
        let stdin = std::io::stdin();
        let ready = || {
            let stdin = std::io::stdin();
            let idle = Timespec { tv_sec: 0, tv_nsec: IDLE_MS * 1_000_000 };
            let mut waiting = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
            loop {
                match poll(&mut waiting, Some(&idle)) {
                    Ok(count) => return Ok(count > 0),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(Failure::failed(format!("standard input: {error}"))),
                }
            }
        };
        self.through("-", &mut Unbuffered(stdin.as_fd()), ready)
    }

    /// Filters one input; `ready` returns whether more input is available now.
    fn through(
        &mut self,
        name: &str,
        input: &mut dyn Read,
        ready: impl Fn() -> Result<bool, Failure>,
    ) -> Result<(), FilterError> {
        let mut stream = self.redactor.stream();
        if self.report.is_some() {
            stream = stream.with_findings();
        }
        let mut lines = LineCounter::new(name);
        let mut piece = vec![0; READ_BYTES];
        let mut clean = Vec::with_capacity(2 * READ_BYTES);
        let failed = |error: vambrace_core::redacted::RedactError| Failure::failed(error.to_string());
        // Text that was read before a read error is still written.
        let mut broken = None;
        loop {
            if !ready()? {
                stream.flush_idle(&mut clean).map_err(failed)?;
                self.give(&mut stream, &mut lines, &mut clean)?;
            }
            let count = match input.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    broken = Some(error);
                    break;
                }
                Ok(count) => count,
            };
            let read = piece.get(..count).unwrap_or_default();
            if read.is_empty() {
                break;
            }
            self.bar.inc(u64::try_from(count).unwrap_or(0));
            lines.passes(read);
            stream.push(read, &mut clean).map_err(failed)?;
            self.give(&mut stream, &mut lines, &mut clean)?;
        }
        stream.finish(&mut clean).map_err(failed)?;
        self.give(&mut stream, &mut lines, &mut clean)?;
        self.count += stream.count();
        broken.map_or(Ok(()), |error| Err(FilterError::Unreadable(error)))
    }

    fn give(
        &mut self,
        stream: &mut RedactStream,
        lines: &mut LineCounter,
        clean: &mut Vec<u8>,
    ) -> Result<(), FilterError> {
        match &mut self.report {
            Some(report) => report.take(lines, stream.take_findings()),
            None => write(clean)?,
        }
        clean.clear();
        Ok(())
    }
}

fn write(bytes: &[u8]) -> Result<(), FilterError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(FilterError::ReaderGone),
        given => Ok(given.map_err(|error| Failure::failed(format!("standard output: {error}")))?),
    }
}

/// Standard input without a buffer, so that poll(2) reports correctly whether input is available.
struct Unbuffered<'a>(std::os::fd::BorrowedFd<'a>);

impl Read for Unbuffered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}
