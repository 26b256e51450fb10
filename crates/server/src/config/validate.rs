//! Builds the typed configuration, and checks settings that depend on each other.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use prombus_client::transport::{Protocol, ServerAddress};
use prombus_engine::Durability;
use prombus_proto::limits::{MAX_EVENT_BYTES, MAX_NACK_DELAY_MS};
use prombus_proto::{NamePattern, Topic};

use super::known_keys::TOPICS;
use super::values::UNBOUNDED;
use super::{
    AuthConfig, BucketConfig, ClientAuth, Config, ConfigError, EngineConfig, GatewayConfig,
    GroupsConfig, KeyPath, LimitsConfig, LogConfig, MemoryConfig, RawConfig, RetryConfig,
    ServerConfig, SubscribeConfig, TlsConfig, TopicConfig, TracingConfig,
};
use crate::logging::{LogFilter, LogFormat};
use crate::mongo_address::MongoAddress;

type Result<T> = std::result::Result<T, ConfigError>;

/// Allowed capacities and refill rates of a bucket.
pub(crate) const BUCKET_RANGE: RangeInclusive<u64> = 1..=1_000_000_000;
/// Allowed retention times and sizes.
pub(crate) const RETENTION_RANGE: RangeInclusive<u64> = 1..=UNBOUNDED;
/// The allowed durabilities, for error messages.
pub(crate) const DURABILITY_WORDS: &str = "fsync or buffered";

pub(crate) fn parse_durability(text: &str) -> Option<Durability> {
    match text {
        "fsync" => Some(Durability::Fsync),
        "buffered" => Some(Durability::Buffered),
        _ => None,
    }
}

impl Config {
    /// Validates merged settings.
    ///
    /// # Errors
    ///
    /// A value has the wrong type, format or range, or settings contradict each other.
    pub fn validate(raw: &RawConfig) -> Result<Self> {
        let limits = limits(raw)?;
        let (topics, topic_patterns) = topics(raw, limits.topic)?;
        let config = Self {
            server: server(raw)?,
            topics,
            topic_patterns,
            limits,
            auth: AuthConfig::read(raw)?,
            gateway: gateway(raw)?,
            memory: memory(raw)?,
            subscribe: subscribe(raw)?,
            groups: groups(raw)?,
            log: log(raw)?,
            tracing: tracing(raw)?,
        };
        reject_unauthenticated_public_address(raw, &config)?;
        reject_certificates_without_client_auth(raw, &config)?;
        reject_too_little_memory_for_frames(raw, &config)?;
        Ok(config)
    }
}

fn server(raw: &RawConfig) -> Result<ServerConfig> {
    let section = KeyPath::of("server");
    let address = |name| {
        let allowed = "an IP address and a port, such as 127.0.0.1:8090 or [::1]:8090";
        raw.parsed(&section.join(name), allowed, |text| text.parse().ok())
    };
    let data = |text: &str| (!text.is_empty()).then(|| text.into());
    Ok(ServerConfig {
        ws: address("ws")?,
        http: address("http")?,
        data: raw.parsed(&section.join("data"), "the path of a directory", data)?,
        engine: engine(raw, &section.join("engine"))?,
        start_damaged: raw.bool(&KeyPath::of("server.disk.start_damaged"))?,
        insecure: raw.bool(&section.join("insecure"))?,
        threads: raw.integer(&section.join("threads"), 0..=1024)?,
        shutdown_grace: raw.milliseconds(&section.join("shutdown_grace_ms"), 0..=600_000)?,
        tls: tls(raw)?,
    })
}

fn engine(raw: &RawConfig, key: &KeyPath) -> Result<EngineConfig> {
    let text = raw.string(key)?;
    if MongoAddress::has_mongo_scheme(text) {
        return text
            .parse()
            .map(EngineConfig::Mongo)
            .map_err(|error| raw.conflict(key, format!("must be {error}")));
    }
    raw.parsed(key, "disk, memory or a mongodb:// address", |text| match text {
        "disk" => Some(EngineConfig::Disk),
        "memory" => Some(EngineConfig::Memory),
        _ => None,
    })
}

