//! The defaults match what the protocol documents.

use std::path::Path;
use std::time::Duration;

use prombus_server::config::{BucketConfig, EngineConfig, Sources};
use prombus_server::logging::{LogFilter, LogFormat};

use crate::config::{loaded, set};

#[test]
fn the_limit_of_a_principal_follows_that_of_a_connection() {
    let principal = |text: &[&str]| loaded(&set(text)).limits.principal;
    let connection = ["limits.connection.capacity=7", "limits.connection.refill_per_sec=3"];
    let expected = BucketConfig { capacity: 140, refill_per_sec: 60 };
    assert_eq!(principal(&connection), expected);
    let own = [&connection[..], &["limits.principal.capacity=9"]].concat();
    assert_eq!(principal(&own), BucketConfig { capacity: 9, ..expected });
}

#[test]
fn defaults_match_the_protocol() {
    let config = loaded(&Sources::default());
    let (ms, mib) = (Duration::from_millis, 1 << 20);

    assert_eq!(config.server.ws.to_string(), "127.0.0.1:8090");
    assert_eq!(config.server.http.to_string(), "127.0.0.1:8083");
    assert_eq!(config.server.data, Path::new("./prombus-data"));
    assert_eq!(config.server.engine, EngineConfig::Disk);
    assert!(!config.server.start_damaged);
    assert!(!config.server.insecure);
    assert_eq!(config.server.threads, 0);
    assert_eq!(config.server.shutdown_grace, ms(10_000));
    assert!(config.server.tls.is_none());

    assert!(config.limits.enabled);
    assert_eq!(config.limits.connection, BucketConfig { capacity: 200, refill_per_sec: 200 });
    assert_eq!(config.limits.connection_bytes_per_sec, 64 * mib as u64);
    assert_eq!(config.limits.principal, BucketConfig { capacity: 4000, refill_per_sec: 4000 });
    assert_eq!(config.limits.max_topics, 100_000);
    assert_eq!(config.limits.max_groups_per_topic, 1000);
    assert_eq!(config.limits.topic, BucketConfig { capacity: 1000, refill_per_sec: 1000 });
    assert!(config.topics.is_empty());
    let patterns =
        config.topic_patterns.iter().map(|(pattern, own)| (pattern.to_string(), own.retention_ms));
    assert_eq!(patterns.collect::<Vec<_>>(), [("dlq.**".to_owned(), Some(30 * 86_400_000))]);

    assert!(!config.auth.is_required());
    assert!(config.auth.jwt.issuer.is_none() && config.auth.jwt.audience.is_none());
    assert!(config.auth.allowed_origins.is_empty());

    assert_eq!(config.gateway.max_frame_bytes, mib);
    assert_eq!(config.gateway.max_outbox_bytes, mib);
    assert_eq!(config.gateway.max_subscriptions, 128);
    assert_eq!(config.gateway.max_connections, 10_000);
    assert_eq!(config.gateway.max_connections_per_address, 1000);
    assert_eq!(config.gateway.ndjson_memory_bytes, 128 * mib);
    assert_eq!(config.gateway.ping_interval, ms(25_000));
    assert_eq!(config.gateway.pong_timeout, ms(10_000));
    assert_eq!(config.gateway.auth_timeout, ms(10_000));
    assert_eq!(config.gateway.slow_consumer_timeout, ms(10_000));

    let memory = config.memory;
    assert_eq!((memory.feeds, memory.deliveries), (64 * mib, 128 * mib));
    assert_eq!((memory.frames, memory.responses), (64 * mib, 64 * mib));

    assert_eq!(config.subscribe.max_in_flight, 100);
    assert_eq!(config.subscribe.ack_timeout, ms(30_000));
    assert_eq!(config.subscribe.max_attempts, 5);

    assert_eq!(config.groups.lease, ms(10_000));
    assert_eq!(config.groups.retry.first, ms(1000));
    assert_eq!(config.groups.retry.factor, 5);
    assert_eq!(config.groups.retry.max, ms(600_000));

    assert_eq!(Some(config.log.level), LogFilter::parse("info"));
    assert_eq!(config.log.format, LogFormat::Auto);
}
