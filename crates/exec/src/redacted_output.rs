//! Redacts the output of a program on its way to the caller.
//!
//! **Invariant.** No byte is passed on that the redactor has not seen. Where it fails, nothing more is passed on and the run
//! ends in an error.

use std::ops::ControlFlow;

use vambrace_core::redacted::RedactError;
use vambrace_redact::{RedactStream, Redactor};
use vambrace_sandbox::OutputStream;

/// Receives redacted output as it arrives; `Break` closes that stream, and the program gets SIGPIPE.
pub type RedactedSink<'a> = dyn FnMut(OutputStream, &[u8]) -> ControlFlow<()> + 'a;

/// Standard output and standard error of a program.
pub(crate) struct RedactedOutput<'s, 'a> {
    out: OneStream,
    err: OneStream,
    /// `None` if the caller reads the output only at the end.
    sink: Option<&'s mut RedactedSink<'a>>,
    failed: Option<RedactError>,
}

struct OneStream {
    filter: RedactStream,
    closed: bool,
}

impl<'s, 'a> RedactedOutput<'s, 'a> {
    pub(crate) fn new(redactor: &Redactor, sink: Option<&'s mut RedactedSink<'a>>) -> Self {
        let stream = || OneStream { filter: redactor.stream(), closed: false };
        Self { out: stream(), err: stream(), sink, failed: None }
    }

    /// Passes some output on. Empty `bytes` mean that the program pauses: whole lines and prompts are flushed. Returns
    /// whether the stream still has a reader.
    pub(crate) fn pass(&mut self, stream: OutputStream, bytes: &[u8]) -> ControlFlow<()> {
        self.step(stream, |filter, clean| match bytes {
            [] => filter.flush_prompt(clean),
            bytes => filter.push(bytes, clean),
        })
    }

    /// Flushes both streams. An error means that output was withheld.
    pub(crate) fn finish(mut self) -> Result<(), RedactError> {
        for stream in [OutputStream::Out, OutputStream::Err] {
            let _ = self.step(stream, RedactStream::finish);
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn step(
        &mut self,
        stream: OutputStream,
        step: impl Fn(&mut RedactStream, &mut Vec<u8>) -> Result<(), RedactError>,
    ) -> ControlFlow<()> {
        let one = match stream {
            OutputStream::Out => &mut self.out,
            OutputStream::Err => &mut self.err,
        };
        if one.closed {
            return ControlFlow::Break(());
        }
        let (Some(sink), None) = (&mut self.sink, &self.failed) else { return ControlFlow::Continue(()) };
        let mut clean = Vec::new();
        if let Err(error) = step(&mut one.filter, &mut clean) {
            self.failed = Some(error);
            return ControlFlow::Continue(());
        }
        if clean.is_empty() {
            return ControlFlow::Continue(());
        }
        let passed = sink(stream, &clean);
        one.closed = passed.is_break();
        passed
    }
}
