//! Time and chance as values that are handed in. Nothing in the program asks the machine for them but the
//! door, which hands over the real ones; tests hand over their own.

use crate::timestamp::Timestamp;

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Where chance comes from.
pub trait Chance: Send + Sync {
    /// 128 bits that nobody can foresee.
    fn draw(&self) -> u128;
}
