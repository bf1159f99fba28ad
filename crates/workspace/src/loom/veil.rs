//! A file as its author may know it: its secrets blotted out. Matching happens there, so whether, how often and where
//! something is found tells nothing about them; who guessed one letter by letter would learn nothing from any answer.
//! Finding the secrets is somebody else's work ([`Secrets`]).

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use vambrace_core::redacted::RedactError;

use super::fault::LoomFault;
use super::found::Found;
use crate::search::Armour;

/// Tells where the secrets of a text stand, in order.
pub type Secrets<'s> = &'s dyn Fn(&[u8]) -> Result<Vec<Range<usize>>, RedactError>;

/// So far a secret may reach: the longest that is known as one.
pub const SECRET_REACH: usize = 66 * 1024;
/// What stands for each byte of one; lines stay lines. A letter, so that most of what is written for a value fits.
const BLOT: u8 = b'x';

/// Where the secrets are, in order and apart, and the file without them.
type Drawn = (Vec<Range<usize>>, Arc<Vec<u8>>);

/// A file with its secrets, which are looked for when they are needed.
pub(crate) struct Veil<'a> {
    base: &'a Arc<Vec<u8>>,
    secrets: Secrets<'a>,
    drawn: OnceCell<Drawn>,
}

impl<'a> Veil<'a> {
    pub(crate) fn new(base: &'a Arc<Vec<u8>>, secrets: Secrets<'a>) -> Self {
        Self { base, secrets, drawn: OnceCell::new() }
    }

    /// The file without its secrets, each byte where it was; the file itself where there are none.
    pub(crate) fn text(&self) -> Result<&Arc<Vec<u8>>, LoomFault> {
        self.drawn().map(|(_, text)| text)
    }

    /// Where they are.
    pub(crate) fn spans(&self) -> Result<&[Range<usize>], LoomFault> {
        self.drawn().map(|(spans, _)| spans.as_slice())
    }

    fn drawn(&self) -> Result<&Drawn, LoomFault> {
        if self.drawn.get().is_none() {
            let spans = self.found_in(0..self.base.len())?;
            let mut text = Arc::clone(self.base);
            if !spans.is_empty() {
                blot(Arc::<Vec<u8>>::make_mut(&mut text), &spans);
            }
            let _ = self.drawn.set((spans, text));
        }
        self.drawn.get().ok_or_else(|| LoomFault::Unseen("nothing was found out".to_owned()))
    }

    fn found_in(&self, part: Range<usize>) -> Result<Vec<Range<usize>>, LoomFault> {
        let text = self.base.get(part.clone()).unwrap_or_default();
        let found = (self.secrets)(text).map_err(|RedactError(why)| LoomFault::Unseen(why))?;
        let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for span in found {
            let (start, end) = (part.start + span.start, (part.start + span.end).min(part.end));
            match apart.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => apart.push(start..end),
            }
        }
        Ok(apart)
    }

    /// Whether a secret is in, or partly in, some of these matches of the file as it is. Only what is around them is
    /// looked at.
    pub(crate) fn meets_any(&self, found: &[Found]) -> Result<bool, LoomFault> {
        let (mut parts, mut armour): (Vec<Range<usize>>, _) = (Vec::new(), Armour::default());
        for Found { span, .. } in found {
            let from = armour.reach_back(self.base, span.start);
            let to = span.end.saturating_add(SECRET_REACH);
            match parts.last_mut() {
                Some(part) if from <= part.end => part.end = to.min(self.base.len()),
                _ => parts.push(from..to.min(self.base.len())),
            }
        }
        for part in parts {
            let secrets = self.found_in(part)?;
            if found.iter().any(|found| meet(&secrets, &found.span)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Blots out parts of a text; each byte stays where it was.
pub(crate) fn blot(text: &mut [u8], spans: &[Range<usize>]) {
    for span in spans {
        let own = text.get_mut(span.clone()).unwrap_or_default();
        own.iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = BLOT);
    }
}

/// Whether some secret, of those in order and apart, is in a part of a text or reaches into it.
pub(crate) fn meet(secrets: &[Range<usize>], span: &Range<usize>) -> bool {
    let next = secrets.partition_point(|secret| secret.end <= span.start);
    secrets.get(next).is_some_and(|secret| secret.start < span.end)
}

/// Whether a part of a text begins or ends inside of one.
pub(crate) fn cut(secrets: &[Range<usize>], span: &Range<usize>) -> bool {
    let inside = |point: usize| {
        let next = secrets.partition_point(|secret| secret.end <= point);
        secrets.get(next).is_some_and(|secret| secret.start < point)
    };
    inside(span.start) || inside(span.end)
}
