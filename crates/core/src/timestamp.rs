//! A moment in UTC with milliseconds, handed in by whoever holds the clock. Written in one fixed width, so
//! that text order is time order.

use std::fmt;

const LAST: i64 = 253_402_300_799_999;
const DAY: i64 = 86_400_000;

/// Milliseconds since 1970-01-01T00:00:00Z, within the years 1970 to 9999.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(i64);

/// Text that is not a timestamp of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a timestamp: expected the form `2026-01-31T12:00:00.000Z`")]
pub struct BadTimestamp;

impl Timestamp {
    /// From milliseconds since 1970; what lies outside the years 1970 to 9999 becomes the nearest end.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(if millis < 0 {
            0
        } else if millis > LAST {
            LAST
        } else {
            millis
        })
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Later by so many milliseconds.
    #[must_use]
    pub const fn later(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_add(millis))
    }

    /// Earlier by so many milliseconds.
    #[must_use]
    pub const fn earlier(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_sub(millis))
    }

    /// The 24 characters of the one fixed form.
    #[must_use]
    pub fn text(self) -> [u8; 24] {
        let (year, month, day) = civil(self.0.div_euclid(DAY));
        let rest = self.0.rem_euclid(DAY);
        let parts: [(usize, usize, i64); 7] = [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, rest / 3_600_000),
            (14, 2, rest / 60_000 % 60),
            (17, 2, rest / 1000 % 60),
            (20, 3, rest % 1000),
        ];
        let mut out = *b"0000-00-00T00:00:00.000Z";
        for (at, width, mut value) in parts {
            for digit in out.iter_mut().skip(at).take(width).rev() {
                *digit = b'0' + u8::try_from(value % 10).unwrap_or(0);
                value /= 10;
            }
        }
        out
    }

    /// Reads the one fixed form.
    pub fn parse(text: &str) -> Result<Self, BadTimestamp> {
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = text.get(from..to)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let read = || {
            let day = days(number(0, 4)?, number(5, 7)?, number(8, 10)?);
            let (hour, minute) = (number(11, 13)?, number(14, 16)?);
            let (second, millis) = (number(17, 19)?, number(20, 23)?);
            Some(Self::from_millis(day * DAY + ((hour * 60 + minute) * 60 + second) * 1000 + millis))
        };
        // Writing it again pins the separators and refuses the 31st of February.
        read().filter(|at| at.text() == text.as_bytes()).ok_or(BadTimestamp)
    }
}

/// Days since 1970 to year, month, day (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

/// The inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let y = year - i64::from(month <= 2);
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = if month > 2 { month - 3 } else { month + 9 };
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + (153 * mp + 2) / 5 + day - 1;
    era * 146_097 + doe - 719_468
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
    fn known_moments_have_their_known_text() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_785_000_000_123, "2026-07-25T17:20:00.123Z"),
            (LAST, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
        for bad in ["", "2026-02-31T00:00:00.000Z", "2026-01-01 00:00:00.000Z", "2026-01-01T00:00:00Z"] {
            assert_eq!(Timestamp::parse(bad), Err(BadTimestamp), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_reads_back_and_sorts_like_time(a in 0..=LAST, b in 0..=LAST) {
            let (a, b) = (Timestamp::from_millis(a), Timestamp::from_millis(b));
            prop_assert_eq!(Timestamp::parse(&a.to_string()), Ok(a));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
