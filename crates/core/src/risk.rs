//! Risk: how much harm a call could do, with the reasons. It routes questions to people; it is never the
//! boundary.

use std::fmt;

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

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "LOW",
            Self::Medium => "MEDIUM",
            Self::High => "HIGH",
        })
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
    /// Low, for a reason.
    pub fn low(reason: impl Into<String>) -> Self {
        Self { level: Level::Low, reasons: vec![reason.into()] }
    }
}
