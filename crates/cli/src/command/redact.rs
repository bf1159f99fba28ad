//! `vambrace redact`: a filter that replaces secrets, or a report of where they are. Lines that come in through a pipe go
//! out as soon as nothing more comes for a moment. The text of a secret is never told.

mod report;

use std::fs::File;
use std::io::{ErrorKind, IsTerminal as _, Read, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vambrace_redact::{Redactor, Rules, Stream};

use crate::args::ReportForm;
use crate::failure::{Failure, exit};
use crate::out::Out;
use crate::project::ProjectFiles;
use crate::vault::{Vault, unusable};
use crate::{found, places};
use report::{Report, Spot};

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;
/// How long nothing must come before what is held back goes out.
const IDLE_MS: i64 = 50;
/// Files that together are larger get a progress bar.
const LARGE: u64 = 16 * 1024 * 1024;

pub(crate) fn run(
    files: &[PathBuf],
    report: Option<ReportForm>,
    rules: &[PathBuf],
    out: &Out,
) -> Result<ExitCode, Failure> {
    let form = report.or_else(|| out.is_json().then_some(ReportForm::Json));
    let redactor = redactor(rules)?;
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    let mut job = Job {
        redactor,
        report: form.map(|_| Report::default()),
        count: 0,
        bar: bar(files),
        unread: Vec::new(),
    };
    for file in files {
        let told = if file == Path::new("-") { job.pipe() } else { job.file(file) };
        match told {
            Err(Stop::Reader) => return Ok(ExitCode::from(exit::READER_GONE)),
            Err(Stop::Failed(failure)) => return Err(failure),
            // One that cannot be read keeps nothing back of the others.
            Err(Stop::Unread(why)) => {
                let name = file.display().to_string();
                job.bar.suspend(|| out.error("unreadable", &format!("`{name}`: {why}"), ""));
                job.unread.push(name);
            }
            Ok(()) => {}
        }
    }
    job.bar.finish_and_clear();
    if let (Some(form), Some(report)) = (form, &job.report) {
        let told = match form {
            ReportForm::Json => report.json(&job.unread),
            ReportForm::Sarif => report.sarif(),
        };
        let text = serde_json::to_string_pretty(&told).unwrap_or_else(|_| told.to_string());
        match write(format!("{text}\n").as_bytes()) {
            Err(Stop::Reader) => return Ok(ExitCode::from(exit::READER_GONE)),
            Err(Stop::Failed(failure)) => return Err(failure),
            Err(Stop::Unread(_)) | Ok(()) => {}
        }
    }
    Ok(match (job.unread.is_empty(), job.count) {
        (false, _) => ExitCode::from(exit::BAD_USAGE),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::from(exit::SECRETS),
    })
}

/// With the configuration as it is: a project that is not trusted can add patterns and take nothing away.
fn redactor(rules: &[PathBuf]) -> Result<Redactor, Failure> {
    // A home folder holds the state folder and is no project; the filter works there all the same.
    let sources = match places::project_if_apart()? {
        Some(project) => found::find(&ProjectFiles::open(&project)?, false)?,
        None => found::find_above()?,
    };
    let settings = found::settled(&sources)?;
    let more = |own: Rules| {
        rules.iter().try_fold(own, |own, path| {
            own.with_file(&text(path)?, path).map_err(|fault| {
                let mut failure = unusable(fault);
                failure.exit = exit::BAD_USAGE;
                failure
            })
        })
    };
    Ok(Vault::with_rules(&settings.secrets, more)?.redactor().clone())
}

#[expect(clippy::disallowed_methods, reason = "a file that the person at the terminal names")]
fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(
            format!("rules `{}`: {error}", path.display()),
            "name a file of gitleaks or betterleaks rules",
        )
    })
}

#[expect(clippy::disallowed_methods, reason = "files that the person at the terminal names")]
fn bar(files: &[PathBuf]) -> ProgressBar {
    let all: u64 =
        files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|facts| facts.len()).sum();
    if all < LARGE || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::new(all).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Why reading ends early.
enum Stop {
    /// Whoever reads our output has gone.
    Reader,
    /// This input cannot be read; others may be.
    Unread(std::io::Error),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

struct Job {
    redactor: Redactor,
    report: Option<Report>,
    count: u64,
    bar: ProgressBar,
    /// Files that could not be read.
    unread: Vec<String>,
}

impl Job {
    fn file(&mut self, path: &Path) -> Result<(), Stop> {
        #[expect(clippy::disallowed_methods, reason = "a file that the person at the terminal names")]
        let opened = File::open(path);
        let name = path.display().to_string();
        let mut file = opened.map_err(Stop::Unread)?;
        self.through(&name, &mut file, || Ok(true))
    }

    fn pipe(&mut self) -> Result<(), Stop> {
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

    /// Everything of one input; `ready` tells whether more is there already.
    fn through(
        &mut self,
        name: &str,
        input: &mut dyn Read,
        ready: impl Fn() -> Result<bool, Failure>,
    ) -> Result<(), Stop> {
        let mut stream = self.redactor.stream();
        if self.report.is_some() {
            stream = stream.with_findings();
        }
        let mut spot = Spot::new(name);
        let mut piece = vec![0; PIECE];
        let mut clean = Vec::with_capacity(2 * PIECE);
        let failed = |error: vambrace_core::redacted::RedactError| Failure::failed(error.to_string());
        // What was read before an input fails is given out like all the rest.
        let mut broken = None;
        loop {
            if !ready()? {
                stream.flush_idle(&mut clean).map_err(failed)?;
                self.give(&mut stream, &mut spot, &mut clean)?;
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
            spot.passes(read);
            stream.push(read, &mut clean).map_err(failed)?;
            self.give(&mut stream, &mut spot, &mut clean)?;
        }
        stream.finish(&mut clean).map_err(failed)?;
        self.give(&mut stream, &mut spot, &mut clean)?;
        self.count += stream.count();
        broken.map_or(Ok(()), |error| Err(Stop::Unread(error)))
    }

    fn give(&mut self, stream: &mut Stream, spot: &mut Spot, clean: &mut Vec<u8>) -> Result<(), Stop> {
        match &mut self.report {
            Some(report) => report.take(spot, stream.take_findings()),
            None => write(clean)?,
        }
        clean.clear();
        Ok(())
    }
}

fn write(bytes: &[u8]) -> Result<(), Stop> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Stop::Reader),
        given => Ok(given.map_err(|error| Failure::failed(format!("standard output: {error}")))?),
    }
}

/// Standard input without a buffer of its own, so that waiting for it tells the truth.
struct Unbuffered<'a>(std::os::fd::BorrowedFd<'a>);

impl Read for Unbuffered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}
