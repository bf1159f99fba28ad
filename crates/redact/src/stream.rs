//! Redaction of a stream: bytes in, bytes out, in chunks of any size. The output does not depend on how the input is
//! split, and is the same as for the whole text at once.
//!
//! A text goes through three scan passes: one over everything, then two around the placeholders, because a replacement
//! changes the context of its neighbours. That makes redaction a fixed point. Each pass holds back what it cannot
//! decide yet: at most [`HELD_BYTES`], or [`MAX_HELD_BYTES`] inside a private key or a very long token.

use std::sync::Arc;

use memchr::memmem;
use vambrace_core::redacted::RedactError;

use crate::finding::{Cluster, SecretFinding};
use crate::open_ended::MAX_OPEN_BYTES;
use crate::placeholder::{self, Fingerprint};
use crate::redactor::Redactor;
use crate::scan_pass::{LOOKAHEAD_BYTES, LOOKBEHIND_BYTES, ScanPass, ScanScope, UTF8_SLACK_BYTES};
use crate::scanner::Scanner;
use crate::secret_names;

/// Number of scan passes over a text.
pub(crate) const SCAN_PASSES: usize = 3;
/// Bytes that one pass holds back.
pub const HELD_BYTES: usize = LOOKAHEAD_BYTES + 2 * (LOOKBEHIND_BYTES + UTF8_SLACK_BYTES);
/// Bytes that one pass holds back inside an open-ended match.
pub const MAX_HELD_BYTES: usize = 2 * MAX_OPEN_BYTES + HELD_BYTES;
/// Input is processed in pieces of at most this many bytes.
const MAX_PIECE_BYTES: usize = 1 << 16;

/// A stream in the middle of redaction. Memory is bounded by the sizes above per pass, however much is pushed.
pub struct RedactStream {
    redactor: Redactor,
    passes: Vec<StreamPass>,
    count: u64,
    findings: Option<Vec<SecretFinding>>,
}

impl std::fmt::Debug for RedactStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("count", &self.count).finish_non_exhaustive()
    }
}

struct StreamPass {
    pass: ScanPass,
    buffer: Vec<u8>,
    /// How much of the buffer has been written out.
    written: usize,
    /// Offset of the buffer in the whole stream.
    base: u64,
}

impl RedactStream {
    pub(crate) fn new(redactor: Redactor) -> Self {
        let scope = |n| if n == 0 { ScanScope::All } else { ScanScope::AroundPlaceholders };
        let passes = (0..SCAN_PASSES).map(|n| StreamPass {
            pass: ScanPass::new(scope(n)),
            buffer: Vec::new(),
            written: 0,
            base: 0,
        });
        Self { redactor, passes: passes.collect(), count: 0, findings: None }
    }

    /// Collects findings, for [`RedactStream::take_findings`].
    #[must_use]
    pub fn with_findings(mut self) -> Self {
        self.findings = Some(Vec::new());
        self
    }

    /// The findings since the last call, with offsets into the input.
    pub fn take_findings(&mut self) -> Vec<SecretFinding> {
        self.findings.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Number of secrets replaced so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes more input and writes out what is final.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), RedactError> {
        let scanner = self.redactor.scanner();
        input.chunks(MAX_PIECE_BYTES).try_for_each(|piece| self.run(&scanner, piece, FlushMode::Hold, out))
    }

    /// Writes out what is held back, up to the last line end; call it when no input has arrived for a while. An
    /// unfinished line stays. The price: text before and after the flush is not matched together, so a value on the
    /// line after its name is not recognised by that name. Lines of a private key and of a known value still are.
    pub fn flush_idle(&mut self, out: &mut Vec<u8>) -> Result<(), RedactError> {
        let scanner = self.redactor.scanner();
        self.run(&scanner, &[], FlushMode::Line, out)
    }

    /// Like [`RedactStream::flush_idle`], and also writes out an unfinished line that prompts the user (`name? `,
    /// `[Y/n] `, `>>> `). A prompt that names a secret stays, because its value may follow.
    pub fn flush_prompt(&mut self, out: &mut Vec<u8>) -> Result<(), RedactError> {
        let scanner = self.redactor.scanner();
        self.run(&scanner, &[], FlushMode::Prompt, out)
    }

