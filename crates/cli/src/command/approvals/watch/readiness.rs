//! Whether an approval counts: only for what is on the screen, and has been there long enough to be read. A key typed before
//! that approves nothing, however late it is processed.

use vambrace_broker::DecisionReach;
use vambrace_core::digest::Digest;
use vambrace_core::timestamp::Timestamp;

/// How long a step must be on the screen before keys decide about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadDelay {
    /// A request.
    Request,
    /// The help covers the request.
    Help,
    /// A second step that needs one key.
    Confirm,
    /// A second step that needs a typed word; typing takes long enough.
    Type,
}

impl ReadDelay {
    fn millis(self) -> i64 {
        match self {
            Self::Request | Self::Help => 600,
            Self::Confirm => 300,
            Self::Type => 0,
        }
    }
}

/// What an approval would be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfirmationStep {
    /// The request and the digest of its plan.
    pub(crate) question: Option<(String, Digest)>,
    pub(crate) wait: ReadDelay,
    /// Scope of the approval, and digest of the previewed part.
    pub(crate) confirmation: Option<(DecisionReach, Option<Digest>)>,
    /// Whether the screen is large enough for it.
    pub(crate) seen: bool,
}

/// The step that is on the screen, and since when.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    drawn: Option<(ConfirmationStep, Timestamp)>,
    ready: bool,
}

impl Readiness {
    /// Whether exactly this step accepts an approval.
    pub(crate) fn is_for(&self, step: &ConfirmationStep) -> bool {
        self.ready && self.drawn.as_ref().is_some_and(|(drawn, _)| drawn == step)
    }

    /// The step is on the screen now, and all keys typed before were processed.
    pub(crate) fn drawn(&mut self, step: ConfirmationStep, now: Timestamp) {
        let since = match &self.drawn {
            Some((drawn, since)) if *drawn == step => *since,
            _ => now,
        };
        self.ready = now >= since.later(step.wait.millis());
        self.drawn = Some((step, since));
    }

    /// Something else was on the screen, or the state changed.
    pub(crate) fn forget(&mut self) {
        (self.drawn, self.ready) = (None, false);
    }
}
