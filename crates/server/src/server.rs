//! Starts and stops the server: a bus, the WebSocket port and the HTTP port.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use prombus_bus::{
    Bus, CensusLimits, ConfiguredTopics, MemoryLimits, Rate, Refusal, RetryDelays, Settings,
    SpanSettings, SubscriptionDefaults, TopicSettings,
};
use prombus_engine::{DiskEngine, DiskOptions, Engine, MemoryEngine, OpenError};
use prombus_engine_mongo::{MongoEngine, MongoError, MongoOptions};
use prombus_proto::{ErrorCode, IdSource, SystemClock};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::accept::{Acceptor, PlaceLimits, Places};
use crate::access::Access;
use crate::auth::{AuthSetupError, InvalidOrigin, Logins, Tickets};
use crate::config::{AuthConfig, BucketConfig, Config, EngineConfig, TopicConfig};
use crate::descriptors::{DescriptorBudget, TooFewDescriptors};
use crate::gateway::Gateway;
use crate::http::{HttpPort, HttpState};
use crate::mongo_address::MongoAddress;
use crate::notices::Notices;
use crate::phase::Phase;
use crate::reload::{Reloadable, ReloadableTls, Reloaded};
use crate::span_export::SpanExport;
use crate::swap::Swap;
use crate::threads::Threads;

