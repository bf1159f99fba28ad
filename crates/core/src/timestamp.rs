//! A UTC timestamp with millisecond precision. The text form has a fixed width, so that text order is time order.

use std::fmt;

use jiff::fmt::temporal::DateTimePrinter;

/// The last second that `jiff` can represent: 26 hours before the end of the year 9999.
const MAX_MILLIS: i64 = 253_402_207_200_000;
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Milliseconds since 1970-01-01T00:00:00Z, within the years 1970 to 9999.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// Text that is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a timestamp: expected the form `2026-01-31T12:00:00.000Z`")]
pub struct BadTimestamp;

impl Timestamp {
    /// From milliseconds since 1970; values outside the years 1970 to 9999 are clamped.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(if millis < 0 {
            0
        } else if millis > MAX_MILLIS {
            MAX_MILLIS
        } else {
            millis
        })
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// This time plus a number of milliseconds.
    #[must_use]
    pub const fn later(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_add(millis))
    }

    /// This time minus a number of milliseconds.
    #[must_use]
    pub const fn earlier(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_sub(millis))
    }

    /// The text form, 24 characters.
    #[must_use]
    pub fn text(self) -> [u8; 24] {
        let mut text = FixedText { bytes: *b"1970-01-01T00:00:00.000Z", written: 0 };
        // INVARIANT: every value is within the years 1970 to 9999, so that it can be printed and has 24 characters.
        if let Ok(time) = jiff::Timestamp::from_millisecond(self.0) {
            let _ = PRINTER.print_timestamp(&time, jiff::fmt::StdFmtWrite(&mut text));
        }
        text.bytes
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, BadTimestamp> {
        let time: jiff::Timestamp = text.parse().map_err(|_| BadTimestamp)?;
        let time = Self::from_millis(time.as_millisecond());
        // Formatting the result again rejects every other spelling of the same time.
        if time.text() == text.as_bytes() { Ok(time) } else { Err(BadTimestamp) }
    }
}

/// A fixed buffer that is written to from its beginning; avoids an allocation for each timestamp.
struct FixedText {
    bytes: [u8; 24],
    written: usize,
}

impl fmt::Write for FixedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.written + text.len();
        self.bytes.get_mut(self.written..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.written = end;
        Ok(())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_timestamps_format_as_expected_and_invalid_text_is_rejected() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_785_000_000_123, "2026-07-25T17:20:00.123Z"),
            (MAX_MILLIS, "9999-12-30T22:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
        for bad in ["", "2026-02-31T00:00:00.000Z", "2026-01-01 00:00:00.000Z", "2026-01-01T00:00:00Z"] {
            assert_eq!(Timestamp::parse(bad), Err(BadTimestamp), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_form_parses_and_sorts_by_time(a in 0..=MAX_MILLIS, b in 0..=MAX_MILLIS) {
            let (a, b) = (Timestamp::from_millis(a), Timestamp::from_millis(b));
            prop_assert_eq!(Timestamp::parse(&a.to_string()), Ok(a));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
