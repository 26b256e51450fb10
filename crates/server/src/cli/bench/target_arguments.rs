//! What a benchmark measures: a bus in this process, a running server, or a spawned one.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use prombus_bench::{InProcess, Load, Target, Wire, set_durability};
use prombus_bus::Durability;
use prombus_client::transport::HttpClient;
use prombus_engine::{DiskEngine, DiskOptions, Engine, MemoryEngine};
use prombus_engine_mongo::{MongoEngine, MongoOptions};
use prombus_proto::SystemClock;
use prombus_server::config::{Config, EngineConfig, Flag, Sources};

use super::left_topics::LeftTopics;
use super::spawned_server::{SpawnedServer, TempDir};
use crate::cli::server_arguments::AccessArguments;

#[derive(clap::Args)]
pub(super) struct TargetArguments {
    /// Measure the server at this URL: http, https, ws or wss
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data", "serve"])]
    url: Option<String>,
    /// HTTP URL of the same server, for --durability; default: derived from --url
    #[arg(long, value_name = "URL", requires = "url")]
    http: Option<String>,
    #[command(flatten)]
    store: StoreArguments,
    /// Keep the topics that the benchmark creates at the server of --url; default: they are deleted at the end
    #[arg(long, requires = "url")]
    keep: bool,
    /// Spawn a server process and measure it over the network
    #[arg(long)]
    serve: bool,
    /// When a publish is confirmed; default: fsync, or with --url as configured on the server
    #[arg(long)]
    durability: Option<DurabilityArgument>,
    #[command(flatten)]
    access: AccessArguments,
}

/// The store of a bus in this process or of a spawned server.
#[derive(clap::Args)]
pub(super) struct StoreArguments {
    /// Storage engine: disk (the default), memory, or mongodb://…
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Data directory of the disk engine, kept afterwards; default: a temporary directory
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum DurabilityArgument {
    Fsync,
    Buffered,
}

impl DurabilityArgument {
    const fn word(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Buffered => "buffered",
        }
    }
}

pub(super) struct BenchStore {
    pub(super) engine: EngineConfig,
    pub(super) data: PathBuf,
    /// Removes the data directory on drop, unless the user named one.
    temporary: Option<TempDir>,
}

/// The bus to measure, and what has to stay alive meanwhile.
pub(super) struct BenchTarget {
    pub(super) bus: Target,
    /// For the report.
    pub(super) name: String,
    /// For the report.
    pub(super) durability: &'static str,
    server: Option<SpawnedServer>,
    left: Option<LeftTopics>,
    _store: Option<BenchStore>,
}

impl TargetArguments {
    pub(super) async fn choose(&self, load: &Load) -> Result<BenchTarget, Box<dyn Error>> {
        if let Some(url) = &self.url {
            let endpoint = self.access.at(url)?;
            let left = self.left_topics(load, url).await?;
            self.set_durability(load, url).await?;
            let token = endpoint.token().map(ToOwned::to_owned);
            return Ok(BenchTarget {
                bus: Target::Wire(Wire::new(endpoint.gateway()?, token)),
                name: url.clone(),
                durability: self
                    .durability
                    .map_or("as configured on the server", DurabilityArgument::word),
                server: None,
                left,
                _store: None,
            });
        }
        let store = self.store.choose()?;
        let durability = self.durability.unwrap_or(DurabilityArgument::Fsync);
        if self.serve {
            let server = SpawnedServer::start(&store, &["limits.enabled=false"])?;
            let http = server.http()?;
            set_durability(&mut HttpClient::new(http, None)?, &load.topics()?, durability.word())
                .await?;
            return Ok(BenchTarget {
                bus: Target::Wire(Wire::new(server.gateway()?, None)),
                name: format!("spawned server, {}", store.name()),
                durability: store.durability(durability.word()),
                server: Some(server),
                left: None,
                _store: Some(store),
            });
        }
        let bus_durability = match durability {
            DurabilityArgument::Fsync => Durability::Fsync,
            DurabilityArgument::Buffered => Durability::Buffered,
        };
        let bus = InProcess::start(store.open().await?, load, bus_durability)?;
        Ok(BenchTarget {
            bus: Target::InProcess(bus),
            name: format!("in process, {}", store.name()),
            durability: store.durability(durability.word()),
            server: None,
            left: None,
            _store: Some(store),
        })
    }

