//! `prombus bench limits`.

use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use prombus_bench::{LimitsPlan, LimitsReport, Tally, Wire, bench_limits};
use prombus_bus::Rate;
use prombus_server::config::{BucketConfig, Config, Sources};

use super::left_topics::LeftTopics;
use super::progress::{ProgressStyle, with_progress};
use super::report::{self, PrintArguments, Rows};
use super::spawned_server::SpawnedServer;
use super::target_arguments::StoreArguments;
use crate::cli::server_arguments::AccessArguments;
use crate::cli::times::seconds;

#[derive(clap::Args)]
pub(super) struct LimitsArguments {
    /// URL of the server: http, https, ws or wss; default: spawn a server process
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data"])]
    url: Option<String>,
    /// limits.connection of the server; default: the built-in default
    #[arg(long, value_name = "CAPACITY/REFILL_PER_SEC")]
    connection_limit: Option<RateArgument>,
    /// limits.topic of the server; default: the built-in default
    #[arg(long, value_name = "CAPACITY/REFILL_PER_SEC")]
    topic_limit: Option<RateArgument>,
    /// Duration of each of the two measurements, such as 2m or in seconds
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    print: PrintArguments,
}

#[derive(Clone, Copy)]
struct RateArgument(Rate);

impl FromStr for RateArgument {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected =
            "expected two whole numbers, 1 or more, as CAPACITY/REFILL_PER_SEC, such as 200/100";
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let (capacity, refill) = text.split_once('/').ok_or(expected)?;
        let (capacity, refill) = number(capacity).zip(number(refill)).ok_or(expected)?;
        Ok(Self(Rate { capacity, refill_per_sec: refill }))
    }
}

pub(super) async fn run(arguments: LimitsArguments) -> Result<(), Box<dyn Error>> {
    let time =
        Duration::try_from_secs_f64(arguments.seconds).map_err(|_| "--seconds is too long")?;
    let defaults = Config::load(&Sources::default())?.limits;
    let rate = |given: Option<RateArgument>, default: BucketConfig| match given {
        Some(RateArgument(rate)) => rate,
        None => Rate {
            capacity: default.capacity.into(),
            refill_per_sec: default.refill_per_sec.into(),
        },
    };
    let plan = LimitsPlan {
        run: LimitsPlan::new_run(),
        connection: rate(arguments.connection_limit, defaults.connection),
        topic: rate(arguments.topic_limit, defaults.topic),
        time,
    };
    let store;
    let (server, wire) = match &arguments.url {
        Some(url) => {
            let endpoint = arguments.access.at(url)?;
            (None, Wire::new(endpoint.gateway()?, endpoint.token().map(ToOwned::to_owned)))
        }
        None => {
            store = arguments.store.choose()?;
            let settings = settings(&plan);
            let settings: Vec<_> = settings.iter().map(String::as_str).collect();
            let server = SpawnedServer::start(&store, &settings)?;
            let wire = Wire::new(server.gateway()?, None);
            (Some(server), wire)
        }
    };
    let tally = Arc::new(Tally::default());
    let left = match &arguments.url {
        Some(url) => LeftTopics::among(&arguments.access.at(url)?, plan.topics()?).await,
        None => None,
    };
    let work = bench_limits(&wire, &plan, &tally);
    let measured = with_progress("passed", ProgressStyle::Rate, &tally, work).await;
    if let Some(left) = left {
        left.remove().await;
    }
    let report = measured?;
    arguments.print.print(&report, None, rows(&report))?;
    server.map_or(Ok(()), SpawnedServer::stop)
}

/// The settings of a spawned server.
fn settings(plan: &LimitsPlan) -> Vec<String> {
    let of = |name: &str, Rate { capacity, refill_per_sec }: Rate| {
        [
            format!("limits.{name}.capacity={capacity}"),
            format!("limits.{name}.refill_per_sec={refill_per_sec}"),
        ]
    };
    let both = [of("connection", plan.connection), of("topic", plan.topic)];
    both.into_iter().flatten().chain(["limits.enabled=true".to_owned()]).collect()
}

fn rows(limits: &LimitsReport) -> Rows {
    [("connection limit", limits.connection), ("topic limit", limits.topic)]
        .into_iter()
        .map(|(name, bucket)| {
            let (passed, refused) = (report::count(bucket.passed), report::count(bucket.refused));
            let line = format!(
                "{passed} passed in {:.0} ms, {} expected, ratio {:.4}; {refused} rejected, {} connections",
                bucket.ms, bucket.expected, bucket.ratio, bucket.connections
            );
            (name, line)
        })
        .collect()
}
