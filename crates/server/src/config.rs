//! The server's configuration: merged from all sources, validated and typed.
//!
//! `prombus.toml`, beside `src`, defines every setting and its default. In reading order:
//!
//! - [`raw`]: settings by key, merged from all sources
//! - `key_path`: the name of a setting
//! - `known_keys`: the settings that exist, and suggestions for misspelled ones
//! - `origin`: the source of a setting
//! - `values`: typed access to single settings
//! - `validate`: builds the typed [`Config`] and checks settings that depend on each other
//! - [`auth`]: authentication settings
//! - `display`: prints the settings in effect
//! - `error`: why a configuration is rejected

pub mod auth;
mod display;
mod error;
mod key_path;
mod known_keys;
mod origin;
pub mod raw;
mod validate;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use prombus_engine::Durability;
use prombus_proto::{NamePattern, Topic};

pub use auth::{AuthConfig, CertificateConfig, JwtConfig, TokenConfig};
pub use error::ConfigError;
pub use key_path::KeyPath;
pub use origin::Origin;
pub use raw::{DEFAULT_FILE, Flag, RawConfig, Sources};
pub(crate) use validate::{BUCKET_RANGE, DURABILITY_WORDS, RETENTION_RANGE, parse_durability};
pub(crate) use values::describe_range;

use crate::logging::{LogFilter, LogFormat};
use crate::mongo_address::MongoAddress;

/// The validated configuration. `prombus.toml` documents each setting.
#[derive(Clone, Debug)]
pub struct Config {
    pub server: ServerConfig,
    pub limits: LimitsConfig,
    /// Overrides for individual topics.
    pub topics: BTreeMap<Topic, TopicConfig>,
    /// Overrides for all topics that match a pattern, in alphabetical order.
    pub topic_patterns: Vec<(NamePattern, TopicConfig)>,
    pub auth: AuthConfig,
    pub gateway: GatewayConfig,
    pub memory: MemoryConfig,
    pub subscribe: SubscribeConfig,
    pub groups: GroupsConfig,
    pub log: LogConfig,
    pub tracing: TracingConfig,
}

impl Config {
    /// Merges and validates the settings of all sources.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        Self::validate(&RawConfig::load(sources)?)
    }
}

#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Listen address of the WebSocket gateway.
    pub ws: SocketAddr,
    /// Listen address of the HTTP API.
    pub http: SocketAddr,
    /// Data directory of the disk engine.
    pub data: PathBuf,
    pub engine: EngineConfig,
    /// Makes the disk engine start although its keyed state is damaged.
    pub start_damaged: bool,
    /// Allows a non-loopback address without authentication.
    pub insecure: bool,
    /// Threads that serve connections; 0 means one per CPU.
    pub threads: usize,
    pub shutdown_grace: Duration,
    /// `None` serves plain text.
    pub tls: Option<TlsConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineConfig {
    Disk,
    /// Loses all events when the process exits.
    Memory,
    /// A MongoDB deployment, which several gateways can share.
    Mongo(MongoAddress),
}

/// PEM files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate chain.
    pub cert_file: PathBuf,
    /// The private key of the certificate.
    pub key_file: PathBuf,
    pub client_auth: ClientAuth,
}

/// Whether clients have to show a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked for one.
    Off,
    /// One that they show must be issued by a CA of this file.
    Optional { ca_file: PathBuf },
    /// A connection without one is refused.
    Required { ca_file: PathBuf },
}

impl ClientAuth {
    #[must_use]
    pub const fn ca_file(&self) -> Option<&PathBuf> {
        match self {
            Self::Off => None,
            Self::Optional { ca_file } | Self::Required { ca_file } => Some(ca_file),
        }
    }
}

/// What clients may do and create.
#[derive(Clone, Copy, Debug)]
pub struct LimitsConfig {
    pub enabled: bool,
    /// Per connection, shared by publishes and deliveries.
    pub connection: BucketConfig,
    /// Per connection, for the bytes of its publishes.
    pub connection_bytes_per_sec: u64,
    /// Of all connections of one token, subject or address together.
    pub principal: BucketConfig,
    /// Per topic, for publishes.
    pub topic: BucketConfig,
    /// Per address, for rejected tokens.
    pub logins: BucketConfig,
    /// How many topics may exist when one more is created.
    pub max_topics: usize,
    pub max_groups_per_topic: usize,
}

/// A token bucket. Neither number is zero. Counts events, or for logins rejected tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketConfig {
    /// Burst size.
    pub capacity: u32,
    /// Sustained rate, per second.
    pub refill_per_sec: u32,
}

/// Settings of one topic; `None` falls back to the server-wide default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    pub durability: Option<Durability>,
    pub retention_ms: Option<u64>,
    pub retention_bytes: Option<u64>,
    /// Complete: keys the topic does not set are already filled in from `limits.topic`.
    pub limit: Option<BucketConfig>,
}

/// Sizes and timeouts of connections.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// Maximum size of a WebSocket frame from a client, and of an HTTP payload.
    pub max_frame_bytes: usize,
    /// Maximum bytes queued to be sent on one connection.
    pub max_outbox_bytes: usize,
    /// Maximum subscriptions per connection.
    pub max_subscriptions: usize,
    /// Maximum concurrent connections, both ports together.
    pub max_connections: usize,
    /// Maximum concurrent connections from one address, both ports together.
    pub max_connections_per_address: usize,
    /// Memory for NDJSON publishes.
    pub ndjson_memory_bytes: usize,
    pub ping_interval: Duration,
    pub pong_timeout: Duration,
    pub auth_timeout: Duration,
    /// How long a connection may stay after its token has expired.
    pub expired_token_grace: Duration,
    /// How long a connection may make no progress with a full send queue.
    pub slow_consumer_timeout: Duration,
}

/// The budgets of buffers, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Recent events of topics with followers.
    pub feeds: usize,
    /// Events that groups have read for their members.
    pub read_ahead: usize,
    /// Deliveries and answers that clients have not read yet.
    pub deliveries: usize,
    /// Frames that have not arrived completely, or are not answered yet.
    pub frames: usize,
    /// HTTP responses that clients have not read yet.
    pub responses: usize,
}

/// Defaults for subscriptions that do not set these options.
#[derive(Clone, Debug)]
pub struct SubscribeConfig {
    /// Maximum unacknowledged events per subscription.
    pub max_in_flight: u32,
    pub ack_timeout: Duration,
    /// Delivery attempts before an event is dead-lettered.
    pub max_attempts: u32,
}

/// How consumer groups retry events, and how gateways share groups.
#[derive(Clone, Debug)]
pub struct GroupsConfig {
    pub retry: RetryConfig,
    /// Another gateway takes over the groups of a dead gateway within this time.
    pub lease: Duration,
}

/// The wait before an event that failed is redelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryConfig {
    /// After the first failure.
    pub first: Duration,
    /// How many times longer each wait is than the one before.
    pub factor: u32,
    /// The longest wait.
    pub max: Duration,
}

/// Where OpenTelemetry spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingConfig {
    /// The URL of the collector, without `/v1/traces`. `None` turns spans off.
    pub otlp_endpoint: Option<String>,
    /// From 0 to 1.
    pub sample_ratio: f64,
    pub service_name: String,
}

impl TracingConfig {
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.otlp_endpoint.is_some()
    }
}

#[derive(Clone, Debug)]
pub struct LogConfig {
    pub level: LogFilter,
    pub format: LogFormat,
}
