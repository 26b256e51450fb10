//! What the server is told, from all sources, checked and typed.
//!
//! | idea | file |
//! |---|---|
//! | every setting and its default | `prombus.toml`, beside `src` |
//! | sources, and which one counts | [`settings`] |
//! | names of settings, known and mistaken | `key_path`, `known_keys` |
//! | where a setting was made | `origin` |
//! | checks of single values | `reading` |
//! | checks that make the whole | `checking` |
//! | who may come in | [`auth`] |
//! | the settings in effect, printed | `printing` |

pub mod auth;
mod checking;
mod error;
mod key_path;
mod known_keys;
mod origin;
mod printing;
mod reading;
pub mod settings;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use prombus_engine::Durability;
use prombus_proto::Topic;

pub use auth::{Auth, Jwt, Token};
pub(crate) use checking::{BUCKET_NUMBERS, DURABILITIES, RETENTION_NUMBERS, durability_of};
pub use error::ConfigError;
pub use key_path::KeyPath;
pub use origin::Origin;
pub(crate) use reading::in_words;
pub use settings::{DEFAULT_FILE, Flag, Settings, Sources};

use crate::logging::{LogFilter, LogFormat};
use crate::mongo_address::MongoAddress;

/// What the server is told. `prombus.toml` says what each setting means.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses, store and shutdown.
    pub server: Server,
    /// Limits of rate.
    pub limits: Limits,
    /// What differs for single topics.
    pub topics: BTreeMap<Topic, TopicConfig>,
    /// Who may come in.
    pub auth: Auth,
    /// Sizes and times of connections.
    pub gateway: Gateway,
    /// What a subscription gets that does not say otherwise.
    pub subscribe: Subscribe,
    /// How gateways share groups.
    pub groups: Groups,
    /// What is logged, and how.
    pub log: Log,
}

impl Config {
    /// Gathers all sources and checks them.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        Self::check(&Settings::gather(sources)?)
    }
}

/// Addresses, store and shutdown.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where the WebSocket gateway listens.
    pub ws: SocketAddr,
    /// Where HTTP listens.
    pub http: SocketAddr,
    /// The folder of the disk engine.
    pub data: PathBuf,
    /// What keeps the events.
    pub engine: EngineChoice,
    /// Whether a public address needs no authentication.
    pub insecure: bool,
    /// How many threads serve connections; 0 is one for each processor.
    pub threads: usize,
    /// How long a shutdown may take.
    pub shutdown_grace: Duration,
    /// Certificate and key, if connections are encrypted.
    pub tls: Option<Tls>,
}

/// What keeps the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// Files in a folder.
    Disk,
    /// Nothing: all is gone when the process ends.
    Memory,
    /// A MongoDB deployment, which other gateways may use at the same time.
    Mongo(MongoAddress),
}

/// The PEM files that encryption needs.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate chain.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

/// Limits of rate.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Whether they hold at all.
    pub enabled: bool,
    /// For each connection, publishes and deliveries together.
    pub connection: Bucket,
    /// For each topic, publishes.
    pub topic: Bucket,
}

/// The size of a token bucket. Neither number is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Events that may pass at once.
    pub capacity: u32,
    /// Events that may pass each second in the long run.
    pub refill_per_sec: u32,
}

/// What differs for one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// How durable an event is when its publish is answered.
    pub durability: Option<Durability>,
    /// How long events are kept, in milliseconds.
    pub retention_ms: Option<u64>,
    /// How many bytes of events are kept.
    pub retention_bytes: Option<u64>,
    /// Its bucket, complete: what the topic leaves open is as in `limits.topic`.
    pub limit: Option<Bucket>,
}

/// Sizes and times of connections.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// The largest frame a client may send, and the largest payload by HTTP.
    pub max_frame_bytes: usize,
    /// What may wait to be sent on one connection.
    pub max_outbox_bytes: usize,
    /// Subscriptions of one connection.
    pub max_subscriptions: usize,
    /// Connections at the same time, of both ports together.
    pub max_connections: usize,
    /// How often a connection is pinged.
    pub ping_interval: Duration,
    /// How long the pong may take.
    pub pong_timeout: Duration,
    /// How long a new connection may take to authenticate.
    pub auth_timeout: Duration,
    /// How long a connection may stay stuck with a full delivery_queue.
    pub slow_consumer_timeout: Duration,
}

/// What a subscription gets that does not say otherwise.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// Events lent to it at the same time.
    pub max_in_flight: u32,
    /// How long it may keep an event.
    pub ack_timeout: Duration,
    /// Deliveries of one event before it goes to the dead letters.
    pub max_attempts: u32,
}

/// How gateways share groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Within how long a gateway that dies is replaced.
    pub lease: Duration,
}

/// What is logged, and how.
#[derive(Clone, Debug)]
pub struct Log {
    /// What is logged.
    pub level: LogFilter,
    /// How.
    pub format: LogFormat,
}