fn tls(raw: &RawConfig) -> Result<Option<TlsConfig>> {
    let (cert, key) = (KeyPath::of("server.tls.cert_file"), KeyPath::of("server.tls.key_file"));
    let client_auth = client_auth(raw)?;
    match (raw.optional_path(&cert)?, raw.optional_path(&key)?) {
        (Some(cert_file), Some(key_file)) => {
            Ok(Some(TlsConfig { cert_file, key_file, client_auth }))
        }
        (None, None) if client_auth != ClientAuth::Off => {
            Err(raw.conflict(&KeyPath::of("server.tls.client_auth"), format!("also needs {cert}")))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(raw.conflict(&cert, format!("also needs {key}"))),
        (None, Some(_)) => Err(raw.conflict(&key, format!("also needs {cert}"))),
    }
}

fn client_auth(raw: &RawConfig) -> Result<ClientAuth> {
    enum Mode {
        Off,
        Optional,
        Required,
    }
    let auth = KeyPath::of("server.tls.client_auth");
    let ca = KeyPath::of("server.tls.client_ca_file");
    let mode = raw.parsed(&auth, "off, optional or required", |text| match text {
        "off" => Some(Mode::Off),
        "optional" => Some(Mode::Optional),
        "required" => Some(Mode::Required),
        _ => None,
    })?;
    match (mode, raw.optional_path(&ca)?) {
        (Mode::Off, None) => Ok(ClientAuth::Off),
        (Mode::Optional, Some(ca_file)) => Ok(ClientAuth::Optional { ca_file }),
        (Mode::Required, Some(ca_file)) => Ok(ClientAuth::Required { ca_file }),
        (Mode::Off, Some(_)) => {
            Err(raw.conflict(&ca, format!("has no effect: set {auth} to optional or required")))
        }
        (Mode::Optional | Mode::Required, None) => {
            Err(raw.conflict(&auth, format!("also needs {ca}")))
        }
    }
}

fn limits(raw: &RawConfig) -> Result<LimitsConfig> {
    let section = KeyPath::of("limits");
    let bucket = |name| {
        let section = section.join(name);
        Ok(BucketConfig {
            capacity: bucket_integer(raw, &section.join("capacity"))?,
            refill_per_sec: bucket_integer(raw, &section.join("refill_per_sec"))?,
        })
    };
    let connection = bucket("connection")?;
    let bytes_per_sec = section.join("connection").join("bytes_per_sec");
    Ok(LimitsConfig {
        enabled: raw.bool(&section.join("enabled"))?,
        connection,
        connection_bytes_per_sec: raw.integer(&bytes_per_sec, 1024..=1 << 40)?,
        principal: principal_limit(raw, &section.join("principal"), connection)?,
        topic: bucket("topic")?,
        logins: bucket("logins")?,
        max_topics: raw.integer(&section.join("max_topics"), 1..=COUNT_MAX)?,
        max_groups_per_topic: raw.integer(&section.join("max_groups_per_topic"), 1..=COUNT_MAX)?,
    })
}

/// How many times a connection's limit a principal has, unless it is configured.
const PRINCIPAL_FACTOR: u32 = 20;
/// The largest limit of a number of topics or groups.
const COUNT_MAX: u64 = 1_000_000_000;

/// 0 stands for a multiple of the connection's limit, so that the one follows the other.
fn principal_limit(
    raw: &RawConfig,
    section: &KeyPath,
    connection: BucketConfig,
) -> Result<BucketConfig> {
    let number = |name, of_connection: u32| {
        let number: u32 = raw.integer(&section.join(name), 0..=*BUCKET_RANGE.end())?;
        Ok(if number == 0 { of_connection.saturating_mul(PRINCIPAL_FACTOR) } else { number })
    };
    Ok(BucketConfig {
        capacity: number("capacity", connection.capacity)?,
        refill_per_sec: number("refill_per_sec", connection.refill_per_sec)?,
    })
}

fn bucket_integer(raw: &RawConfig, key: &KeyPath) -> Result<u32> {
    raw.integer(key, BUCKET_RANGE)
}

/// The settings of topics, by name and by pattern.
type TopicConfigs = (BTreeMap<Topic, TopicConfig>, Vec<(NamePattern, TopicConfig)>);

fn topics(raw: &RawConfig, default: BucketConfig) -> Result<TopicConfigs> {
    let mut topics = BTreeMap::new();
    let mut patterns = BTreeMap::new();
    for key in raw.values.keys().filter(|key| key.segments()[0] == TOPICS) {
        let name = &key.segments()[1];
        // Repeated for each key of the topic, with the same result.
        let settings = topic_config(raw, &key.prefix(2), default)?;
        if name.contains('*') {
            let pattern = NamePattern::new(name)
                .map_err(|error| raw.conflict(key, format!("has an invalid pattern: {error}")))?;
            patterns.insert(name.clone(), (pattern, settings));
        } else {
            let topic = Topic::new(name).map_err(|error| {
                raw.conflict(key, format!("has an invalid topic name: {error}"))
            })?;
            topics.insert(topic, settings);
        }
    }
    Ok((topics, patterns.into_values().collect()))
}

fn topic_config(raw: &RawConfig, section: &KeyPath, default: BucketConfig) -> Result<TopicConfig> {
    let set = |key: &KeyPath| raw.values.contains_key(key);
    let number = |name| {
        let key = section.join(name);
        set(&key).then(|| raw.integer(&key, RETENTION_RANGE)).transpose()
    };
    let durability = section.join("durability");
    let durability =
        set(&durability).then(|| raw.parsed(&durability, DURABILITY_WORDS, parse_durability));
    Ok(TopicConfig {
        durability: durability.transpose()?,
        retention_ms: number("retention_ms")?,
        retention_bytes: number("retention_bytes")?,
        limit: topic_limit(raw, &section.join("limit"), default)?,
    })
}

fn topic_limit(
    raw: &RawConfig,
    section: &KeyPath,
    default: BucketConfig,
) -> Result<Option<BucketConfig>> {
    let number = |name| {
        let key = section.join(name);
        raw.values.contains_key(&key).then(|| bucket_integer(raw, &key)).transpose()
    };
    let (capacity, refill_per_sec) = (number("capacity")?, number("refill_per_sec")?);
    let limited = capacity.is_some() || refill_per_sec.is_some();
    Ok(limited.then(|| BucketConfig {
        capacity: capacity.unwrap_or(default.capacity),
        refill_per_sec: refill_per_sec.unwrap_or(default.refill_per_sec),
    }))
}

fn gateway(raw: &RawConfig) -> Result<GatewayConfig> {
    let section = KeyPath::of("gateway");
    let number = |name, range| raw.integer(&section.join(name), range);
    let time = |name| raw.milliseconds(&section.join(name), 10..=3_600_000);
    Ok(GatewayConfig {
        max_frame_bytes: number("max_frame_bytes", 1024..=MAX_EVENT_BYTES as u64)?,
        max_outbox_bytes: number("max_outbox_bytes", 1024..=1 << 30)?,
        max_subscriptions: number("max_subscriptions", 1..=10_000)?,
        max_connections: number("max_connections", 1..=1_000_000)?,
        max_connections_per_address: number("max_connections_per_address", 1..=1_000_000)?,
        ndjson_memory_bytes: number("ndjson_memory_bytes", 1 << 20..=1 << 40)?,
        ping_interval: time("ping_interval_ms")?,
        pong_timeout: time("pong_timeout_ms")?,
        auth_timeout: time("auth_timeout_ms")?,
        expired_token_grace: time("expired_token_grace_ms")?,
        slow_consumer_timeout: time("slow_consumer_timeout_ms")?,
    })
}

fn memory(raw: &RawConfig) -> Result<MemoryConfig> {
    let section = KeyPath::of("memory");
    let bytes = |name| raw.integer(&section.join(name), 1 << 20..=1 << 40);
    let frames = &section.join("frames_bytes");
    Ok(MemoryConfig {
        feeds: bytes("feeds_bytes")?,
        read_ahead: bytes("read_ahead_bytes")?,
        deliveries: bytes("deliveries_bytes")?,
        frames: raw.integer(frames, 4 << 20..=1 << 40)?,
        responses: bytes("responses_bytes")?,
    })
}

fn subscribe(raw: &RawConfig) -> Result<SubscribeConfig> {
    let section = KeyPath::of("subscribe");
    Ok(SubscribeConfig {
        max_in_flight: raw.integer(&section.join("max_in_flight"), 1..=10_000)?,
        ack_timeout: raw.milliseconds(&section.join("ack_timeout_ms"), 100..=43_200_000)?,
        max_attempts: raw.integer(&section.join("max_attempts"), 1..=1000)?,
    })
}

fn groups(raw: &RawConfig) -> Result<GroupsConfig> {
    let lease = KeyPath::of("groups.lease_ms");
    Ok(GroupsConfig { retry: retry(raw)?, lease: raw.milliseconds(&lease, 2000..=600_000)? })
}

fn retry(raw: &RawConfig) -> Result<RetryConfig> {
    let section = KeyPath::of("groups.retry");
    let time = |name| raw.milliseconds(&section.join(name), 1..=MAX_NACK_DELAY_MS);
    Ok(RetryConfig {
        first: time("first_ms")?,
        factor: raw.integer(&section.join("factor"), 1..=100)?,
        max: time("max_ms")?,
    })
}

fn tracing(raw: &RawConfig) -> Result<TracingConfig> {
    let section = KeyPath::of("tracing");
    let endpoint = section.join("otlp_endpoint");
    let otlp_endpoint = raw.optional_string(&endpoint)?.map(str::to_owned);
    if let Some(url) = &otlp_endpoint {
        ServerAddress::new(url, Protocol::Http, None).map_err(|error| {
            raw.conflict(&endpoint, format!("is not the URL of a collector: {error}"))
        })?;
    }
    let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Ok(TracingConfig {
        otlp_endpoint,
        sample_ratio: raw.ratio(&section.join("sample_ratio"))?,
        service_name: raw.parsed(&section.join("service_name"), "a name", name)?,
    })
}

fn log(raw: &RawConfig) -> Result<LogConfig> {
    let levels = "off, error, warn, info, debug or trace, optionally with overrides per module, such \
                  as info,prombus_server=debug";
    Ok(LogConfig {
        level: raw.parsed(&KeyPath::of("log.level"), levels, LogFilter::parse)?,
        format: raw.parsed(
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

/// A connection gets no more than it leaves free, so one frame needs twice its size; and not all of them may
/// have to wait for one.
fn reject_too_little_memory_for_frames(raw: &RawConfig, config: &Config) -> Result<()> {
    if config.memory.frames >= 4 * config.gateway.max_frame_bytes {
        return Ok(());
    }
    let reason = "must be at least four times gateway.max_frame_bytes";
    Err(raw.conflict(&KeyPath::of("memory.frames_bytes"), reason))
}

/// A public address needs authentication or an explicit `--insecure`.
fn reject_unauthenticated_public_address(raw: &RawConfig, config: &Config) -> Result<()> {
    if config.auth.is_required() || config.server.insecure {
        return Ok(());
    }
    for (name, address) in [("ws", config.server.ws), ("http", config.server.http)] {
        if !address.ip().to_canonical().is_loopback() {
            let reason = format!(
                "is {address}, which other machines can reach, but authentication is off: set \
                 auth.tokens or a key under auth.jwt, listen on 127.0.0.1, or pass --insecure"
            );
            return Err(raw.conflict(&KeyPath::of("server").join(name), reason));
        }
    }
    Ok(())
}

/// An operator who lists certificates expects clients to show them.
fn reject_certificates_without_client_auth(raw: &RawConfig, config: &Config) -> Result<()> {
    let is_off = config.server.tls.as_ref().is_none_or(|tls| tls.client_auth == ClientAuth::Off);
    if config.auth.certificates.is_empty() || !is_off {
        return Ok(());
    }
    let reason = "has no effect: set server.tls.client_auth to optional or required";
    Err(raw.conflict(&KeyPath::of("auth.certificates"), reason))
}
