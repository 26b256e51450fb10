//! `prombus serve`, and `prombus` without a subcommand.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use prombus_server::config::{
    BucketConfig, Config, EngineConfig, Flag, LimitsConfig, RawConfig, Sources,
};
use prombus_server::logging;
use prombus_server::readable_secrets;
use prombus_server::reload::Reloader;
use prombus_server::server::Server;
use prombus_server::threads::Threads;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::human_bytes::human_bytes;
use super::reloading::{HangupSignal, keep_reloading};
use super::stop_signal::StopSignal;

/// Flags have no defaults here: the default configuration file defines them.
#[derive(clap::Args)]
pub(crate) struct ServeArguments {
    /// Read settings from this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory of the disk engine (server.data)
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Storage engine: disk, memory (lost on exit), or mongodb://… (server.engine)
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// WebSocket listen address, such as 127.0.0.1:8090 (server.ws)
    #[arg(long, value_name = "ADDR")]
    ws: Option<String>,
    /// HTTP listen address, such as 127.0.0.1:8083 (server.http)
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Override a setting, such as limits.connection.capacity=500; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Allow a public listen address without authentication (server.insecure)
    #[arg(long)]
    insecure: bool,
    /// Disable all limits of rates and counts (limits.enabled=false)
    #[arg(long)]
    no_limits: bool,
    /// Start although keyed state on disk is damaged; loses the damaged keys (server.disk.start_damaged)
    #[arg(long)]
    start_damaged: bool,
    /// Print the settings in effect and their sources, with secrets redacted, and exit
    #[arg(long)]
    print_config: bool,
}

impl ServeArguments {
    fn sources(self) -> Sources {
        let flag = |name, key, value: Option<String>| {
            value.map(|text| Flag { name, key, value: text.into() })
        };
        let insecure = Flag { name: "--insecure", key: "server.insecure", value: true.into() };
        let no_limits = Flag { name: "--no-limits", key: "limits.enabled", value: false.into() };
        let start_damaged =
            Flag { name: "--start-damaged", key: "server.disk.start_damaged", value: true.into() };
        let flags = [
            flag("--data", "server.data", self.data),
            flag("--engine", "server.engine", self.engine),
            flag("--ws", "server.ws", self.ws),
            flag("--http", "server.http", self.http),
            self.insecure.then_some(insecure),
            self.no_limits.then_some(no_limits),
            self.start_damaged.then_some(start_damaged),
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
    let sources = arguments.sources();
    let raw = RawConfig::load(&sources)?;
    let config = Config::validate(&raw)?;
    if print_config {
        return Ok(write!(io::stdout(), "{raw}")?);
    }
    logging::start(&config.log.level, config.log.format)?;
    readable_secrets::warn(&raw, config.server.tls.as_ref());
    let reloader = Reloader::new(sources, raw, &config);
    serve(&config, reloader)
}

/// Serves until a stop signal arrives.
fn serve(config: &Config, reloader: Reloader) -> Result<(), Box<dyn Error>> {
    let count = match config.server.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop_signal = StopSignal::new()?;
        let hangup = HangupSignal::new()?;
        survive_file_size_limit()?;
        let threads = Threads::start(count)?;
        tracing::debug!("serving connections on {} threads", threads.count());
        let server = Server::start_on(threads, config).await?;
        announce(&server, config).await?;
        let mut reloading =
            tokio::spawn(keep_reloading(reloader, Arc::clone(server.reloadable()), hangup));
        tokio::select! {
            () = stop_signal.recv() => {}
            // The terminal is gone. If it panicked instead, the server goes on as it is.
            Ok(()) = &mut reloading => {}
        }
        reloading.abort();
        tracing::info!("shutting down: waiting for clients to finish");
        let stopped = tokio::time::timeout(config.server.shutdown_grace, server.stop()).await;
        stopped.map_err(|_| "shutdown timed out before everything was stored")??;
        print_line("stopped; everything is stored");
        Ok(())
    })
}

/// Makes a write above the limit of the file size (`ulimit -f`) fail, which the store treats as a full
/// disk. By default, the signal ends the process.
fn survive_file_size_limit() -> io::Result<()> {
    // The handler stays installed after the receiver is dropped.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

/// Prints what the store contains, the limits in force, and where the server listens.
async fn announce(server: &Server, config: &Config) -> Result<(), Box<dyn Error>> {
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
    let store = match &config.server.engine {
        EngineConfig::Disk => format!("the store in {}", config.server.data.display()),
        EngineConfig::Memory => "an in-memory store, lost on exit".to_owned(),
        EngineConfig::Mongo(address) => format!("the database at {address}"),
    };
    print_line(&format!(
        "prombus {} opened {store}\n\
         {} topics, {events} events, {bytes} bytes\n\
         limits: {}\n\
         WebSocket gateway: {}\n\
         HTTP: {}\n\
         ready; press ctrl-c to stop",
        env!("CARGO_PKG_VERSION"),
        topics.len(),
        describe_limits(&config.limits),
        server.ws_url(),
        server.http_url(),
    ));
    Ok(())
}

fn describe_limits(limits: &LimitsConfig) -> String {
    if !limits.enabled {
        return "none".to_owned();
    }
    let rate = |bucket: BucketConfig| match (bucket.capacity, bucket.refill_per_sec) {
        (capacity, rate) if capacity == rate => format!("{rate}/s"),
        (capacity, rate) => format!("{rate}/s (burst {capacity})"),
    };
    format!(
        "{} and {}/s per connection, {} per client, {} per topic; {} topics, {} groups per topic",
        rate(limits.connection),
        human_bytes(limits.connection_bytes_per_sec as f64),
        rate(limits.principal),
        rate(limits.topic),
        limits.max_topics,
        limits.max_groups_per_topic,
    )
}

/// Prints to stdout. The server keeps running if stdout is closed.
fn print_line(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
