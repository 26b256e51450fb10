//! The response headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers).
//! They omit a limit that is off.

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use prombus_bus::{ConnectionLimit, LimitStatus, RateLimit};
use tokio::time::Instant;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit");

pub(super) fn add_headers(
    headers: &mut HeaderMap,
    connection: &ConnectionLimit,
    topic: Option<&RateLimit>,
) {
    let now = Instant::now().into_std();
    let topic = topic.and_then(|topic| topic.status(now));
    add_statuses(headers, connection.status(now), topic);
}

fn add_statuses(
    headers: &mut HeaderMap,
    connection: Option<LimitStatus>,
    topic: Option<LimitStatus>,
) {
    let limits = [("connection", connection), ("topic", topic)];
    let limits: Vec<_> =
        limits.into_iter().filter_map(|(name, standing)| Some((name, standing?))).collect();
    if limits.is_empty() {
        return;
    }
    let listed = |item: fn(&str, &LimitStatus) -> String| {
        let items: Vec<_> = limits.iter().map(|(name, standing)| item(name, standing)).collect();
        HeaderValue::try_from(items.join(", ")).expect("names and numbers are ASCII")
    };
    headers.insert(POLICY, listed(policy));
    headers.insert(REMAINING, listed(remaining));
}

fn policy(name: &str, LimitStatus { rate, .. }: &LimitStatus) -> String {
    let window = refill_seconds(rate.capacity, rate.refill_per_sec).max(1);
    format!("\"{name}\";q={};w={window}", rate.capacity)
}

fn remaining(name: &str, LimitStatus { rate, available }: &LimitStatus) -> String {
    let until_full = refill_seconds(rate.capacity.saturating_sub(*available), rate.refill_per_sec);
    format!("\"{name}\";r={available};t={until_full}")
}

/// Returns the seconds it takes to refill `tokens`.
fn refill_seconds(tokens: u64, per_second: u64) -> u64 {
    tokens.div_ceil(per_second.max(1))
}

#[cfg(test)]
mod tests {
    use prombus_bus::Rate;

    use super::*;

    #[test]
    fn reports_limits_and_remaining_tokens() {
        let limit = |capacity, refill_per_sec, taken| {
            let rate = Rate { capacity, refill_per_sec };
            Some(LimitStatus { rate, available: capacity - taken })
        };
        let mut headers = HeaderMap::new();
        add_statuses(&mut headers, limit(100, 1, 42), limit(5, 1000, 0));
        assert_eq!(headers[POLICY], "\"connection\";q=100;w=100, \"topic\";q=5;w=1");
        assert_eq!(headers[REMAINING], "\"connection\";r=58;t=42, \"topic\";r=5;t=0");
        let mut headers = HeaderMap::new();
        add_statuses(&mut headers, None, limit(5, 1, 5));
        assert_eq!(headers[POLICY], "\"topic\";q=5;w=5");
        assert_eq!(headers[REMAINING], "\"topic\";r=0;t=5");
        let mut headers = HeaderMap::new();
        add_statuses(&mut headers, None, None);
        assert!(headers.is_empty());
    }
}
