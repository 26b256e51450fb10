//! `prombus doctor`.
//!
//! Looks, and changes nothing: it opens no store and takes no lock, so that it can run beside a server.
//!
//! - `finding`: what was found, and what to do
//! - `config`, `disk_store`, `system`, `clock`: what can be seen without a server
//! - `running_server`: a server that answers
//! - `mongo`: the deployment behind `--engine mongodb://…`

mod clock;
mod config;
mod disk_store;
mod finding;
mod mongo;
mod running_server;
mod system;

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use prombus_server::config::{EngineConfig, Flag, Sources};

use super::output::print;
use super::server_arguments::HttpArguments;
use finding::{Finding, Findings};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus doctor
  prombus doctor --config /etc/prombus.toml
  prombus doctor --engine 'mongodb://db1,db2,db3/prombus?replicaSet=rs0' --json

Checks the settings that `prombus serve` would use with the same flags and environment, and a running server: the
one of --url, PROMBUS_URL or a context, else the one at the configured address. Run it as the user of the
server. It changes nothing.

Exit status:
  0  no problems; there may be warnings
  1  problems
  2  invalid usage")]
pub(crate) struct DoctorArguments {
    /// Read settings from this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory of the disk engine (server.data)
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Storage engine: disk, memory, or mongodb://… (server.engine)
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Override a setting; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArguments,
}

pub(crate) async fn run(arguments: DoctorArguments) -> Result<ExitCode, Box<dyn Error>> {
    let DoctorArguments { config, data, engine, set, json, server } = arguments;
    let flag =
        |name, key, value: Option<String>| value.map(|text| Flag { name, key, value: text.into() });
    let flags = [flag("--data", "server.data", data), flag("--engine", "server.engine", engine)];
    let sources = Sources {
        file: config,
        environment: env::vars_os().collect(),
        set,
        flags: flags.into_iter().flatten().collect(),
    };
    let endpoint = server.endpoint()?;
    let mut findings = Findings::default();
    let config = config::check(&sources, &mut findings);
    if let Some(config) = &config {
        system::check(config, &mut findings);
        match &config.server.engine {
            EngineConfig::Disk => disk_store::check(&config.server.data, &mut findings),
            EngineConfig::Memory => findings.push(Finding::warning(
                "store",
                "the memory engine loses all events when the server stops",
                "use --engine disk unless that is what you want",
            )),
            EngineConfig::Mongo(address) => mongo::check(config, address, &mut findings).await,
        }
    }
    clock::check(&mut findings);
    running_server::check(endpoint, config.as_ref(), &mut findings).await;
    let text = if json { findings.to_json() } else { findings.to_text() };
    print(text.as_bytes())?;
    Ok(if findings.has_problems() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
