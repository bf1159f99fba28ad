//! A secret in memory: no `Debug`, `Display` or `Serialize`, wiped when dropped.

use zeroize::Zeroize;

/// A secret in our own memory. Only [`SecretBytes::expose`] returns its bytes.
///
/// ```compile_fail
/// println!("{:?}", vambrace_redact::SecretBytes::new("hunter2"));
/// ```
/// ```compile_fail
/// println!("{}", vambrace_redact::SecretBytes::new("hunter2"));
/// ```
#[expect(missing_debug_implementations, reason = "a secret is not shown")]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    /// Takes ownership of a value.
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

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl From<String> for SecretBytes {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

impl From<&str> for SecretBytes {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}
