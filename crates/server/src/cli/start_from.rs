//! Where a group starts or goes on, as people write it.

use prombus_proto::EventId;
use prombus_proto::frame::StartFrom;

use super::times::time;

/// Parses a start, for a flag.
pub(super) fn start_from(text: &str) -> Result<StartFrom, String> {
    match text.split_once(':') {
        None if text == "earliest" => Ok(StartFrom::Earliest),
        None if text == "latest" => Ok(StartFrom::Latest),
        Some(("ts", at)) => time(at).map(StartFrom::Ts),
        Some(("after", id)) => {
            EventId::new(id).map(StartFrom::AfterId).map_err(|error| error.to_string())
        }
        // A bare number may be meant as a position.
        _ if text.parse::<u64>().is_err() => {
            time(text).map(StartFrom::Ts).map_err(|_| start_error())
        }
        _ => Err(start_error()),
    }
}

fn start_error() -> String {
    "expected earliest, latest, a time such as 2h or 2026-01-02, ts:TIME or after:ID".to_owned()
}

#[cfg(test)]
mod tests {
    use prombus_proto::Timestamp;

    use super::*;

    #[test]
    fn parses_the_start_of_a_group() {
        assert_eq!(start_from("earliest"), Ok(StartFrom::Earliest));
        assert_eq!(start_from("latest"), Ok(StartFrom::Latest));
        assert_eq!(start_from("ts:17"), Ok(StartFrom::Ts(Timestamp(17))));
        let time = Ok(StartFrom::Ts(Timestamp(1_767_323_045_000)));
        assert_eq!(start_from("ts:2026-01-02T03:04:05Z"), time);
        assert_eq!(start_from("2026-01-02T03:04:05Z"), time);
        assert!(matches!(start_from("2h30m"), Ok(StartFrom::Ts(_))));
        let id = EventId::new("a:b").unwrap();
        assert_eq!(start_from("after:a:b"), Ok(StartFrom::AfterId(id)));
        for invalid in ["", "first", "ts", "ts:", "ts:x", "after:", "earliest:1", "17"] {
            assert!(start_from(invalid).is_err(), "{invalid}");
        }
    }
}
