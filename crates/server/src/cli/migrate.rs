//! `prombus migrate`.

mod progress;

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use prombus_engine_mongo::{Migration, MigrationPlan, MongoError, MongoOptions};
use prombus_server::config::{Config, EngineConfig, Flag, Sources};
use prombus_server::mongo_address::MongoAddress;
use prombus_server::retention::{RetentionError, effective_retention_ms};

use super::status_line::StatusLine;
use super::stop_signal::StopSignal;
use progress::MigrationProgress;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus migrate --engine mongodb://db1,db2,db3/prombus?replicaSet=rs0
  prombus migrate --config prombus.toml
  prombus migrate --config prombus.toml --apply

Without --apply, prints the plan and changes nothing. Gateways can keep publishing while a migration runs.
An interrupted migration continues when it is run again.

Exit status:
  0  nothing to do, or with --apply: migrated and verified
  1  the migration failed
  2  invalid usage
  3  there are pending steps")]
pub(crate) struct MigrateArguments {
    /// MongoDB connection string, mongodb://… (server.engine)
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Read settings, such as the retention of topics, from this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a setting, such as 'topics."orders.created".retention_ms=604800000'; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Apply the plan
    #[arg(long)]
    apply: bool,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// Exit status: there are pending steps.
const PENDING: u8 = 3;

pub(crate) async fn run(arguments: MigrateArguments) -> Result<ExitCode, Box<dyn Error>> {
    let MigrateArguments { engine, config, set, apply, json } = arguments;
    let engine =
        engine.map(|engine| Flag { name: "--engine", key: "server.engine", value: engine.into() });
    let environment = env::vars_os().collect();
    let flags = engine.into_iter().collect();
    let config = Config::load(&Sources { file: config, environment, set, flags })?;
    let EngineConfig::Mongo(address) = &config.server.engine else {
        return Err("only MongoDB databases need migrations: pass --engine mongodb://…".into());
    };
    let mongo_error = |error: MongoError| format!("{address}: {error}");
    let options = MongoOptions::at(address.reveal(), prombus_bus::STATE_KINDS);
    let migration = Migration::connect(&options).await.map_err(mongo_error)?;
    let retention_error = |error: RetentionError| format!("{address}: {error}");
    let retention = effective_retention_ms(&config, &migration).await.map_err(retention_error)?;
    let plan = migration.plan(&retention).await.map_err(mongo_error)?;
    print(&plan, address, json, apply)?;
    if plan.steps().is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let line = StatusLine::new(false);
    if !migration.is_safe_while_in_use() {
        line.println(
            "the database is a standalone server, not a replica set: stop its gateway while retention \
             changes",
        );
    }
    if !apply {
        return Ok(ExitCode::from(PENDING));
    }
    let progress = MigrationProgress::new(line, StopSignal::new()?);
    let applied = migration.apply(&plan, &|step| progress.report(step)).await;
    progress.finish();
    applied.map_err(mongo_error)?;
    let retention = effective_retention_ms(&config, &migration).await.map_err(retention_error)?;
    let remaining = migration.plan(&retention).await.map_err(mongo_error)?;
    match remaining.steps() {
        [] => {
            progress.println("migrated and verified: nothing left to do");
            Ok(ExitCode::SUCCESS)
        }
        [first, ..] => Err(format!("{address}: steps are still pending: {first}").into()),
    }
}

fn print(plan: &MigrationPlan, address: &MongoAddress, json: bool, apply: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        return writeln!(out, "{}", plan.to_json());
    }
    if plan.steps().is_empty() {
        return writeln!(out, "database {} at {address} is up to date", plan.database());
    }
    let heading = if apply { "applying to" } else { "pending steps for" };
    writeln!(out, "{heading} database {} at {address}:", plan.database())?;
    for step in plan.steps() {
        writeln!(out, "  {step}")?;
    }
    match apply {
        true => Ok(()),
        false => writeln!(out, "nothing was changed; run again with --apply to migrate"),
    }
}
