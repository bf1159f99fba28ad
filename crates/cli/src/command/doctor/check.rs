//! One check of the doctor.

use serde_json::{Value, json};

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckState {
    Ok,
    /// A warning: it works with restrictions.
    Degraded,
    /// An error: calls are denied.
    Missing,
}

impl CheckState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// A check and its result.
#[derive(Debug)]
pub(super) struct DoctorCheck {
    pub(super) name: &'static str,
    pub(super) state: CheckState,
    pub(super) found: String,
    /// What does not work because of it.
    pub(super) lost: String,
    /// How to fix it.
    pub(super) fix: String,
}

impl DoctorCheck {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: CheckState::Ok, found: found.into(), lost: String::new(), fix: String::new() }
    }

    pub(super) fn degraded(
        name: &'static str,
        found: impl Into<String>,
        lost: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name, state: CheckState::Degraded, found: found.into(), lost: lost.into(), fix: fix.into() }
    }

    pub(super) fn missing(
        name: &'static str,
        found: impl Into<String>,
        lost: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name, state: CheckState::Missing, found: found.into(), lost: lost.into(), fix: fix.into() }
    }

    pub(super) fn as_json(&self) -> Value {
        let unless_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "name": self.name, "state": self.state.as_str(), "found": self.found,
            "lost": unless_empty(&self.lost), "fix": unless_empty(&self.fix),
        })
    }
}
