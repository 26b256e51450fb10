//! On what it is done.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use prombus_bench::{InProcess, Load, Target, Wire, set_durability};
use prombus_bus::Durability;
use prombus_client::transport::{HttpClient, Protocol};
use prombus_engine::{DiskEngine, DiskOptions, Engine, MemoryEngine};
use prombus_engine_mongo::{MongoEngine, MongoOptions};
use prombus_proto::SystemClock;
use prombus_server::config::{Config, EngineChoice, Flag, Sources};

use super::own_server::{OwnServer, TemporaryFolder};
use crate::cli::server_arguments::AccessArguments;

/// What `publish` and `subscribe` measure.
#[derive(clap::Args)]
pub(super) struct TargetArguments {
    /// Measure the server with this WebSocket gateway
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data", "serve"])]
    url: Option<String>,
    /// The HTTP address of the same server; only --durability needs it
    #[arg(long, value_name = "URL", requires = "url")]
    http: Option<String>,
    #[command(flatten)]
    store: StoreArguments,
    /// Start a server process of our own, and measure that over the wire
    #[arg(long)]
    serve: bool,
    /// When a publish is answered: when it is on stable storage, or when the operating system has
    /// it. In this process fsync is usual; on a server, what its topic has
    #[arg(long)]
    durability: Option<DurabilityWord>,
    #[command(flatten)]
    access: AccessArguments,
}

/// What keeps the events of a bus of our own.
#[derive(clap::Args)]
pub(super) struct StoreArguments {
    /// What keeps the events: disk, which is usual, memory, or mongodb://…
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// The folder of the disk engine, which stays; without it a temporary one, which goes
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum DurabilityWord {
    Fsync,
    Buffered,
}

impl DurabilityWord {
    const fn word(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Buffered => "buffered",
        }
    }
}

/// A store that was chosen, and the folder that goes with it, if it is a temporary one.
pub(super) struct Store {
    pub(super) engine: EngineChoice,
    pub(super) data: PathBuf,
    _temporary: Option<TemporaryFolder>,
}

/// What is measured, and what has to be kept or ended with it.
pub(super) struct Chosen {
    pub(super) target: Target,
    /// In words.
    pub(super) name: String,
    /// In a word, or as the server has it.
    pub(super) durability: &'static str,
    server: Option<OwnServer>,
    _store: Option<Store>,
}

impl TargetArguments {
    pub(super) async fn choose(&self, load: &Load) -> Result<Chosen, Box<dyn Error>> {
        if let Some(url) = &self.url {
            let http = self.http.as_deref().map(|http| self.access.http(http)).transpose()?;
            self.set_durability(load, http).await?;
            let address = self.access.address(url, Protocol::WebSocket)?;
            return Ok(Chosen {
                target: Target::Wire(Wire::new(address, self.access.token())),
                name: url.clone(),
                durability: self.durability.map_or("as the server has it", DurabilityWord::word),
                server: None,
                _store: None,
            });
        }
        let store = self.store.choose()?;
        let durability = self.durability.unwrap_or(DurabilityWord::Fsync);
        if self.serve {
            let server = OwnServer::start(&store, &["limits.enabled=false"])?;
            let http = server.http()?;
            set_durability(&mut HttpClient::new(http, None)?, &load.topics()?, durability.word())
                .await?;
            return Ok(Chosen {
                target: Target::Wire(Wire::new(server.gateway()?, None)),
                name: format!("a server process of its own, on {}", store.name()),
                durability: store.durability(durability.word()),
                server: Some(server),
                _store: Some(store),
            });
        }
        let bus_durability = match durability {
            DurabilityWord::Fsync => Durability::Fsync,
            DurabilityWord::Buffered => Durability::Buffered,
        };
        let bus = InProcess::start(store.open().await?, load, bus_durability)?;
        Ok(Chosen {
            target: Target::InProcess(bus),
            name: format!("in this process, on {}", store.name()),
            durability: store.durability(durability.word()),
            server: None,
            _store: Some(store),
        })
    }

    async fn set_durability(
        &self,
        load: &Load,
        http: Option<HttpClient>,
    ) -> Result<(), Box<dyn Error>> {
        match (self.durability, http) {
            (None, _) => Ok(()),
            (Some(durability), Some(mut http)) => {
                Ok(set_durability(&mut http, &load.topics()?, durability.word()).await?)
            }
            (Some(_), None) => {
                Err("--durability is a setting of topics, which is changed by HTTP: \
                                    say where that is by --http http://127.0.0.1:8083"
                    .into())
            }
        }
    }
}

impl Chosen {
    /// Stores what waits, and ends what is ours.
    pub(super) async fn end(self) -> Result<(), Box<dyn Error>> {
        if let Target::InProcess(bus) = &self.target {
            bus.close().await?;
        }
        self.server.map_or(Ok(()), OwnServer::stop)
    }
}

impl StoreArguments {
    pub(super) fn choose(&self) -> Result<Store, Box<dyn Error>> {
        let flag = |engine: &String| Flag {
            name: "--engine",
            key: "server.engine",
            value: engine.clone().into(),
        };
        let flags = self.engine.iter().map(flag).collect();
        // Nothing else of how a server is set up is meant here.
        let nothing = Sources { file: None, environment: vec![], set: vec![], flags };
        let engine = Config::load(&nothing)?.server.engine;
        if self.data.is_some() && !matches!(engine, EngineChoice::Disk) {
            return Err("--data is the folder of --engine disk, not of another engine".into());
        }
        let temporary = match (&self.data, &engine) {
            (None, EngineChoice::Disk) => Some(TemporaryFolder::new()?),
            _ => None,
        };
        let folder = temporary.as_ref().map(|folder| folder.path().to_owned());
        let data = self.data.clone().or(folder).unwrap_or_else(env::temp_dir);
        Ok(Store { engine, data, _temporary: temporary })
    }
}

impl Store {
    async fn open(&self) -> Result<Arc<dyn Engine>, Box<dyn Error>> {
        Ok(match &self.engine {
            EngineChoice::Disk => Arc::new(DiskEngine::open(&DiskOptions::at(&self.data))?),
            EngineChoice::Memory => Arc::new(MemoryEngine::new(Arc::new(SystemClock))),
            EngineChoice::Mongo(address) => {
                let opened = MongoEngine::open(&MongoOptions::at(address.reveal())).await;
                Arc::new(opened.map_err(|error| format!("{address}: {error}"))?)
            }
        })
    }

    /// In words.
    pub(super) fn name(&self) -> String {
        match (&self.engine, &self._temporary) {
            (EngineChoice::Disk, Some(_)) => "the disk engine in a temporary folder".to_owned(),
            (EngineChoice::Disk, None) => format!("the disk engine in {}", self.data.display()),
            (EngineChoice::Memory, _) => "the memory engine".to_owned(),
            (EngineChoice::Mongo(address), _) => format!("the database at {address}"),
        }
    }

    /// What a publish is answered after.
    const fn durability(&self, word: &'static str) -> &'static str {
        match self.engine {
            EngineChoice::Memory => "none, all is in memory",
            _ => word,
        }
    }
}
