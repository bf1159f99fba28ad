//! Identifiers. An [`Id`] is made by this program: for a call, a session, a writer. It has plain characters only, so it
//! needs no escaping in a line, a file name or a prompt. An id that an agent sends is untrusted text and goes through
//! the redactor instead.

use std::fmt;
use std::sync::Arc;

/// Maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 128;

/// An id made by this program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(Box<str>);

/// Text that cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: expected 1 to 128 letters, digits and `-`, `_`, `.`, `:`")]
pub struct BadId;

impl Id {
    /// Checks the form. Never call this with text that an agent sent.
    pub fn new(text: &str) -> Result<Self, BadId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if text.is_empty() || text.len() > MAX_ID_BYTES || !text.bytes().all(plain) {
            return Err(BadId);
        }
        Ok(Self(text.into()))
    }

    /// An id that sorts by time (the layout of a version 7 UUID), so that tables keyed by it only grow at the end. The
    /// caller passes time and random bytes.
    #[must_use]
    pub fn time_ordered(prefix: &'static str, millis: u64, random: [u8; 10]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j] = random;
        let random_a = u16::from_be_bytes([a, b]) & 0x0fff | 0x7000;
        let random_b = u16::from_be_bytes([c, d]) & 0x3fff | 0x8000;
        let random_c = u64::from_be_bytes([0, 0, e, f, g, h, i, j]);
        let (high, low) = (millis >> 16 & 0xffff_ffff, millis & 0xffff);
        Self(format!("{prefix}{high:08x}-{low:04x}-{random_a:04x}-{random_b:04x}-{random_c:012x}").into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Id {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the name; no checks.
            pub fn new(name: impl AsRef<str>) -> Self {
                Self(name.as_ref().into())
            }

            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )* };
}

ids! {
    /// The canonical name of a tool.
    ToolName;
    /// The name of a role.
    RoleName;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_has_plain_characters_only() {
        for good in ["w-1", "hitl-0123", "a.b:c_d", &"x".repeat(128)] {
            assert!(Id::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\"b", "a\n", "a/b", "ä", &"x".repeat(129)] {
            assert_eq!(Id::new(bad), Err(BadId), "{bad}");
        }
    }

    #[test]
    fn time_ordered_ids_sort_by_time_whatever_the_random_bytes() {
        let early = Id::time_ordered("c-", 1_700_000_000_000, [0xff; 10]);
        let late = Id::time_ordered("c-", 1_700_000_000_001, [0; 10]);
        assert!(early < late);
        assert_eq!(late.as_str(), "c-018bcfe5-6801-7000-8000-000000000000");
        assert!(Id::new(early.as_str()).is_ok());
    }
}
