//! Makes the typed whole out of single settings, and checks what has to go together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use prombus_engine::Durability;
use prombus_proto::Topic;
use prombus_proto::limits::MAX_EVENT_BYTES;

use super::known_keys::TOPICS;
use super::reading::NO_END;
use super::{
    Auth, Bucket, Config, ConfigError, EngineChoice, Gateway, Groups, KeyPath, Limits, Log, Server,
    Settings, Subscribe, Tls, TopicConfig,
};
use crate::logging::{LogFilter, LogFormat};
use crate::mongo_address::MongoAddress;

type Checked<T> = Result<T, ConfigError>;

/// What capacity and refill of a bucket may be.
pub(crate) const BUCKET_NUMBERS: RangeInclusive<u64> = 1..=1_000_000_000;
/// What times and sizes of retention may be.
pub(crate) const RETENTION_NUMBERS: RangeInclusive<u64> = 1..=NO_END;
/// What a durability may be, in words.
pub(crate) const DURABILITIES: &str = "fsync or buffered";

/// The durability that `text` names.
pub(crate) fn durability_of(text: &str) -> Option<Durability> {
    match text {
        "fsync" => Some(Durability::Fsync),
        "buffered" => Some(Durability::Buffered),
        _ => None,
    }
}

impl Config {
    /// Checks settings that were gathered.
    pub fn check(settings: &Settings) -> Checked<Self> {
        let limits = limits(settings)?;
        let config = Self {
            server: server(settings)?,
            topics: topics(settings, limits.topic)?,
            limits,
            auth: Auth::read(settings)?,
            gateway: gateway(settings)?,
            subscribe: subscribe(settings)?,
            groups: groups(settings)?,
            log: log(settings)?,
        };
        refuse_open_doors(settings, &config)?;
        Ok(config)
    }
}

fn server(settings: &Settings) -> Checked<Server> {
    let section = KeyPath::of("server");
    let address = |name| {
        let allowed = "an IP address and a port, such as 127.0.0.1:8090 or [::1]:8090";
        settings.parsed(&section.join(name), allowed, |text| text.parse().ok())
    };
    let data = |text: &str| (!text.is_empty()).then(|| text.into());
    Ok(Server {
        ws: address("ws")?,
        http: address("http")?,
        data: settings.parsed(&section.join("data"), "the path of a folder", data)?,
        engine: engine(settings, &section.join("engine"))?,
        insecure: settings.truth(&section.join("insecure"))?,
        threads: settings.number(&section.join("threads"), 0..=1024)?,
        shutdown_grace: settings.milliseconds(&section.join("shutdown_grace_ms"), 0..=600_000)?,
        tls: tls(settings)?,
    })
}

fn engine(settings: &Settings, key: &KeyPath) -> Checked<EngineChoice> {
    let text = settings.text(key)?;
    if MongoAddress::is_meant_by(text) {
        return text
            .parse()
            .map(EngineChoice::Mongo)
            .map_err(|error| settings.conflict(key, format!("has to be {error}")));
    }
    settings.parsed(key, "disk, memory or a mongodb:// address", |text| match text {
        "disk" => Some(EngineChoice::Disk),
        "memory" => Some(EngineChoice::Memory),
        _ => None,
    })
}

