//! Redaction of a stream: bytes in, bytes out, in whatever pieces they come. The output is the same for every way of
//! cutting the input, and the same as for the whole text at once.
//!
//! A text is looked at three times: once everywhere, then twice around what was replaced, because a replacement
//! changes what its neighbours look like. That makes redaction a fixed point. Each look holds back what it cannot judge yet:
//! at most [`HELD`] bytes, and [`LONGEST_HELD`] while a private key or a very long token goes on.

use std::sync::Arc;

use memchr::memmem;
use vambrace_core::redacted::RedactError;

use crate::ending::LONG;
use crate::finding::{Cluster, Finding};
use crate::live::Live;
use crate::names;
use crate::pass::{AHEAD, BACK, Pass, SLACK, Where};
use crate::placeholder::{self, Print};
use crate::redactor::Redactor;

/// How often a text is looked at.
pub(crate) const LOOKS: usize = 3;
/// Bytes that one look holds back.
pub const HELD: usize = AHEAD + 2 * (BACK + SLACK);
/// The same while something endless goes on.
pub const LONGEST_HELD: usize = 2 * LONG + HELD;
/// Input is taken in pieces of at most this size.
const PIECE: usize = 1 << 16;

/// A stream that is being redacted. Memory: the pieces above for each look, whatever is pushed.
pub struct Stream {
    redactor: Redactor,
    looks: Vec<Look>,
    count: u64,
    findings: Option<Vec<Finding>>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("count", &self.count).finish_non_exhaustive()
    }
}

struct Look {
    pass: Pass,
    buffer: Vec<u8>,
    /// How much of the buffer has been given out.
    given: usize,
    /// Where in the whole stream the buffer begins.
    base: u64,
}

impl Stream {
    pub(crate) fn new(redactor: Redactor) -> Self {
        let reach = |n| if n == 0 { Where::All } else { Where::AroundPlaceholders };
        let looks =
            (0..LOOKS).map(|n| Look { pass: Pass::new(reach(n)), buffer: Vec::new(), given: 0, base: 0 });
        Self { redactor, looks: looks.collect(), count: 0, findings: None }
    }

    /// Keeps what is found, for [`Stream::take_findings`].
    #[must_use]
    pub fn with_findings(mut self) -> Self {
        self.findings = Some(Vec::new());
        self
    }

    /// What was found since the last time, with places in the input.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.findings.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// How many secrets were replaced so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes more of the input and gives what is certain.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), RedactError> {
        let live = self.redactor.live();
        input.chunks(PIECE).try_for_each(|piece| self.run(&live, piece, Until::More, out))
    }

    /// Gives what is held back up to the last line end, because nothing came for a while. A line that is not finished
    /// stays. The price: what stands on two sides of the flush is not seen together, so a value on the line after its name
    /// is not recognised by that name. Lines of a private key and of a known value still are.
    pub fn flush_idle(&mut self, out: &mut Vec<u8>) -> Result<(), RedactError> {
        let live = self.redactor.live();
        self.run(&live, &[], Until::Line, out)
    }

    /// The same, and a line that is not finished but asks for something (`name? `, `[Y/n] `, `>>> `): who is to answer has
    /// to see it. One that names a secret stays, because its value may follow.
    pub fn flush_prompt(&mut self, out: &mut Vec<u8>) -> Result<(), RedactError> {
        let live = self.redactor.live();
        self.run(&live, &[], Until::Prompt, out)
    }

    /// Gives the rest.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), RedactError> {
        let live = self.redactor.live();
        self.run(&live, &[], Until::End, out)
    }

    fn run(
        &mut self,
        live: &Arc<Live>,
        piece: &[u8],
        until: Until,
        out: &mut Vec<u8>,
    ) -> Result<(), RedactError> {
        let mut input = std::borrow::Cow::Borrowed(piece);
        for (n, look) in self.looks.iter_mut().enumerate() {
            let mut given = Vec::with_capacity(input.len() + HELD);
            let found = look.run(live, &self.redactor, &input, until, &mut given).map_err(RedactError)?;
            self.count += u64::try_from(found.len()).unwrap_or(u64::MAX);
            if let (0, Some(findings)) = (n, &mut self.findings) {
                findings.extend(found);
            }
            input = std::borrow::Cow::Owned(given);
        }
        out.extend_from_slice(&input);
        Ok(())
    }
}

