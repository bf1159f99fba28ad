//! Clock and random numbers as values that are passed in. Only the entry points read the real ones from the
//! operating system; tests pass their own.

use crate::timestamp::Timestamp;

/// Source of the current time.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// Source of random numbers.
pub trait RandomSource: Send + Sync {
    /// 128 unpredictable bits.
    fn random_u128(&self) -> u128;
}
