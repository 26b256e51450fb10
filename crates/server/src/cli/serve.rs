//! `prombus serve`, and `prombus` without a subcommand.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use prombus_server::config::{Config, Flag, RawConfig, Sources};
use prombus_server::logging::{self, LineFormat};
use prombus_server::readable_secrets;
use prombus_server::reload::Reloader;
use prombus_server::server::Server;
use prombus_server::threads::Threads;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::banner;
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
    let format = logging::start(&config.log.level, config.log.format)?;
    readable_secrets::warn(&raw, config.server.tls.as_ref());
    let reloader = Reloader::new(sources, raw, &config);
    serve(&config, reloader, format)
}

/// Serves until a stop signal arrives.
fn serve(config: &Config, reloader: Reloader, format: LineFormat) -> Result<(), Box<dyn Error>> {
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
        banner::ready(&server, config, format).await?;
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
        banner::stopped(format);
        Ok(())
    })
}

/// Makes a write above the limit of the file size (`ulimit -f`) fail, which the store treats as a full
/// disk. By default, the signal ends the process.
fn survive_file_size_limit() -> io::Result<()> {
    // The handler stays installed after the receiver is dropped.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}
