//! `prombus migrate`.

mod watching;

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use prombus_engine_mongo::{Migration, MigrationPlan, MongoError, MongoOptions};
use prombus_server::config::{Config, EngineChoice, Flag, Sources};
use prombus_server::migrating::{WantedError, wanted_ttls};
use prombus_server::mongo_address::MongoAddress;

use super::status_line::StatusLine;
use super::stopping::Stopping;
use watching::Watching;

/// What `migrate` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus migrate --engine mongodb://db1,db2,db3/prombus?replicaSet=rs0
  prombus migrate --config prombus.toml
  prombus migrate --config prombus.toml --apply

Without --apply it only says what is to be done. It exits with 0 if that is nothing, with 3 if there is
something, with 1 if it failed, with 2 if it was called wrongly. With --apply it exits with 0 when all is
done and checked. It may be stopped and run again; gateways go on publishing meanwhile.")]
pub(crate) struct MigrateArguments {
    /// The database, mongodb://… (server.engine)
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Read settings from this file: how long topics keep their events is said there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change one setting, such as 'topics."orders.created".retention_ms=604800000'; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Do it
    #[arg(long)]
    apply: bool,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// There is something to do.
const TO_DO: u8 = 3;

pub(crate) async fn run(arguments: MigrateArguments) -> Result<ExitCode, Box<dyn Error>> {
    let MigrateArguments { engine, config, set, apply, json } = arguments;
    let engine =
        engine.map(|engine| Flag { name: "--engine", key: "server.engine", value: engine.into() });
    let environment = env::vars_os().collect();
    let flags = engine.into_iter().collect();
    let config = Config::load(&Sources { file: config, environment, set, flags })?;
    let EngineChoice::Mongo(address) = &config.server.engine else {
        return Err("only a database has to be migrated: say which by --engine mongodb://…".into());
    };
    let wrong = |error: MongoError| format!("{address}: {error}");
    let options = MongoOptions::at(address.reveal());
    let migration = Migration::connect(&options).await.map_err(wrong)?;
    let unknown = |error: WantedError| format!("{address}: {error}");
    let wanted = wanted_ttls(&config, &migration).await.map_err(unknown)?;
    let plan = migration.plan(&wanted).await.map_err(wrong)?;
    print(&plan, address, json, apply)?;
    if plan.steps().is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let line = StatusLine::beside(false);
    if !migration.is_safe_while_in_use() {
        line.say(
            "the database is a single server that is no replica set: stop its gateway while times to \
             live are changed",
        );
    }
    if !apply {
        return Ok(ExitCode::from(TO_DO));
    }
    let watching = Watching::new(line, Stopping::new()?);
    let applied = migration.apply(&plan, &|progress| watching.see(progress)).await;
    watching.finish();
    applied.map_err(wrong)?;
    let wanted = wanted_ttls(&config, &migration).await.map_err(unknown)?;
    let left = migration.plan(&wanted).await.map_err(wrong)?;
    match left.steps() {
        [] => {
            watching.say("done, and everything is as it has to be");
            Ok(ExitCode::SUCCESS)
        }
        [first, ..] => {
            Err(format!("{address}: something is still to do, or again: {first}").into())
        }
    }
}

fn print(plan: &MigrationPlan, address: &MongoAddress, json: bool, apply: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{}", plan.to_json());
    }
    if plan.steps().is_empty() {
        return writeln!(out, "the database {} at {address} is as it has to be", plan.database());
    }
    let will = if apply { "doing" } else { "to do" };
    writeln!(out, "{will} in the database {} at {address}:", plan.database())?;
    for step in plan.steps() {
        writeln!(out, "  {step}")?;
    }
    match apply {
        true => Ok(()),
        false => writeln!(out, "nothing was changed; prombus migrate --apply does it"),
    }
}
