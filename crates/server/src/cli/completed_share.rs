//! How much of a known total is done, and how long the rest will take.

use super::times::human_duration;

/// Describes the progress, such as `42%, 1m 30s left`. Returns `None` without a total.
pub(super) fn describe_completion(done: u64, total: u64, seconds: f64) -> Option<String> {
    if total == 0 {
        return None;
    }
    // Events that were added since the start are beyond the total.
    let done = done.min(total);
    let percent = u128::from(done) * 100 / u128::from(total);
    if done == 0 || done == total {
        return Some(format!("{percent}%"));
    }
    let ms = seconds * 1e3 * (total - done) as f64 / done as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let left = human_duration((ms as u64).div_ceil(1000).saturating_mul(1000));
    Some(format!("{percent}%, {left} left"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extrapolates_the_time_left() {
        let of = |done, total| describe_completion(done, total, 10.0);
        assert_eq!(of(25, 100).as_deref(), Some("25%, 30s left"));
        assert_eq!(of(999, 1000).as_deref(), Some("99%, 1s left"));
        assert_eq!(of(0, 100).as_deref(), Some("0%"));
        assert_eq!(of(120, 100).as_deref(), Some("100%"));
        assert_eq!(of(1, u64::MAX).map(|text| text.starts_with("0%, ")), Some(true));
        assert_eq!(of(5, 0), None);
    }
}
