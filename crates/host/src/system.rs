//! The system clock, the kernel's randomness, the environment and the current user. Libraries get them as values.
#![expect(clippy::disallowed_methods, reason = "the only module that reads the time and the environment")]

use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

use vambrace_core::clock::{Clock, RandomSource};
use vambrace_core::timestamp::Timestamp;

/// The system clock.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The kernel's randomness.
#[derive(Debug)]
pub struct SystemRandom;

impl RandomSource for SystemRandom {
    fn random_u128(&self) -> u128 {
        let mut bytes = [0; 16];
        // getrandom fails only where it does not exist. The time keeps ids distinct then; ids are not secret.
        if getrandom::fill(&mut bytes).is_err() {
            return u128::from(SystemClock.now().millis().unsigned_abs());
        }
        u128::from_be_bytes(bytes)
    }
}

/// Random bytes for a key; an error if the kernel has none.
pub fn random_key() -> Result<[u8; 32], getrandom::Error> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    Ok(key)
}

/// The environment; invalid UTF-8 is replaced.
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect()
}

/// A variable of the environment that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The current user, for records.
#[must_use]
pub fn user() -> String {
    let uid = rustix::process::getuid().as_raw();
    match std::env::var("USER").or_else(|_| std::env::var("LOGNAME")) {
        Ok(name) if !name.is_empty() => name,
        _ => format!("uid {uid}"),
    }
}
