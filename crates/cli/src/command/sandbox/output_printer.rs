//! Prints the redacted output of a sandboxed program, sanitized for a terminal.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use serde_json::Value;
use vambrace_core::redacted::RedactError;
use vambrace_core::terminal_escape::sanitize;
use vambrace_redact::Redactor;
use vambrace_sandbox::StopHandle;
use vambrace_tools::{CallProgress, CallStream, OutputSink, ProgressSink};

use crate::failure::Failure;
use crate::output::{Out, Tone, paint};

/// A writable pipe takes at least this many bytes without blocking (PIPE_BUF).
const WRITE_BYTES: usize = 4096;
/// After a stop signal, how long to wait for a reader that does not read.
const STOPPED_WRITE_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The terminal as the listener of a running call.
pub(super) struct TerminalOutput {
    printer: Mutex<OutputPrinter>,
    out: Out,
}

impl TerminalOutput {
    pub(super) fn new(stop: StopHandle, out: Out) -> Self {
        Self { printer: Mutex::new(OutputPrinter::new(stop)), out }
    }

    /// The failure, if output was lost. The run itself is not affected.
    pub(super) fn lost_output(&self) -> Option<Failure> {
        self.printer.lock().unwrap_or_else(PoisonError::into_inner).lost_output()
    }
}

impl OutputSink for TerminalOutput {
    fn write(&self, stream: CallStream, bytes: &[u8]) -> bool {
        self.printer.lock().unwrap_or_else(PoisonError::into_inner).print(stream, bytes)
    }
}

impl ProgressSink for TerminalOutput {
    fn report(&self, progress: CallProgress) {
        if let Some(message) = progress.message {
            self.out.message(format!("{} {}", paint(Tone::Care, "warning:"), sanitize(&message)));
        }
    }
}

/// Standard output and standard error of this process.
struct OutputPrinter {
    out_is_terminal: bool,
    err_is_terminal: bool,
    /// Why a stream is closed.
    out_error: Option<io::Error>,
    err_error: Option<io::Error>,
    stop: StopHandle,
}

impl OutputPrinter {
    fn new(stop: StopHandle) -> Self {
        Self {
            out_is_terminal: io::stdout().is_terminal(),
            err_is_terminal: io::stderr().is_terminal(),
            out_error: None,
            err_error: None,
            stop,
        }
    }

    /// Prints some output; returns whether the stream still has a reader.
    fn print(&mut self, stream: CallStream, clean: &[u8]) -> bool {
        let (is_terminal, error) = match stream {
            CallStream::Out => (self.out_is_terminal, &mut self.out_error),
            CallStream::Err => (self.err_is_terminal, &mut self.err_error),
        };
        let text;
        let clean = if is_terminal {
            text = sanitize_bytes(clean);
            text.as_bytes()
        } else {
            clean
        };
        let written = match stream {
            CallStream::Out => write(io::stdout().as_fd(), clean, &self.stop),
            CallStream::Err => write(io::stderr().as_fd(), clean, &self.stop),
        };
        *error = written.err();
        error.is_none()
    }

    fn lost_output(&self) -> Option<Failure> {
        // A closed pipe is the reader's choice; any other write error means lost output.
        let lost = |error: &io::Error| error.kind() != io::ErrorKind::BrokenPipe;
        match (&self.out_error, &self.err_error) {
            // After a stop signal, the reader did not read in time: exit as by that signal.
            (Some(error), _) | (_, Some(error)) if error.kind() == io::ErrorKind::TimedOut => {
                let failure = Failure::failed(format!("standard output: {error}"));
                Some(Failure { exit: u8::try_from(128 + self.stop.signal()).unwrap_or(u8::MAX), ..failure })
            }
            (Some(error), _) if lost(error) => Some(
                Failure::failed(format!("standard output: {error}"))
                    .hint("check the free space of its destination"),
            ),
            _ => None,
        }
    }
}

/// Writes everything, or fails some time after a stop signal: a stuck reader must not block the stop.
fn write(to: BorrowedFd<'_>, mut bytes: &[u8], stop: &StopHandle) -> io::Result<()> {
    while !bytes.is_empty() {
        wait_for_room(to, stop)?;
        match rustix::io::write(to, bytes.get(..WRITE_BYTES).unwrap_or(bytes)) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn wait_for_room(to: BorrowedFd<'_>, stop: &StopHandle) -> io::Result<()> {
    let mut waits_for = Some(stop);
    loop {
        let mut list = vec![PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        list.extend(waits_for.map(|stop| PollFd::new(stop, PollFlags::IN)));
        let bound = waits_for.is_none().then_some(&STOPPED_WRITE_TIMEOUT);
        match rustix::event::poll(&mut list, bound) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the reader does not read")),
            Ok(_) if list.first().is_some_and(|to| !to.revents().is_empty()) => return Ok(()),
            Ok(_) => waits_for = None,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A sandboxed program cannot send control sequences to the terminal.
fn sanitize_bytes(bytes: &[u8]) -> String {
    sanitize(&String::from_utf8_lossy(bytes).replace('\r', ""))
}

/// Redacts a text; if the redactor fails, the text is withheld.
pub(super) fn clean(text: &str, redactor: &Redactor) -> String {
    match redactor.redact_bytes(text.as_bytes()) {
        Ok((clean, _)) => String::from_utf8_lossy(&clean).into_owned(),
        Err(_) => "[withheld: the redactor failed]".to_owned(),
    }
}

/// Redacts every string of a JSON value.
pub(super) fn clean_value(mut value: Value, redactor: &Redactor) -> Result<Value, Failure> {
    scrub(&mut value, redactor).map_err(|error| Failure::failed(format!("output withheld: {error}")))?;
    Ok(value)
}

fn scrub(value: &mut Value, redactor: &Redactor) -> Result<(), RedactError> {
    match value {
        Value::String(text) => {
            let (clean, count) = redactor.redact_bytes(text.as_bytes())?;
            if count > 0 {
                *text = String::from_utf8_lossy(&clean).into_owned();
            }
            Ok(())
        }
        Value::Array(list) => list.iter_mut().try_for_each(|one| scrub(one, redactor)),
        Value::Object(map) => map.values_mut().try_for_each(|one| scrub(one, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}
