//! The real clock, real chance, and the environment: read here, handed over from here.
#![expect(
    clippy::disallowed_methods,
    reason = "the door is where the machine is asked for time and environment"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use vambrace_core::clock::{Chance, Clock};
use vambrace_core::timestamp::Timestamp;

/// The machine's clock.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The kernel's randomness.
#[derive(Debug)]
pub(crate) struct SystemChance;

impl Chance for SystemChance {
    fn draw(&self) -> u128 {
        let mut bytes = [0; 16];
        // The kernel's call fails only where it does not exist; time then keeps ids apart, and ids are no secrets.
        if getrandom::fill(&mut bytes).is_err() {
            return u128::from(SystemClock.now().millis().unsigned_abs());
        }
        u128::from_be_bytes(bytes)
    }
}

/// Bytes for a key; an error where the kernel gives none.
pub(crate) fn random_key() -> Result<[u8; 32], getrandom::Error> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    Ok(key)
}

/// The environment, with what is not UTF-8 replaced.
pub(crate) fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect()
}

/// Who runs this, for records.
pub(crate) fn user() -> String {
    let uid = rustix::process::getuid().as_raw();
    match std::env::var("USER").or_else(|_| std::env::var("LOGNAME")) {
        Ok(name) if !name.is_empty() => name,
        _ => format!("uid {uid}"),
    }
}
