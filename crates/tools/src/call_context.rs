//! What travels with one call beside its arguments: cancellation, deadline, progress and the output stream. A tool that
//! works for long checks [`CancelToken`] or registers a callback; one that produces output while it runs hands it to
//! the sinks. The entry point makes the context; an agent's arguments never reach it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use vambrace_core::error::{CallError, ErrorCode};

/// Context of one call. Cloning shares it.
#[derive(Clone, Default)]
pub struct CallContext {
    /// Ends the call early.
    pub cancel: CancelToken,
    /// When the call must have ended.
    pub deadline: Option<Instant>,
    /// Receives progress; `None` if nobody listens.
    pub progress: Option<Arc<dyn ProgressSink>>,
    /// Receives redacted output while the call runs; `None` if nobody listens.
    pub output: Option<Arc<dyn OutputSink>>,
}

impl CallContext {
    /// Whether somebody listens while the call runs.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.progress.is_some() || self.output.is_some()
    }
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext")
            .field("cancelled", &self.cancel.is_cancelled())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// How far a call has come.
#[derive(Debug, Clone, PartialEq)]
pub struct CallProgress {
    /// Work done so far, in a unit of the tool's choice.
    pub done: f64,
    /// All of the work, if known.
    pub total: Option<f64>,
    /// One redacted line for a person.
    pub message: Option<String>,
}

/// Receives the progress of a call.
pub trait ProgressSink: Send + Sync {
    /// Must not block.
    fn report(&self, progress: CallProgress);
}

/// Standard output or standard error of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Receives the output of a running call, redacted.
pub trait OutputSink: Send + Sync {
    /// Returns false if the output is no longer wanted.
    fn write(&self, stream: CallStream, bytes: &[u8]) -> bool;
}

/// Cancels a call. Cloning shares it; cancelling is final.
#[derive(Clone, Default)]
pub struct CancelToken {
    state: Arc<CancelState>,
}

#[derive(Default)]
struct CancelState {
    cancelled: AtomicBool,
    notify: Notify,
    callbacks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CancelToken").field(&self.is_cancelled()).finish()
    }
}

impl CancelToken {
    /// Cancels: wakes waiters and runs the callbacks, once.
    pub fn cancel(&self) {
        let callbacks = {
            let mut callbacks = self.state.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
            self.state.cancelled.store(true, Ordering::Release);
            std::mem::take(&mut *callbacks)
        };
        self.state.notify.notify_waiters();
        callbacks.into_iter().for_each(|callback| callback());
    }

    /// Whether the call was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.cancelled.load(Ordering::Acquire)
    }

    /// Runs a callback when the call is cancelled, or at once if it was.
    pub fn on_cancel(&self, callback: impl FnOnce() + Send + 'static) {
        let mut callbacks = self.state.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_cancelled() {
            callbacks.push(Box::new(callback));
            return;
        }
        drop(callbacks);
        callback();
    }

    /// Waits until the call is cancelled.
    pub async fn cancelled(&self) {
        let mut waiter = std::pin::pin!(self.state.notify.notified());
        // Registered before the flag is read, so that no cancellation is missed.
        waiter.as_mut().enable();
        if !self.is_cancelled() {
            waiter.await;
        }
    }

    /// Fails if the call was cancelled.
    pub fn check(&self) -> Result<(), CallError> {
        if self.is_cancelled() { Err(cancelled_error()) } else { Ok(()) }
    }
}

/// The error of a cancelled call.
#[must_use]
pub fn cancelled_error() -> CallError {
    CallError::new(ErrorCode::Cancelled, "the call was cancelled")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[tokio::test]
    async fn cancelling_wakes_waiters_and_runs_each_callback_once() {
        let token = CancelToken::default();
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        token.on_cancel(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert!(token.check().is_ok());
        let waiting = tokio::spawn({
            let token = token.clone();
            async move { token.cancelled().await }
        });
        token.cancel();
        token.cancel();
        waiting.await.unwrap();
        token.cancelled().await;
        let count = Arc::clone(&runs);
        token.on_cancel(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert_eq!(token.check().unwrap_err().code, ErrorCode::Cancelled);
    }
}
