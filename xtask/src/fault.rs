//! Why a chore stopped, and what a person can do about it.

use std::fmt;

/// A message, and a hint where there is one.
#[derive(Debug)]
pub(crate) struct Fault {
    message: String,
    hint: Option<String>,
}

/// What a chore comes to.
pub(crate) type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Says what was being done when the system refused.
pub(crate) trait While<T> {
    fn when(self, doing: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: fmt::Display> While<T> for Result<T, E> {
    fn when(self, doing: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Fault::new(format!("{}: {error}", doing())))
    }
}
