//! Risk: how much harm a call could do, with the reasons. It decides which calls need approval; it is never the
//! security boundary.

use std::fmt;

mod file_risk;
mod self_running;

pub use file_risk::{EXECUTABLE_FILES, FileRiskTable};
pub use self_running::{SELF_RUNNING, SelfRunningNames};

/// Risk level of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RiskLevel {
    /// Reads only.
    Low,
    /// Makes changes that can be undone.
    Medium,
    /// Everything else.
    High,
}

impl RiskLevel {
    /// The word in results and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "LOW",
            Self::Medium => "MEDIUM",
            Self::High => "HIGH",
        }
    }

    /// Parses the word of [`Self::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Low, Self::Medium, Self::High].into_iter().find(|level| level.as_str() == word)
    }
}

impl fmt::Display for RiskLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A risk level with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Risk {
    /// The risk level.
    pub level: RiskLevel,
    /// The reasons, one line each.
    pub reasons: Vec<String>,
}

impl Risk {
    /// Medium risk with one reason.
    pub fn medium(reason: impl Into<String>) -> Self {
        Self { level: RiskLevel::Medium, reasons: vec![reason.into()] }
    }

    /// High risk with one reason.
    pub fn high(reason: impl Into<String>) -> Self {
        Self { level: RiskLevel::High, reasons: vec![reason.into()] }
    }

    /// Low risk with one reason.
    pub fn low(reason: impl Into<String>) -> Self {
        Self { level: RiskLevel::Low, reasons: vec![reason.into()] }
    }
}
