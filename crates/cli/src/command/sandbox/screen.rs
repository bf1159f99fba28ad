//! What a confined program says, on its way to the person: through the redactor, and harmless to a terminal.
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
use vambrace_redact::{Redactor, Stream as Filter};
use vambrace_sandbox::{Stop, Stream};

use crate::failure::Failure;
use crate::harmless::plain;

/// What every pipe takes at once that says it takes something.
const PIECE: usize = 4096;
/// Who was asked to stop waits so long for somebody who does not read.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Both streams.
pub(super) struct Screen {
    streams: [Filter; 2],
    terminals: [bool; 2],
    /// Not when everything is told at the end instead.
    shown: bool,
    failed: Option<RedactError>,
    /// Why a stream takes no more.
    gone: [Option<io::Error>; 2],
    stop: Option<Stop>,
}

impl Screen {
    pub(super) fn new(redactor: &Redactor, shown: bool, stop: Option<Stop>) -> Self {
        Self {
            streams: [redactor.stream(), redactor.stream()],
            terminals: [io::stdout().is_terminal(), io::stderr().is_terminal()],
            shown,
            failed: None,
            gone: [None, None],
            stop,
        }
    }

    /// A piece; an empty one says that nothing comes for now, and whole lines and questions need not wait for more. Tells whether
    /// anybody is left who reads.
    pub(super) fn show(&mut self, stream: Stream, bytes: &[u8]) -> ControlFlow<()> {
        self.pass(stream, |filter, clean| {
            if bytes.is_empty() { filter.flush_prompt(clean) } else { filter.push(bytes, clean) }
        });
        let [out, err] = &self.gone;
        match stream {
            Stream::Out if out.is_some() => ControlFlow::Break(()),
            Stream::Err if err.is_some() => ControlFlow::Break(()),
            Stream::Out | Stream::Err => ControlFlow::Continue(()),
        }
    }

    /// Gives what of the output was lost on its way, if any was: the run itself is none the worse for it.
    pub(super) fn finish(mut self) -> Result<Option<Failure>, Failure> {
        for stream in [Stream::Out, Stream::Err] {
            self.pass(stream, |filter, clean| filter.finish(clean));
        }
        if let Some(error) = self.failed {
            return Err(Failure::failed(format!("output withheld: {error}")));
        }
        // Who reads no more wants no more; what could not be written is missing.
        let lost = |error: &io::Error| error.kind() != io::ErrorKind::BrokenPipe;
        match self.gone {
            // It ended for want of a reader, whom nobody waits for any more: as if by the signal itself.
            [Some(error), _] | [_, Some(error)] if error.kind() == io::ErrorKind::TimedOut => {
                let failure = Failure::failed(format!("standard output: {error}"));
                let signal = self.stop.as_ref().map_or(0, Stop::signal);
                Ok(Some(Failure { exit: u8::try_from(128 + signal).unwrap_or(u8::MAX), ..failure }))
            }
            [Some(error), _] if lost(&error) => Ok(Some(
                Failure::failed(format!("standard output: {error}")).hint("send it where there is room"),
            )),
            _ => Ok(None),
        }
    }

    fn pass(&mut self, stream: Stream, step: impl Fn(&mut Filter, &mut Vec<u8>) -> Result<(), RedactError>) {
        if !self.shown || self.failed.is_some() {
            return;
        }
        let ([out, err], [out_is_terminal, err_is_terminal]) = (&mut self.streams, self.terminals);
        let [out_gone, err_gone] = &mut self.gone;
        let (filter, terminal, gone) = match stream {
            Stream::Out => (out, out_is_terminal, out_gone),
            Stream::Err => (err, err_is_terminal, err_gone),
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
            text = harmless(&clean);
            text.as_bytes()
        } else {
            clean.as_slice()
        };
        let written = match stream {
            Stream::Out => write(io::stdout().as_fd(), clean, self.stop.as_ref()),
            Stream::Err => write(io::stderr().as_fd(), clean, self.stop.as_ref()),
        };
        *gone = written.err();
    }
}

/// Everything, or until somebody who wants no more has waited in vain: a reader who is stuck is not to hold up a signal.
fn write(to: BorrowedFd<'_>, mut bytes: &[u8], stop: Option<&Stop>) -> io::Result<()> {
    while !bytes.is_empty() {
        wait_for_room(to, stop)?;
        match rustix::io::write(to, bytes.get(..PIECE).unwrap_or(bytes)) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn wait_for_room(to: BorrowedFd<'_>, stop: Option<&Stop>) -> io::Result<()> {
    let mut waits_for = stop;
    loop {
        let mut list = vec![PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        list.extend(waits_for.map(|stop| PollFd::new(stop, PollFlags::IN)));
        let bound = (stop.is_some() && waits_for.is_none()).then_some(&PATIENCE);
        match rustix::event::poll(&mut list, bound) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads it")),
            Ok(_) if list.first().is_some_and(|to| !to.revents().is_empty()) => return Ok(()),
            Ok(_) => waits_for = None,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A confined program does not drive the terminal.
fn harmless(bytes: &[u8]) -> String {
    plain(&String::from_utf8_lossy(bytes).replace('\r', ""))
}

/// A text without secrets; one that cannot be judged is not shown.
pub(super) fn clean(text: &str, redactor: &Redactor) -> String {
    match redactor.redact_bytes(text.as_bytes()) {
        Ok((clean, _)) => String::from_utf8_lossy(&clean).into_owned(),
        Err(_) => "[withheld: the redactor failed]".to_owned(),
    }
}

/// The same for every text of a value.
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
