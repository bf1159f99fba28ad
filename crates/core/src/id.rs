//! Names that point at one thing each. Newtypes, so that a session is never taken for a call.

use std::fmt;
use std::sync::Arc;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the name as it is.
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
    /// One call, from the moment it is admitted.
    CallId;
    /// One conversation of one agent.
    SessionId;
    /// The canonical name of a tool.
    ToolName;
    /// The name of a role.
    RoleName;
}

impl CallId {
    /// A UUID of version 7: ordered by time, so that rows with it are appended, not scattered.
    #[must_use]
    pub fn from_parts(unix_ms: i64, random: u128) -> Self {
        Self::new(uuid_v7(unix_ms, random))
    }

    /// The smallest id that a call admitted at this time can have.
    #[must_use]
    pub fn floor(unix_ms: i64) -> Self {
        Self::from_parts(unix_ms, 0)
    }
}

/// The text of a version 7 UUID.
#[must_use]
pub fn uuid_v7(unix_ms: i64, random: u128) -> String {
    let time = u128::try_from(unix_ms).unwrap_or(0) & 0xffff_ffff_ffff;
    let low = random & 0x3fff_ffff_ffff_ffff;
    let mid = (random >> 62) & 0xfff;
    let bits = (time << 80) | (0x7 << 76) | (mid << 64) | (0b10 << 62) | low;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        bits >> 96,
        (bits >> 80) & 0xffff,
        (bits >> 64) & 0xffff,
        (bits >> 48) & 0xffff,
        bits & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_their_version_and_sort_by_time() {
        let (early, late) = (uuid_v7(1_700_000_000_000, u128::MAX), uuid_v7(1_700_000_000_001, 0));
        assert!(early < late);
        assert_eq!(early.len(), 36);
        assert_eq!(early.get(14..15), Some("7"));
        assert!(matches!(early.get(19..20), Some("8" | "9" | "a" | "b")));
        assert!(CallId::floor(1_700_000_000_000).as_str() <= early.as_str());
    }
}
