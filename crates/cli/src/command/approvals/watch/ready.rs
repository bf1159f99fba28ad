//! Whether a yes counts: only to what is on the screen, and has been there long enough to be looked at. What was typed before
//! that agrees to nothing, however late it is read.

use vambrace_broker::Reach;
use vambrace_core::digest::Digest;
use vambrace_core::timestamp::Timestamp;

/// How long a step must be on the screen before a key decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A question.
    Look,
    /// The help stands before it.
    Help,
    /// A second step that takes one key.
    Confirm,
    /// One that takes a word: typing it is time enough.
    Type,
}

impl Wait {
    fn millis(self) -> i64 {
        match self {
            Self::Look | Self::Help => 600,
            Self::Confirm => 300,
            Self::Type => 0,
        }
    }
}

/// What a yes would be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// The question and its plan.
    pub(crate) question: Option<(String, Digest)>,
    pub(crate) wait: Wait,
    /// How far the yes would reach, and what was shown of a part.
    pub(crate) agreeing: Option<(Reach, Option<Digest>)>,
    /// Whether the screen is large enough for it.
    pub(crate) seen: bool,
}

/// What has been drawn, and since when.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    drawn: Option<(Step, Timestamp)>,
    ready: bool,
}

impl Readiness {
    /// Whether this very step may be agreed to.
    pub(crate) fn is_for(&self, step: &Step) -> bool {
        self.ready && self.drawn.as_ref().is_some_and(|(drawn, _)| drawn == step)
    }

    /// It is on the screen now, and everything typed before was read.
    pub(crate) fn drawn(&mut self, step: Step, now: Timestamp) {
        let since = match &self.drawn {
            Some((drawn, since)) if *drawn == step => *since,
            _ => now,
        };
        self.ready = now >= since.later(step.wait.millis());
        self.drawn = Some((step, since));
    }

    /// Something else was on the screen, or happened.
    pub(crate) fn forget(&mut self) {
        (self.drawn, self.ready) = (None, false);
    }
}
