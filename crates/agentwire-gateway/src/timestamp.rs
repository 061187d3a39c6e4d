//! Times as ISO 8601 texts.

use jiff::{Timestamp, civil, tz::TimeZone};

/// A time in milliseconds since the epoch as ISO 8601, in UTC.
#[must_use]
pub fn iso(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

/// Milliseconds since the epoch from ISO 8601; `None` if the text is malformed or before the epoch. Without an offset it
/// is UTC: Python's `utcnow().isoformat()` writes none.
pub(crate) fn parse_iso(text: &str) -> Option<u64> {
    let time = text.parse::<Timestamp>().or_else(|error| match text.contains(['T', 't', ' ']) {
        true => text.parse::<civil::DateTime>()?.to_zoned(TimeZone::UTC).map(|time| time.timestamp()),
        false => Err(error),
    });
    u64::try_from(time.ok()?.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_iso_8601() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(iso(1_794_787_199_999), "2026-11-15T23:59:59.999Z");
    }

    #[test]
    fn iso_8601_is_read() {
        for millis in [0, 951_782_400_000, 1_794_787_199_999, 4_102_444_800_000] {
            assert_eq!(parse_iso(&iso(millis)), Some(millis));
        }
        assert_eq!(parse_iso("2026-11-16T01:59:59.999+02:00"), Some(1_794_787_199_999));
        assert_eq!(parse_iso("2026-11-15 18:29:59.999-0530"), Some(1_794_787_199_999));
        assert_eq!(parse_iso("2026-11-15T23:59:59.999"), Some(1_794_787_199_999));
        for other in [
            "",
            "soon",
            "2026-11-15",
            "2026-13-01T00:00:00Z",
            "2026-02-31T00:00:00Z",
            "2026-11-15T25:00:00Z",
            "2026-11-15T10:00:00+999999999999999999:00",
            "2026-11-15T10:00:00+00:-9223372036854775808",
            "99999999999999999-11-15T10:00:00Z",
            "2026-11-15T10:00:00+é",
        ] {
            assert_eq!(parse_iso(other), None, "{other}");
        }
    }
}
