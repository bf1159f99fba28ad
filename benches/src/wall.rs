//! The machine's clock, for stores.

use std::time::{SystemTime, UNIX_EPOCH};

use vambrace_core::clock::Clock;
use vambrace_ledger::Timestamp;

/// The time on the wall.
#[derive(Debug)]
pub(crate) struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
