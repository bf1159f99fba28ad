//! The system clock, for stores.

use std::time::{SystemTime, UNIX_EPOCH};

use vambrace_core::clock::Clock;
use vambrace_ledger::Timestamp;

/// Reads the system time.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
