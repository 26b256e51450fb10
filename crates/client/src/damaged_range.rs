//! Events that the server cannot read back.

use std::fmt;

use serde::Deserialize;

/// Events that the server has stored but cannot read back, because its storage is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct DamagedRange {
    /// The `seq` of the first of them.
    pub first_seq: u64,
    /// The `seq` of the last of them.
    pub last_seq: u64,
}

/// A line of an export in the place of damaged events.
#[derive(Deserialize)]
struct DamagedLine {
    damaged: DamagedRange,
}

impl DamagedRange {
    /// The start of a line of an export that names damaged events. A line with an event starts with
    /// its `seq`.
    pub const LINE_START: &[u8] = b"{\"damaged\":";

    /// Parses a line of an export. Returns `None` if it does not name damaged events.
    #[must_use]
    pub fn from_line(line: &[u8]) -> Option<Self> {
        if !line.starts_with(Self::LINE_START) {
            return None;
        }
        serde_json::from_slice(line).ok().map(|DamagedLine { damaged }| damaged)
    }
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first_seq, last_seq } = self;
        match first_seq == last_seq {
            true => write!(f, "event {first_seq} is damaged"),
            false => write!(f, "events {first_seq} to {last_seq} are damaged"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_only_lines_that_name_damage() {
        let range = DamagedRange::from_line(br#"{"damaged":{"first_seq":4,"last_seq":6}}"#);
        assert_eq!(range, Some(DamagedRange { first_seq: 4, last_seq: 6 }));
        assert_eq!(range.unwrap().to_string(), "events 4 to 6 are damaged");
        assert_eq!(DamagedRange::from_line(br#"{"seq":1,"id":"a","payload":{"damaged":1}}"#), None);
        assert_eq!(DamagedRange::from_line(br#"{"damaged":7}"#), None);
    }
}
