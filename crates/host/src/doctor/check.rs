//! One check of the doctor.

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// It works.
    Ok,
    /// A warning: it works with restrictions.
    Degraded,
    /// An error: calls are denied.
    Missing,
}

impl CheckState {
    /// The word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// A check and its result.
#[derive(Debug)]
pub struct DoctorCheck {
    /// What is checked.
    pub name: &'static str,
    /// The result.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// What does not work because of it.
    pub lost: String,
    /// How to fix it.
    pub fix: String,
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
}