/// Up to where a text counts as complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    More,
    Line,
    Prompt,
    End,
}

/// Whether an unfinished line waits for an answer, and none that is to be kept.
fn is_prompt(live: &Live, line: &[u8]) -> bool {
    const LONGEST: usize = 160;
    const SECRETS: [&str; 8] = ["pass", "pwd", "secret", "token", "key", "credential", "auth", "bearer"];
    let asks = matches!(line, [.., b':' | b'?' | b'>' | b']' | b')' | b'$' | b'#', b' ']);
    let text = String::from_utf8_lossy(line).to_ascii_lowercase();
    // Where a known value has the same letters, this may be its first half.
    let end = line.get(line.len().saturating_sub(4)..).unwrap_or_default();
    let known = || live.needles.iter().any(|needle| memmem::find(needle.bytes(), end).is_some());
    let named = || SECRETS.iter().chain(names::WORDS).any(|word| text.contains(word));
    asks && line.len() <= LONGEST && !named() && !known()
}

impl Look {
    fn run(
        &mut self,
        live: &Live,
        redactor: &Redactor,
        input: &[u8],
        until: Until,
        out: &mut Vec<u8>,
    ) -> Result<Vec<Finding>, String> {
        self.buffer.extend_from_slice(input);
        let line = memchr::memrchr(b'\n', &self.buffer).map_or(0, |place| place + 1);
        let stop = match until {
            Until::More | Until::End => self.buffer.len(),
            Until::Prompt if self.buffer.get(line..).is_some_and(|line| is_prompt(live, line)) => {
                self.buffer.len()
            }
            Until::Line | Until::Prompt => line.max(self.given),
        };
        let text = self.buffer.get(..stop).unwrap_or_default();
        let end = until != Until::More;
        self.pass.advance(live, text, end)?;
        let (mut clusters, upto) = self.pass.settle(text, end);
        clusters.retain(|cluster| !redactor.is_allowed(text, cluster));
        let mut findings = Vec::new();
        for cluster in &clusters {
            out.extend_from_slice(text.get(self.given..cluster.start).unwrap_or_default());
            let print = print_of(redactor, text, cluster);
            placeholder::write(out, live.name(cluster.main.kind), print);
            self.given = cluster.end;
            findings.push(finding(live, cluster, print, self.base));
        }
        if upto > self.given {
            out.extend_from_slice(text.get(self.given..upto).unwrap_or_default());
            self.given = upto;
        }
        if matches!(until, Until::Line | Until::Prompt) {
            self.pass.resume(stop);
        }
        let forgotten = self.pass.forget(self.given);
        self.buffer.drain(..forgotten);
        self.given -= forgotten;
        self.base += u64::try_from(forgotten).unwrap_or(0);
        Ok(findings)
    }
}

/// The fingerprint of a cluster: of the known value, or of the longest finding's text.
pub(crate) fn print_of(redactor: &Redactor, text: &[u8], cluster: &Cluster) -> Print {
    let main = &cluster.main;
    main.print.unwrap_or_else(|| redactor.print(crate::bytes::part(text, main.start, main.end)))
}

pub(crate) fn finding(live: &Live, cluster: &Cluster, print: Print, base: u64) -> Finding {
    let place = |place: usize| base + u64::try_from(place).unwrap_or(0);
    Finding {
        start: place(cluster.start),
        end: place(cluster.end),
        kind: live.name(cluster.main.kind).to_owned(),
        print,
        layer: cluster.main.layer,
    }
}
