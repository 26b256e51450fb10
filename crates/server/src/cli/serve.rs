//! `prombus serve`, and `prombus` alone.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::thread;

use prombus_server::config::{self, Config, EngineChoice, Flag, Settings, Sources};
use prombus_server::logging;
use prombus_server::server::Server;
use prombus_server::threads::Threads;
use tokio::signal::unix::{SignalKind, signal};

/// What `serve` takes. Defaults are in the default file alone, so there are none here.
#[derive(clap::Args)]
pub(crate) struct ServeArguments {
    /// Read settings from this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where events and state are kept (server.data)
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// What keeps them: disk, memory, where all is gone when the process ends, or a database that other
    /// gateways may use, too, mongodb://… (server.engine)
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Where the WebSocket gateway listens, such as 127.0.0.1:8090 (server.ws)
    #[arg(long, value_name = "ADDR")]
    ws: Option<String>,
    /// Where HTTP listens, such as 127.0.0.1:8083 (server.http)
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Change one setting, such as limits.connection.capacity=500; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Listen on a public address although nobody has to authenticate (server.insecure)
    #[arg(long)]
    insecure: bool,
    /// Print the settings in effect, with their sources and without secrets, and end
    #[arg(long)]
    print_config: bool,
}

impl ServeArguments {
    fn sources(self) -> Sources {
        let text = |name, key, value: Option<String>| {
            value.map(|text| Flag { name, key, value: text.into() })
        };
        let insecure = Flag { name: "--insecure", key: "server.insecure", value: true.into() };
        let flags = [
            text("--data", "server.data", self.data),
            text("--engine", "server.engine", self.engine),
            text("--ws", "server.ws", self.ws),
            text("--http", "server.http", self.http),
            self.insecure.then_some(insecure),
        ];
        Sources {
            file: self.config,
            environment: env::vars_os().collect(),
            set: self.set,
            flags: flags.into_iter().flatten().collect(),
        }
    }
}

pub(crate) fn run(arguments: ServeArguments) -> Result<(), Box<dyn Error>> {
    let print_config = arguments.print_config;
    let settings = Settings::gather(&arguments.sources())?;
    let config = Config::check(&settings)?;
    if print_config {
        return Ok(write!(io::stdout(), "{settings}")?);
    }
    logging::start(&config.log.level, config.log.format)?;
    serve(&config)
}

/// Serves until told to stop.
fn serve(config: &Config) -> Result<(), Box<dyn Error>> {
    let count = match config.server.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let threads = Threads::start(count)?;
        tracing::debug!("connections are served on {} threads", threads.count());
        let server = Server::start_on(threads, config).await?;
        describe(&server, &config.server).await?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping: clients may finish what they have");
        let stopped = tokio::time::timeout(config.server.shutdown_grace, server.stop()).await;
        stopped.map_err(|_| "not everything could be stored before the time for it was over")??;
        say("stopped, everything is stored");
        Ok(())
    })
}

async fn describe(server: &Server, settings: &config::Server) -> Result<(), Box<dyn Error>> {
    let engine = server.engine();
    let topics = engine.topics().await?;
    let (mut events, mut bytes) = (0, 0);
    for topic in &topics {
        let bounds = engine.bounds(topic).await?;
        events += bounds.count();
        bytes += bounds.bytes;
    }
    for incident in engine.health().incidents {
        tracing::warn!("{incident}");
    }
    let place = match &settings.engine {
        EngineChoice::Disk => format!("the store in {}", settings.data.display()),
        EngineChoice::Memory => "a store in memory, gone when this process ends".to_owned(),
        EngineChoice::Mongo(address) => format!("the database at {address}"),
    };
    say(&format!(
        "prombus {} has opened {place}\n\
         {} topics, {events} events, {bytes} bytes\n\
         WebSocket gateway: {}\n\
         HTTP: {}\n\
         ready; ctrl-c stops it",
        env!("CARGO_PKG_VERSION"),
        topics.len(),
        server.ws_url(),
        server.http_url(),
    ));
    Ok(())
}

/// Tells whoever reads the output. A server goes on when nobody does.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
