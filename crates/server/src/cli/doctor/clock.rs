//! This machine's clock, by itself and compared with others.

use prombus_proto::{Clock, SystemClock, Timestamp};

use super::finding::{Finding, Findings};
use crate::cli::times::{human_duration, human_time};

const AREA: &str = "clock";
/// This program did not exist before 2026.
const EARLIEST: Timestamp = Timestamp(1_767_225_600_000);
/// A difference that says more than how long the answer took.
const NOTABLE_MS: u64 = 5000;
/// A difference that makes deadlines and retention visibly wrong.
const WRONG_MS: u64 = 60_000;

pub(super) fn check(findings: &mut Findings) {
    let now = SystemClock.now();
    let time = human_time(now);
    findings.push(match now < EARLIEST {
        true => Finding::problem(
            AREA,
            format!("the clock shows {time}"),
            "set the clock, and start NTP",
        ),
        false => Finding::ok(AREA, format!("the clock shows {time}")),
    });
}

/// Compares the clock with that of `whose`, whose time was read between `before` and `after`.
pub(super) fn compare(
    whose: &str,
    theirs: Timestamp,
    before: Timestamp,
    after: Timestamp,
) -> Finding {
    let ahead = before.0.saturating_sub(theirs.0);
    let behind = theirs.0.saturating_sub(after.0);
    let (difference, direction) = match ahead > 0 {
        true => (ahead, "behind"),
        false => (behind, "ahead of"),
    };
    let difference_text = human_duration(difference);
    let message = format!("the clock of {whose} is {difference_text} {direction} this one");
    let advice = "start NTP on both machines: retention and deadlines use the server's clock, timestamps of events \
                  their publisher's";
    match difference {
        0..NOTABLE_MS => Finding::ok(AREA, format!("the clock of {whose} agrees with this one")),
        NOTABLE_MS..WRONG_MS => Finding::warning(AREA, message, advice),
        _ => Finding::problem(AREA, message, advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    #[test]
    fn tolerates_what_an_answer_takes() {
        let at = Timestamp(1_800_000_000_000);
        let compared = |theirs: Timestamp| compare("it", theirs, at, at.plus_ms(900)).level;
        assert_eq!(compared(at.minus_ms(4999)), Level::Ok);
        assert_eq!(compared(at.plus_ms(5800)), Level::Ok);
        assert_eq!(compared(at.minus_ms(5000)), Level::Warning);
        assert_eq!(compared(at.plus_ms(5900)), Level::Warning);
        assert_eq!(compared(at.minus_ms(60_000)), Level::Problem);
        let text = compare("it", at.minus_ms(3_600_000), at, at).message;
        assert_eq!(text, "the clock of it is 1h behind this one");
    }
}
