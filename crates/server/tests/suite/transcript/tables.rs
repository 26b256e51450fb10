//! The tables of `docs/protocol.md` match the code.

use prombus_proto::{ErrorCode, limits};
use prombus_server::config::{Config, Sources};
use prombus_server::gateway::close_code::CloseCode;

use crate::transcript::PROTOCOL;

/// Returns the cells of the first table below `heading`, without its header.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PROTOCOL.split_once(&format!("\n{heading}\n")).expect(heading);
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn error_codes() {
    let expected: Vec<_> = ErrorCode::ALL
        .iter()
        .map(|code| (format!("`{code}`"), if code.is_retryable() { "yes" } else { "no" }))
        .collect();
    let documented: Vec<_> =
        table("### Error codes").iter().map(|row| (row[0].to_owned(), row[2])).collect();
    assert_eq!(documented, expected);
}

#[test]
fn close_codes() {
    let expected: Vec<_> =
        CloseCode::ALL.iter().map(|code| (code.number().to_string(), code.reason())).collect();
    let rows = table("### Close codes");
    let documented: Vec<_> = rows.iter().map(|row| (row[0].to_owned(), row[1])).collect();
    assert_eq!(documented, expected);
    for row in rows {
        assert!(row[2].starts_with("yes") || row[2].starts_with("no"), "{row:?}");
    }
}

#[test]
fn size_limits() {
    let config = defaults();
    let expected = [
        config.gateway.max_frame_bytes,
        limits::MAX_FRAME_BYTES_BEFORE_AUTH,
        limits::MAX_NAME_BYTES,
        limits::MAX_ID_BYTES,
        limits::MAX_KEY_BYTES,
        limits::MAX_HEADERS,
        limits::MAX_CORR_BYTES,
        limits::MAX_FRAME_NESTING as usize,
        limits::MAX_PAYLOAD_NESTING as usize,
        limits::MAX_FRAME_EVENTS,
        limits::MAX_IN_FLIGHT as usize,
        limits::MAX_IN_FLIGHT as usize,
        usize::try_from(limits::MAX_LEASE_MS).unwrap(),
        limits::MAX_ATTEMPTS as usize,
        usize::try_from(limits::MAX_NACK_DELAY_MS).unwrap(),
        limits::MAX_REASON_BYTES,
        usize::try_from(limits::MAX_MARK_TTL_MS).unwrap(),
        config.gateway.max_subscriptions,
        config.gateway.max_connections,
        config.gateway.max_connections_per_address,
        config.limits.max_topics,
        config.limits.max_groups_per_topic,
    ];
    let rows = table("## Limits");
    let documented: Vec<usize> =
        rows.iter().map(|row| row[1].replace(',', "").parse().unwrap()).collect();
    assert_eq!(documented, expected);
}

#[test]
fn rate_limits() {
    let limits = defaults().limits;
    let rows = table("## Rate limits");
    for (row, bucket) in rows.iter().zip([limits.connection, limits.principal, limits.topic]) {
        let expected = [bucket.capacity, bucket.refill_per_sec].map(|number| number.to_string());
        assert_eq!(row[1..3], expected);
    }
    assert_eq!(rows.len(), 3);
}

#[test]
fn subscription_defaults() {
    let expected = defaults().subscribe;
    let rows = table("### SUBSCRIBE");
    let documented = |name: &str| {
        let row = rows.iter().find(|row| row[0] == format!("`{name}`")).expect(name);
        row[1].replace(',', "")
    };
    assert_eq!(documented("maxInFlight"), expected.max_in_flight.to_string());
    assert_eq!(documented("ackTimeoutMs"), expected.ack_timeout.as_millis().to_string());
    assert_eq!(documented("maxAttempts"), expected.max_attempts.to_string());
}

fn defaults() -> Config {
    Config::load(&Sources::default()).expect("the default file is valid")
}