fn tls(settings: &Settings) -> Checked<Option<Tls>> {
    let (cert, key) = (KeyPath::of("server.tls.cert_file"), KeyPath::of("server.tls.key_file"));
    match (settings.path_or_none(&cert)?, settings.path_or_none(&key)?) {
        (Some(cert_file), Some(key_file)) => Ok(Some(Tls { cert_file, key_file })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(settings.conflict(&cert, format!("needs {key}, too"))),
        (None, Some(_)) => Err(settings.conflict(&key, format!("needs {cert}, too"))),
    }
}

fn limits(settings: &Settings) -> Checked<Limits> {
    let section = KeyPath::of("limits");
    let bucket = |name| {
        let section = section.join(name);
        Ok(Bucket {
            capacity: bucket_number(settings, &section.join("capacity"))?,
            refill_per_sec: bucket_number(settings, &section.join("refill_per_sec"))?,
        })
    };
    Ok(Limits {
        enabled: settings.truth(&section.join("enabled"))?,
        connection: bucket("connection")?,
        topic: bucket("topic")?,
    })
}

fn bucket_number(settings: &Settings, key: &KeyPath) -> Checked<u32> {
    settings.number(key, BUCKET_NUMBERS)
}

fn topics(settings: &Settings, usual: Bucket) -> Checked<BTreeMap<Topic, TopicConfig>> {
    let mut topics = BTreeMap::new();
    for key in settings.values.keys().filter(|key| key.segments()[0] == TOPICS) {
        let topic = Topic::new(&key.segments()[1])
            .map_err(|error| settings.conflict(key, format!("names no topic: {error}")))?;
        // Once for each of its keys, with the same outcome.
        topics.insert(topic, topic_config(settings, &key.prefix(2), usual)?);
    }
    Ok(topics)
}

fn topic_config(settings: &Settings, section: &KeyPath, usual: Bucket) -> Checked<TopicConfig> {
    let set = |key: &KeyPath| settings.values.contains_key(key);
    let number = |name| {
        let key = section.join(name);
        set(&key).then(|| settings.number(&key, RETENTION_NUMBERS)).transpose()
    };
    let durability = section.join("durability");
    let durability =
        set(&durability).then(|| settings.parsed(&durability, DURABILITIES, durability_of));
    Ok(TopicConfig {
        durability: durability.transpose()?,
        retention_ms: number("retention_ms")?,
        retention_bytes: number("retention_bytes")?,
        limit: topic_limit(settings, &section.join("limit"), usual)?,
    })
}

fn topic_limit(settings: &Settings, section: &KeyPath, usual: Bucket) -> Checked<Option<Bucket>> {
    let number = |name| {
        let key = section.join(name);
        settings.values.contains_key(&key).then(|| bucket_number(settings, &key)).transpose()
    };
    let (capacity, refill_per_sec) = (number("capacity")?, number("refill_per_sec")?);
    let limited = capacity.is_some() || refill_per_sec.is_some();
    Ok(limited.then(|| Bucket {
        capacity: capacity.unwrap_or(usual.capacity),
        refill_per_sec: refill_per_sec.unwrap_or(usual.refill_per_sec),
    }))
}

fn gateway(settings: &Settings) -> Checked<Gateway> {
    let section = KeyPath::of("gateway");
    let number = |name, range| settings.number(&section.join(name), range);
    let time = |name| settings.milliseconds(&section.join(name), 10..=3_600_000);
    Ok(Gateway {
        max_frame_bytes: number("max_frame_bytes", 1024..=MAX_EVENT_BYTES as u64)?,
        max_outbox_bytes: number("max_outbox_bytes", 1024..=1 << 30)?,
        max_subscriptions: number("max_subscriptions", 1..=10_000)?,
        max_connections: number("max_connections", 1..=1_000_000)?,
        ping_interval: time("ping_interval_ms")?,
        pong_timeout: time("pong_timeout_ms")?,
        auth_timeout: time("auth_timeout_ms")?,
        slow_consumer_timeout: time("slow_consumer_timeout_ms")?,
    })
}

fn subscribe(settings: &Settings) -> Checked<Subscribe> {
    let section = KeyPath::of("subscribe");
    Ok(Subscribe {
        max_in_flight: settings.number(&section.join("max_in_flight"), 1..=10_000)?,
        ack_timeout: settings.milliseconds(&section.join("ack_timeout_ms"), 100..=43_200_000)?,
        max_attempts: settings.number(&section.join("max_attempts"), 1..=1000)?,
    })
}

fn groups(settings: &Settings) -> Checked<Groups> {
    let lease = KeyPath::of("groups.lease_ms");
    Ok(Groups { lease: settings.milliseconds(&lease, 2000..=600_000)? })
}

fn log(settings: &Settings) -> Checked<Log> {
    let levels = "off, error, warn, info, debug or trace, perhaps with modules, such as \
                  info,prombus_server=debug";
    Ok(Log {
        level: settings.parsed(&KeyPath::of("log.level"), levels, LogFilter::parse)?,
        format: settings.parsed(
            &KeyPath::of("log.format"),
            "auto, text or json",
            |text| match text {
                "auto" => Some(LogFormat::Auto),
                "text" => Some(LogFormat::Text),
                "json" => Some(LogFormat::Json),
                _ => None,
            },
        )?,
    })
}

/// A public address needs authentication, or somebody who says that he means it.
fn refuse_open_doors(settings: &Settings, config: &Config) -> Checked<()> {
    if config.auth.is_required() || config.server.insecure {
        return Ok(());
    }
    for (name, address) in [("ws", config.server.ws), ("http", config.server.http)] {
        if !address.ip().to_canonical().is_loopback() {
            let reason = format!(
                "is {address}, which others can reach, and nobody has to authenticate: set \
                 auth.tokens or a key under auth.jwt, listen on 127.0.0.1, or say --insecure"
            );
            return Err(settings.conflict(&KeyPath::of("server").join(name), reason));
        }
    }
    Ok(())
}