    /// Returns the topics to remove at the end.
    async fn left_topics(
        &self,
        load: &Load,
        url: &str,
    ) -> Result<Option<LeftTopics>, Box<dyn Error>> {
        if self.keep {
            return Ok(None);
        }
        let endpoint = self.access.at(self.http.as_deref().unwrap_or(url))?;
        Ok(LeftTopics::among(&endpoint, load.topics()?).await)
    }

    /// Changes the durability of the topics, if that is asked for. It is a topic setting, changed over HTTP.
    async fn set_durability(&self, load: &Load, url: &str) -> Result<(), Box<dyn Error>> {
        let Some(durability) = self.durability else { return Ok(()) };
        let mut http = self.access.at(self.http.as_deref().unwrap_or(url))?.http()?;
        Ok(set_durability(&mut http, &load.topics()?, durability.word()).await?)
    }
}

impl BenchTarget {
    /// Closes the bus, stops the spawned server, or removes what is left at the running one.
    pub(super) async fn close(self) -> Result<(), Box<dyn Error>> {
        if let Some(left) = self.left {
            left.remove().await;
        }
        if let Target::InProcess(bus) = &self.bus {
            bus.close().await?;
        }
        self.server.map_or(Ok(()), SpawnedServer::stop)
    }
}

impl StoreArguments {
    pub(super) fn choose(&self) -> Result<BenchStore, Box<dyn Error>> {
        let flag = |engine: &String| Flag {
            name: "--engine",
            key: "server.engine",
            value: engine.clone().into(),
        };
        let flags = self.engine.iter().map(flag).collect();
        // The configuration of the user's own server must not apply.
        let engine = Config::load(&Sources { flags, ..Sources::default() })?.server.engine;
        if self.data.is_some() && !matches!(engine, EngineConfig::Disk) {
            return Err("--data needs --engine disk".into());
        }
        let temporary = match (&self.data, &engine) {
            (None, EngineConfig::Disk) => Some(TempDir::new()?),
            _ => None,
        };
        let dir = temporary.as_ref().map(|dir| dir.path().to_owned());
        let data = self.data.clone().or(dir).unwrap_or_else(env::temp_dir);
        Ok(BenchStore { engine, data, temporary })
    }
}

impl BenchStore {
    async fn open(&self) -> Result<Arc<dyn Engine>, Box<dyn Error>> {
        Ok(match &self.engine {
            EngineConfig::Disk => Arc::new(DiskEngine::open(&DiskOptions::at(&self.data))?),
            EngineConfig::Memory => Arc::new(MemoryEngine::new(Arc::new(SystemClock))),
            EngineConfig::Mongo(address) => {
                let opened = MongoEngine::open(&MongoOptions::at(
                    address.reveal(),
                    prombus_bus::STATE_KINDS,
                ))
                .await;
                Arc::new(opened.map_err(|error| format!("{address}: {error}"))?)
            }
        })
    }

    /// The name for the report.
    pub(super) fn name(&self) -> String {
        match (&self.engine, &self.temporary) {
            (EngineConfig::Disk, Some(_)) => "disk engine in a temporary directory".to_owned(),
            (EngineConfig::Disk, None) => format!("disk engine in {}", self.data.display()),
            (EngineConfig::Memory, _) => "memory engine".to_owned(),
            (EngineConfig::Mongo(address), _) => format!("database at {address}"),
        }
    }

    const fn durability(&self, word: &'static str) -> &'static str {
        match self.engine {
            EngineConfig::Memory => "none (memory)",
            _ => word,
        }
    }
}
