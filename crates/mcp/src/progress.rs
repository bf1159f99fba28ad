//! Progress notifications of one call: while it waits for a decision, and while it runs. At most one per second is sent, and
//! their value always increases.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer as Client, RoleServer};
use vambrace_broker::WaitProgress;
use vambrace_core::terminal_escape::one_line;
use vambrace_tools::{CallProgress, ProgressSink};

/// Interval of progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Sends progress notifications.
#[derive(Debug)]
pub(crate) struct ProgressReporter {
    client: Client<RoleServer>,
    token: ProgressToken,
    values: Mutex<ProgressValues>,
}

/// The values that were sent.
#[derive(Debug, Default)]
struct ProgressValues {
    sent_at: Option<Instant>,
    last: f64,
    /// The value at which the call itself began; it counts from there.
    call_base: Option<f64>,
}

impl ProgressReporter {
    pub(crate) fn new(client: Client<RoleServer>, token: ProgressToken) -> Self {
        Self { client, token, values: Mutex::default() }
    }

    /// The call waits for a decision.
    pub(crate) fn waiting(&self, waiting: &WaitProgress) {
        let words = format!(
            "waiting for approval: {} ({}, {} s left)",
            one_line(&waiting.summary),
            waiting.id,
            waiting.seconds
        );
        let value = self.values.lock().unwrap_or_else(PoisonError::into_inner).after_waiting(Instant::now());
        if let Some(value) = value {
            self.send(ProgressNotificationParam::new(self.token.clone(), value).with_message(words));
        }
    }

    fn send(&self, params: ProgressNotificationParam) {
        let client = self.client.clone();
        // In a task of its own: a client that does not read must not delay the call.
        tokio::spawn(async move { client.notify_progress(params).await });
    }
}

impl ProgressSink for ProgressReporter {
    fn report(&self, progress: CallProgress) {
        let value = {
            let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
            values.of_call(progress.done, Instant::now()).map(|value| (value, values.call_base))
        };
        let Some((value, base)) = value else { return };
        let mut params = ProgressNotificationParam::new(self.token.clone(), value);
        if let Some(total) = progress.total {
            params = params.with_total(base.unwrap_or_default() + total);
        }
        if let Some(words) = &progress.message {
            params = params.with_message(one_line(words));
        }
        self.send(params);
    }
}

impl ProgressValues {
    fn after_waiting(&mut self, now: Instant) -> Option<f64> {
        self.send(self.last + 1.0, now)
    }

    fn of_call(&mut self, done: f64, now: Instant) -> Option<f64> {
        let base = *self.call_base.get_or_insert(self.last);
        self.send(base + done, now)
    }

    /// Returns the value if it is sent now.
    fn send(&mut self, value: f64, now: Instant) -> Option<f64> {
        let too_soon = self.sent_at.is_some_and(|sent| now.duration_since(sent) < PROGRESS_INTERVAL);
        if too_soon || value <= self.last || !value.is_finite() {
            return None;
        }
        (self.sent_at, self.last) = (Some(now), value);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_increase_from_waiting_to_running_and_are_at_least_a_second_apart() {
        let mut values = ProgressValues::default();
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert_eq!(values.after_waiting(at(0)), Some(1.0));
        assert_eq!(values.after_waiting(at(999)), None);
        assert_eq!(values.after_waiting(at(1000)), Some(2.0));
        assert_eq!(values.of_call(0.0, at(2000)), None);
        assert_eq!(values.of_call(0.25, at(2000)), Some(2.25));
        assert_eq!(values.of_call(0.5, at(2500)), None);
        assert_eq!(values.of_call(0.75, at(3000)), Some(2.75));
        assert_eq!(values.of_call(0.5, at(4000)), None);
        assert_eq!(values.of_call(f64::NAN, at(5000)), None);
    }
}
