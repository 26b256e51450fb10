//! Points in time and durations, as people write them.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo};
use prombus_proto::{Clock, SystemClock, Timestamp};

/// Parses a point in time, for a flag.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    time_at(text, SystemClock.now())
}

/// Parses a duration, for a flag. A bare number is in milliseconds.
pub(super) fn milliseconds(text: &str) -> Result<u64, String> {
    if let Ok(ms) = text.parse() {
        return Ok(ms);
    }
    duration_ms(text).ok_or_else(|| {
        "expected a duration such as 7d, 2h30m, 30s or 500ms, or a number of milliseconds"
            .to_owned()
    })
}

/// Parses a duration, for a flag. A bare number is in seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds: &f64| seconds.is_finite());
    let seconds = seconds.or_else(|| duration_ms(text).map(|ms| ms as f64 / 1e3));
    seconds.filter(|seconds| *seconds >= 0.0).ok_or_else(|| {
        "expected a duration such as 10s, 500ms or 2m, or a number of seconds".to_owned()
    })
}

/// Formats a duration for people, with its two largest units.
pub(super) fn human_duration(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    if ms < 1000 {
        return format!("{ms} ms");
    }
    let first = UNITS.iter().position(|(unit, _)| ms >= *unit).unwrap_or(UNITS.len() - 1);
    let (unit, name) = UNITS[first];
    let rest = UNITS.get(first + 1).map(|(smaller, name)| (ms % unit / smaller, name));
    match rest {
        Some((count @ 1.., smaller)) => format!("{}{name} {count}{smaller}", ms / unit),
        _ => format!("{}{name}", ms / unit),
    }
}

/// Formats a point in time for people, in UTC.
pub(super) fn human_time(time: Timestamp) -> String {
    let ms = i64::try_from(time.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    ms.map_or_else(|| time.to_string(), |time| time.to_string())
}

fn time_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let text = text.trim();
    if let Ok(ms) = text.parse() {
        return Ok(Timestamp(ms));
    }
    if text == "now" {
        return Ok(now);
    }
    if let Some(ms) = duration_ms(text) {
        return Ok(now.minus_ms(ms));
    }
    let instant = text.parse::<jiff::Timestamp>().ok();
    // Without an offset it is in UTC, so that it means the same on every machine.
    let in_utc = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    let instant = instant.or_else(|| Some(in_utc()?.timestamp()));
    let ms = instant.and_then(|instant| u64::try_from(instant.as_millisecond()).ok());
    ms.map(Timestamp).ok_or_else(|| {
        "expected a time such as 7d or 2h30m (before now), 2026-01-02, 2026-01-02T03:04:05Z, or \
         milliseconds since 1970"
            .to_owned()
    })
}

/// Returns `None` unless `text` is a duration of zero or more, in units of fixed length.
fn duration_ms(text: &str) -> Option<u64> {
    // Only with a unit: a bare number is for the caller to interpret.
    let span: Span = text.trim().parse().ok()?;
    // Months and years differ in length.
    if span.get_years() != 0 || span.get_months() != 0 {
        return None;
    }
    let duration: SignedDuration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    u64::try_from(duration.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_767_322_800_000); // 2026-01-02T03:00:00Z

    #[test]
    fn durations_are_before_now() {
        for (text, ms) in [
            ("7d", 604_800_000),
            ("90m", 5_400_000),
            ("2h30m", 9_000_000),
            ("1w", 604_800_000),
            ("1.5h", 5_400_000),
            ("250ms", 250),
            ("PT1H", 3_600_000),
            ("0s", 0),
        ] {
            assert_eq!(time_at(text, NOW), Ok(NOW.minus_ms(ms)), "{text}");
            assert_eq!(milliseconds(text), Ok(ms), "{text}");
        }
        assert_eq!(time_at("99999d", Timestamp(5)), Ok(Timestamp(0)));
    }

    #[test]
    fn dates_are_in_utc_unless_they_have_an_offset() {
        for (text, ms) in [
            ("2026-01-02", 1_767_312_000_000),
            ("2026-01-02T03:00:00Z", NOW.0),
            ("2026-01-02T03:00:00", NOW.0),
            ("2026-01-02 03:00", NOW.0),
            ("2026-01-02T04:00:00+01:00", NOW.0),
            ("2026-01-02T03:00:00.250Z", NOW.0 + 250),
            ("1767322800000", NOW.0),
            ("0", 0),
            ("now", NOW.0),
        ] {
            assert_eq!(time_at(text, NOW), Ok(Timestamp(ms)), "{text}");
        }
    }

    #[test]
    fn rejects_what_has_no_fixed_meaning() {
        for text in
            ["", "yesterday", "7", "2026-13-01", "1969-01-01", "1mo", "1y", "-7d", "7d ago", "5x"]
        {
            if text != "7" {
                assert!(time_at(text, NOW).is_err(), "{text}");
                assert!(milliseconds(text).is_err(), "{text}");
            }
        }
        assert_eq!(milliseconds("7"), Ok(7));
        assert_eq!(seconds("7"), Ok(7.0));
        assert_eq!(seconds("1m"), Ok(60.0));
        for text in ["-1", "nan", "inf", "x", "-1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formats_the_two_largest_units() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1s"),
            (61_000, "1m 1s"),
            (3_600_000, "1h"),
            (9_000_500, "2h 30m"),
            (604_800_000, "7d"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(human_duration(ms), text);
        }
        assert_eq!(human_time(NOW), "2026-01-02T03:00:00Z");
    }
}