    /// Writes out the rest.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), RedactError> {
        let scanner = self.redactor.scanner();
        self.run(&scanner, &[], FlushMode::End, out)
    }

    fn run(
        &mut self,
        scanner: &Arc<Scanner>,
        piece: &[u8],
        flush: FlushMode,
        out: &mut Vec<u8>,
    ) -> Result<(), RedactError> {
        let mut input = std::borrow::Cow::Borrowed(piece);
        for (n, pass) in self.passes.iter_mut().enumerate() {
            let mut output = Vec::with_capacity(input.len() + HELD_BYTES);
            let found = pass.run(scanner, &self.redactor, &input, flush, &mut output).map_err(RedactError)?;
            self.count += u64::try_from(found.len()).unwrap_or(u64::MAX);
            if let (0, Some(findings)) = (n, &mut self.findings) {
                findings.extend(found);
            }
            input = std::borrow::Cow::Owned(output);
        }
        out.extend_from_slice(&input);
        Ok(())
    }
}

/// How much of the buffered text counts as complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlushMode {
    /// More may follow: nothing counts as complete.
    Hold,
    /// Whole lines.
    Line,
    /// Whole lines, and a last line that is a prompt.
    Prompt,
    /// Everything.
    End,
}

/// Whether an unfinished line is a prompt, but not for a secret.
fn is_prompt(scanner: &Scanner, line: &[u8]) -> bool {
    const MAX_PROMPT_BYTES: usize = 160;
    const SECRETS: [&str; 8] = ["pass", "pwd", "secret", "token", "key", "credential", "auth", "bearer"];
    let asks = matches!(line, [.., b':' | b'?' | b'>' | b']' | b')' | b'$' | b'#', b' ']);
    let text = String::from_utf8_lossy(line).to_ascii_lowercase();
    // If a known value contains the last bytes, they may be its first half.
    let end = line.get(line.len().saturating_sub(4)..).unwrap_or_default();
    let known = || scanner.needles.iter().any(|needle| memmem::find(needle.bytes(), end).is_some());
    let named = || SECRETS.iter().chain(secret_names::NAME_ANCHORS).any(|word| text.contains(word));
    asks && line.len() <= MAX_PROMPT_BYTES && !named() && !known()
}

impl StreamPass {
    fn run(
        &mut self,
        scanner: &Scanner,
        redactor: &Redactor,
        input: &[u8],
        flush: FlushMode,
        out: &mut Vec<u8>,
    ) -> Result<Vec<SecretFinding>, String> {
        self.buffer.extend_from_slice(input);
        let line = memchr::memrchr(b'\n', &self.buffer).map_or(0, |place| place + 1);
        let stop = match flush {
            FlushMode::Hold | FlushMode::End => self.buffer.len(),
            FlushMode::Prompt if self.buffer.get(line..).is_some_and(|line| is_prompt(scanner, line)) => {
                self.buffer.len()
            }
            FlushMode::Line | FlushMode::Prompt => line.max(self.written),
        };
        let text = self.buffer.get(..stop).unwrap_or_default();
        let end = flush != FlushMode::Hold;
        self.pass.advance(scanner, text, end)?;
        let (mut clusters, upto) = self.pass.settle(text, end);
        clusters.retain(|cluster| !redactor.is_allowed(text, cluster));
        let mut findings = Vec::new();
        for cluster in &clusters {
            out.extend_from_slice(text.get(self.written..cluster.start).unwrap_or_default());
            let fingerprint = fingerprint_of(redactor, text, cluster);
            placeholder::write(out, scanner.name(cluster.main.kind), fingerprint);
            self.written = cluster.end;
            findings.push(finding(scanner, cluster, fingerprint, self.base));
        }
        if upto > self.written {
            out.extend_from_slice(text.get(self.written..upto).unwrap_or_default());
            self.written = upto;
        }
        if matches!(flush, FlushMode::Line | FlushMode::Prompt) {
            self.pass.resume(stop);
        }
        let dropped = self.pass.drop_consumed(self.written);
        self.buffer.drain(..dropped);
        self.written -= dropped;
        self.base += u64::try_from(dropped).unwrap_or(0);
        Ok(findings)
    }
}

/// The fingerprint of a cluster: of the known value, or of the longest span's text.
pub(crate) fn fingerprint_of(redactor: &Redactor, text: &[u8], cluster: &Cluster) -> Fingerprint {
    let main = &cluster.main;
    main.fingerprint.unwrap_or_else(|| redactor.fingerprint(crate::bytes::slice(text, main.start, main.end)))
}

pub(crate) fn finding(
    scanner: &Scanner,
    cluster: &Cluster,
    fingerprint: Fingerprint,
    base: u64,
) -> SecretFinding {
    let place = |place: usize| base + u64::try_from(place).unwrap_or(0);
    SecretFinding {
        start: place(cluster.start),
        end: place(cluster.end),
        kind: scanner.name(cluster.main.kind).to_owned(),
        fingerprint,
        layer: cluster.main.layer,
    }
}