/// Why the server cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{address}: {source}")]
    Mongo { address: MongoAddress, source: MongoError },
    /// Stored topic settings cannot be read.
    #[error("{0}")]
    Settings(Refusal),
    #[error("{0}; on the disk engine, --start-damaged starts with what is left")]
    DamagedState(Refusal),
    #[error(transparent)]
    Auth(#[from] AuthSetupError),
    #[error("auth.allowed_origins: {0}")]
    Origin(#[from] InvalidOrigin),
    /// The certificate or its key is unusable.
    #[error("{path}: {reason}")]
    Tls { path: PathBuf, reason: String },
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// A running server.
pub struct Server {
    ws: SocketAddr,
    http: SocketAddr,
    engine: Arc<dyn Engine>,
    bus: Arc<Bus>,
    reloadable: Arc<Reloadable>,
    span_export: Option<SpanExport>,
    ports: [JoinHandle<()>; 2],
    /// Stopped after the bus is closed: groups may run on them until then.
    threads: Arc<Threads>,
}

impl Server {
    /// Opens the configured store and starts the server. Connections are served by the current runtime.
    ///
    /// # Errors
    ///
    /// If the store, the tokens, the certificate or an address is unusable.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_on(Threads::current_only(), config).await
    }

    /// Like [`Server::start`], but serves connections on `threads`.
    ///
    /// # Errors
    ///
    /// The same as those of [`Server::start`].
    pub async fn start_on(threads: Threads, config: &Config) -> Result<Self, StartError> {
        let descriptors = DescriptorBudget::of_process(&config.server.engine, threads.count())?;
        let engine: Arc<dyn Engine> = match &config.server.engine {
            EngineConfig::Disk => Arc::new(DiskEngine::open(&DiskOptions {
                open_files: descriptors.open_segments,
                start_damaged: config.server.start_damaged,
                ..DiskOptions::at(&config.server.data)
            })?),
            EngineConfig::Memory => Arc::new(MemoryEngine::new(Arc::new(SystemClock))),
            EngineConfig::Mongo(address) => {
                let failed = |source| StartError::Mongo { address: address.clone(), source };
                let options = MongoOptions::at(address.reveal(), prombus_bus::STATE_KINDS);
                Arc::new(MongoEngine::open(&options).await.map_err(failed)?)
            }
        };
        Self::start_over(engine, threads, config).await
    }

    /// Like [`Server::start_on`], over an open engine.
    ///
    /// # Errors
    ///
    /// The same as those of [`Server::start`].
    pub async fn start_over(
        engine: Arc<dyn Engine>,
        threads: Threads,
        config: &Config,
    ) -> Result<Self, StartError> {
        let descriptors = DescriptorBudget::of_process(&config.server.engine, threads.count())?;
        let place_limits = descriptors.allowed_connections(PlaceLimits {
            total: config.gateway.max_connections,
            per_address: config.gateway.max_connections_per_address,
        });
        let tls = config.server.tls.as_ref().map(ReloadableTls::read).transpose()?;
        let access = Access::new(&config.auth)?;
        let (ws_listener, ws) = listen(config.server.ws).await?;
        let (http_listener, http) = listen(config.server.http).await?;
        let clock = Arc::new(SystemClock);
        let ids = Arc::new(IdSource::system());
        let bus =
            Arc::new(Bus::start(Arc::clone(&engine), bus_settings(config), clock.clone(), ids));
        let failed = |refusal: Refusal| match refusal.code {
            ErrorCode::Internal => StartError::DamagedState(refusal),
            _ => StartError::Settings(refusal),
        };
        bus.load_topic_settings().await.map_err(failed)?;
        bus.count_topics_and_groups().await.map_err(failed)?;
        let span_export = SpanExport::start(&config.tracing, &bus);
        let gateway = Arc::new(Gateway {
            bus: Arc::clone(&bus),
            access: Swap::new(access),
            logins: Logins::new(config.limits.enabled.then(|| rate(config.limits.logins))),
            tickets: Tickets::default(),
            notices: Notices::default(),
            clock,
            settings: config.gateway.clone(),
        });
        let (phase, phases) = watch::channel(Phase::START);
        let acceptor = Acceptor {
            tls: tls.as_ref().map(|tls| Arc::clone(&tls.in_use)),
            places: Arc::new(Places::new(place_limits, Arc::clone(&bus))),
            gateway: Arc::clone(&gateway),
            phases: phases.clone(),
        };
        let is_local = http.ip().to_canonical().is_loopback();
        let http_state = HttpState::new(Arc::clone(&gateway), is_local, tls.is_some(), phases);
        let http_port = HttpPort::new(http_state);
        let reloadable = Arc::new(Reloadable { gateway: Arc::clone(&gateway), tls, phase });
        let threads = Arc::new(threads);
        let ports = [
            tokio::spawn(acceptor.clone().serve(ws_listener, gateway, Arc::clone(&threads))),
            tokio::spawn(acceptor.serve(http_listener, Arc::new(http_port), Arc::clone(&threads))),
        ];
        Ok(Self { ws, http, engine, bus, reloadable, span_export, ports, threads })
    }

    /// Returns the address of the WebSocket port.
    #[must_use]
    pub const fn ws(&self) -> SocketAddr {
        self.ws
    }

    /// Returns the URL of the WebSocket port.
    #[must_use]
    pub fn ws_url(&self) -> String {
        format!("{}://{}/", if self.is_encrypted() { "wss" } else { "ws" }, self.ws)
    }

    /// Returns the address of the HTTP port.
    #[must_use]
    pub const fn http(&self) -> SocketAddr {
        self.http
    }

    /// Returns the URL of the HTTP port, without a path.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("{}://{}", if self.is_encrypted() { "https" } else { "http" }, self.http)
    }

    fn is_encrypted(&self) -> bool {
        self.reloadable.tls.is_some()
    }

    /// Reads certificates and key files again, and replaces tokens, keys and origins by those of `auth`.
    /// Connections stay; those whose token, key or certificate is gone lose their rights. What cannot
    /// be read stays as it is.
    pub fn reload(&self, auth: &AuthConfig) -> Reloaded {
        self.reloadable.reload(auth)
    }

    /// Returns what a reload replaces, which can be sent to another thread.
    #[must_use]
    pub const fn reloadable(&self) -> &Arc<Reloadable> {
        &self.reloadable
    }

    #[must_use]
    pub const fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    #[must_use]
    pub const fn bus(&self) -> &Arc<Bus> {
        &self.bus
    }

    /// Shuts down: refuses new work, lets clients settle their leases, and closes the bus.
    ///
    /// # Errors
    ///
    /// If the engine cannot be closed properly.
    pub async fn stop(self) -> Result<(), Refusal> {
        self.bus.refuse_new_work();
        self.reloadable.phase.send_replace(Phase::Stopping);
        for port in self.ports {
            // A port that panicked has no connections left.
            let _ = port.await;
        }
        let closed = self.bus.close().await;
        if let Some(spans) = self.span_export {
            spans.stop().await;
        }
        drop(self.threads);
        closed
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    // The actual port, if the configured one is 0.
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn rate(bucket: BucketConfig) -> Rate {
    Rate { capacity: bucket.capacity.into(), refill_per_sec: bucket.refill_per_sec.into() }
}

pub(crate) fn bus_settings(config: &Config) -> Settings {
    let Config { limits, tracing, .. } = config;
    let settings = |own: &TopicConfig| TopicSettings {
        durability: own.durability,
        rate: own.limit.map(rate),
        retention_ms: own.retention_ms,
        retention_bytes: own.retention_bytes,
    };
    let by_name = config.topics.iter().map(|(topic, own)| (topic.clone(), settings(own)));
    let patterns = config.topic_patterns.iter();
    let patterns = patterns.map(|(pattern, own)| (pattern.clone(), settings(own)));
    Settings {
        connection_rate: limits.enabled.then(|| rate(limits.connection)),
        connection_bytes_per_sec: limits.enabled.then_some(limits.connection_bytes_per_sec),
        principal_rate: limits.enabled.then(|| rate(limits.principal)),
        topic_rate: limits.enabled.then(|| rate(limits.topic)),
        max_counts: limits.enabled.then_some(CensusLimits {
            topics: limits.max_topics,
            groups_per_topic: limits.max_groups_per_topic,
        }),
        topics: ConfiguredTopics::new(by_name.collect(), patterns.collect()),
        max_outbox_bytes: config.gateway.max_outbox_bytes,
        memory: MemoryLimits {
            feeds: config.memory.feeds,
            read_ahead: config.memory.read_ahead,
            deliveries: config.memory.deliveries,
            frames: config.memory.frames,
            responses: config.memory.responses,
        },
        subscription: SubscriptionDefaults {
            max_in_flight: config.subscribe.max_in_flight,
            ack_timeout: config.subscribe.ack_timeout,
            max_attempts: config.subscribe.max_attempts,
        },
        retry: RetryDelays {
            first: config.groups.retry.first,
            factor: config.groups.retry.factor,
            max: config.groups.retry.max,
        },
        group_lease: config.groups.lease,
        spans: tracing.is_on().then_some(SpanSettings { sample_ratio: tracing.sample_ratio }),
    }
}
