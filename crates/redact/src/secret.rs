//! A value that must not be seen: without `Debug`, `Display` and `Serialize`, wiped when it is dropped.

use zeroize::Zeroize;

/// A secret in our own memory. Whoever wants the bytes says so ([`Secret::expose`]).
///
/// ```compile_fail
/// println!("{:?}", vambrace_redact::Secret::new("hunter2"));
/// ```
/// ```compile_fail
/// println!("{}", vambrace_redact::Secret::new("hunter2"));
/// ```
#[expect(missing_debug_implementations, reason = "a secret is not shown")]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes a value over.
    #[must_use]
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(value.into())
    }

    /// The bytes.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}
