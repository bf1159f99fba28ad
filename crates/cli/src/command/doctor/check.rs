//! One line of the doctor.

use serde_json::{Value, json};

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// It works, and something is worth a look.
    Degraded,
    /// Calls are refused without it.
    Missing,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// What was looked at.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) state: State,
    pub(super) found: String,
    /// What does not work therefore.
    pub(super) lost: String,
    /// What to do.
    pub(super) fix: String,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), lost: String::new(), fix: String::new() }
    }

    pub(super) fn degraded(
        name: &'static str,
        found: impl Into<String>,
        lost: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name, state: State::Degraded, found: found.into(), lost: lost.into(), fix: fix.into() }
    }

    pub(super) fn missing(
        name: &'static str,
        found: impl Into<String>,
        lost: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name, state: State::Missing, found: found.into(), lost: lost.into(), fix: fix.into() }
    }

    pub(super) fn as_json(&self) -> Value {
        let unless_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "name": self.name, "state": self.state.as_str(), "found": self.found,
            "lost": unless_empty(&self.lost), "fix": unless_empty(&self.fix),
        })
    }
}
