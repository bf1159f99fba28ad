//! Prints the output of a sandboxed program: redacted, and sanitized for a terminal.
//!
//! **Invariant.** No byte is shown that the redactor has not seen. Where it fails, nothing more is shown and the command
//! fails.

use std::io::{self, IsTerminal as _};
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use serde_json::Value;
use vambrace_core::redacted::RedactError;
use vambrace_redact::{RedactStream as Filter, Redactor};
use vambrace_sandbox::{OutputStream, StopHandle};

use crate::failure::Failure;
use crate::terminal_escape::sanitize;

/// A writable pipe takes at least this many bytes without blocking (PIPE_BUF).
const WRITE_BYTES: usize = 4096;
/// After a stop signal, how long to wait for a reader that does not read.
const STOPPED_WRITE_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Standard output and standard error of the program.
pub(super) struct RedactedOutput {
    streams: [Filter; 2],
    terminals: [bool; 2],
    /// False if the output is part of the JSON report instead.
    shown: bool,
    failed: Option<RedactError>,
    /// Why a stream is closed.
    gone: [Option<io::Error>; 2],
    stop: Option<StopHandle>,
}

impl RedactedOutput {
    pub(super) fn new(redactor: &Redactor, shown: bool, stop: Option<StopHandle>) -> Self {
        Self {
            streams: [redactor.stream(), redactor.stream()],
            terminals: [io::stdout().is_terminal(), io::stderr().is_terminal()],
            shown,
            failed: None,
            gone: [None, None],
            stop,
        }
    }

    /// Prints some output. Empty `bytes` mean that the program pauses: whole lines and prompts are flushed. Returns whether
    /// the stream still has a reader.
    pub(super) fn show(&mut self, stream: OutputStream, bytes: &[u8]) -> ControlFlow<()> {
        self.pass(stream, |filter, clean| {
            if bytes.is_empty() { filter.flush_prompt(clean) } else { filter.push(bytes, clean) }
        });
        let [out, err] = &self.gone;
        match stream {
            OutputStream::Out if out.is_some() => ControlFlow::Break(()),
            OutputStream::Err if err.is_some() => ControlFlow::Break(()),
            OutputStream::Out | OutputStream::Err => ControlFlow::Continue(()),
        }
    }

    /// Flushes both streams; returns a failure if output was lost. The run itself is not affected.
    pub(super) fn finish(mut self) -> Result<Option<Failure>, Failure> {
        for stream in [OutputStream::Out, OutputStream::Err] {
            self.pass(stream, |filter, clean| filter.finish(clean));
        }
        if let Some(error) = self.failed {
            return Err(Failure::failed(format!("output withheld: {error}")));
        }
        // A closed pipe is the reader's choice; any other write error means lost output.
        let lost = |error: &io::Error| error.kind() != io::ErrorKind::BrokenPipe;
        match self.gone {
            // After a stop signal, the reader did not read in time: exit as by that signal.
            [Some(error), _] | [_, Some(error)] if error.kind() == io::ErrorKind::TimedOut => {
                let failure = Failure::failed(format!("standard output: {error}"));
                let signal = self.stop.as_ref().map_or(0, StopHandle::signal);
                Ok(Some(Failure { exit: u8::try_from(128 + signal).unwrap_or(u8::MAX), ..failure }))
            }
            [Some(error), _] if lost(&error) => Ok(Some(
                Failure::failed(format!("standard output: {error}"))
                    .hint("check the free space of its destination"),
            )),
            _ => Ok(None),
        }
    }

    fn pass(
        &mut self,
        stream: OutputStream,
        step: impl Fn(&mut Filter, &mut Vec<u8>) -> Result<(), RedactError>,
    ) {
        if !self.shown || self.failed.is_some() {
            return;
        }
        let ([out, err], [out_is_terminal, err_is_terminal]) = (&mut self.streams, self.terminals);
        let [out_gone, err_gone] = &mut self.gone;
        let (filter, terminal, gone) = match stream {
            OutputStream::Out => (out, out_is_terminal, out_gone),
            OutputStream::Err => (err, err_is_terminal, err_gone),
        };
        if gone.is_some() {
            return;
        }
        let mut clean = Vec::new();
        if let Err(error) = step(filter, &mut clean) {
            self.failed = Some(error);
            return;
        }
        let text;
        let clean = if terminal {
            text = sanitize_bytes(&clean);
            text.as_bytes()
        } else {
            clean.as_slice()
        };
        let written = match stream {
            OutputStream::Out => write(io::stdout().as_fd(), clean, self.stop.as_ref()),
            OutputStream::Err => write(io::stderr().as_fd(), clean, self.stop.as_ref()),
        };
        *gone = written.err();
    }
}

/// Writes everything, or fails some time after a stop signal: a stuck reader must not block the stop.
fn write(to: BorrowedFd<'_>, mut bytes: &[u8], stop: Option<&StopHandle>) -> io::Result<()> {
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

fn wait_for_room(to: BorrowedFd<'_>, stop: Option<&StopHandle>) -> io::Result<()> {
    let mut waits_for = stop;
    loop {
        let mut list = vec![PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        list.extend(waits_for.map(|stop| PollFd::new(stop, PollFlags::IN)));
        let bound = (stop.is_some() && waits_for.is_none()).then_some(&STOPPED_WRITE_TIMEOUT);
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
