//! Time and chance as values that are handed in. Nothing in the program asks the machine for them but the
//! door, which hands over the real ones; tests hand over their own.

/// A moment: milliseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    /// RFC 3339 with milliseconds, UTC.
    #[must_use]
    pub fn rfc3339(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(stamp) => format!("{stamp:.3}"),
            Err(_) => format!("{}ms", self.0),
        }
    }

    /// This much later.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Moment;
}

/// Where chance comes from.
pub trait Chance: Send + Sync {
    /// 128 bits that nobody can foresee.
    fn draw(&self) -> u128;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_with_milliseconds() {
        assert_eq!(Moment(0).rfc3339(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Moment(1_700_000_000_123).rfc3339(), "2023-11-14T22:13:20.123Z");
    }
}
