//! Risk: how much harm a call could do, with the reasons. It routes questions to people; it is never the
//! boundary.

use std::fmt;

mod files;

pub use files::{EXECUTABLES, FileRisk, HIGH};

/// How risky.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Reads and looks.
    Low,
    /// Changes what can be changed back.
    Medium,
    /// Everything else.
    High,
}

impl Level {
    /// The word in answers and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "LOW",
            Self::Medium => "MEDIUM",
            Self::High => "HIGH",
        }
    }

    /// The level of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Low, Self::Medium, Self::High].into_iter().find(|level| level.as_str() == word)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A level and why.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Risk {
    /// The level.
    pub level: Level,
    /// One line each.
    pub reasons: Vec<String>,
}

impl Risk {
    /// Medium, for a reason.
    pub fn medium(reason: impl Into<String>) -> Self {
        Self { level: Level::Medium, reasons: vec![reason.into()] }
    }

    /// High, for a reason.
    pub fn high(reason: impl Into<String>) -> Self {
        Self { level: Level::High, reasons: vec![reason.into()] }
    }

    /// Low, for a reason.
    pub fn low(reason: impl Into<String>) -> Self {
        Self { level: Level::Low, reasons: vec![reason.into()] }
    }
}
