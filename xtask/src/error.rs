//! Errors of xtask: a message and a hint for the developer.

use std::fmt;

/// A message, and an optional hint.
#[derive(Debug)]
pub(crate) struct TaskError {
    message: String,
    hint: Option<String>,
}

/// The result of a task.
pub(crate) type TaskResult<T> = Result<T, TaskError>;

impl TaskError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Adds what was being done to an error of the system.
pub(crate) trait WithContext<T> {
    fn when(self, doing: impl FnOnce() -> String) -> TaskResult<T>;
}

impl<T, E: fmt::Display> WithContext<T> for Result<T, E> {
    fn when(self, doing: impl FnOnce() -> String) -> TaskResult<T> {
        self.map_err(|error| TaskError::new(format!("{}: {error}", doing())))
    }
}
