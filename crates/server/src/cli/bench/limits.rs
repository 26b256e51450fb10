//! `prombus bench limits`.

use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use prombus_bench::{LimitsPlan, LimitsReport, Tally, Wire, bench_limits};
use prombus_bus::Rate;
use prombus_client::transport::Protocol;
use prombus_server::config::{self, Config, Sources};

use super::own_server::OwnServer;
use super::printing::{self, PrintArguments, Rows};
use super::target_arguments::StoreArguments;
use super::watching::{Shown, watched};
use crate::cli::server_arguments::AccessArguments;

/// What `bench limits` takes.
#[derive(clap::Args)]
pub(super) struct LimitsArguments {
    /// The server's WebSocket gateway; without it, a server process of our own is started
    #[arg(long, value_name = "URL", conflicts_with_all = ["engine", "data"])]
    url: Option<String>,
    /// What the server has as limits.connection; the default is what servers have
    #[arg(long, value_name = "CAPACITY/REFILL_PER_SEC")]
    connection_limit: Option<Bucket>,
    /// What the server has as limits.topic; the default is what servers have
    #[arg(long, value_name = "CAPACITY/REFILL_PER_SEC")]
    topic_limit: Option<Bucket>,
    /// For how long each of both is tried
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    #[command(flatten)]
    store: StoreArguments,
    #[command(flatten)]
    access: AccessArguments,
    #[command(flatten)]
    print: PrintArguments,
}

#[derive(Clone, Copy)]
struct Bucket(Rate);

impl FromStr for Bucket {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "two whole numbers, 1 or more, as CAPACITY/REFILL_PER_SEC, such as 200/100";
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let (capacity, refill) = text.split_once('/').ok_or(wrong)?;
        let (capacity, refill) = number(capacity).zip(number(refill)).ok_or(wrong)?;
        Ok(Self(Rate { capacity, refill_per_sec: refill }))
    }
}

pub(super) async fn run(arguments: LimitsArguments) -> Result<(), Box<dyn Error>> {
    let time = Duration::try_from_secs_f64(arguments.seconds)
        .map_err(|_| "--seconds has to be a time, such as 10")?;
    let nothing = Sources { file: None, environment: vec![], set: vec![], flags: vec![] };
    let usual = Config::load(&nothing)?.limits;
    let rate = |given: Option<Bucket>, usual: config::Bucket| match given {
        Some(Bucket(rate)) => rate,
        None => {
            Rate { capacity: usual.capacity.into(), refill_per_sec: usual.refill_per_sec.into() }
        }
    };
    let plan = LimitsPlan {
        connection: rate(arguments.connection_limit, usual.connection),
        topic: rate(arguments.topic_limit, usual.topic),
        time,
    };
    let store;
    let (server, wire) = match &arguments.url {
        Some(url) => {
            let address = arguments.access.address(url, Protocol::WebSocket)?;
            (None, Wire::new(address, arguments.access.token()))
        }
        None => {
            store = arguments.store.choose()?;
            let settings = settings(&plan);
            let settings: Vec<_> = settings.iter().map(String::as_str).collect();
            let server = OwnServer::start(&store, &settings)?;
            let wire = Wire::new(server.gateway()?, None);
            (Some(server), wire)
        }
    };
    let tally = Arc::new(Tally::default());
    let work = bench_limits(&wire, &plan, &tally);
    let report = watched("passed", Shown::Rate, &tally, work).await?;
    arguments.print.print(&report, None, rows(&report))?;
    server.map_or(Ok(()), OwnServer::stop)
}

/// What a server of our own has to be told.
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

fn rows(report: &LimitsReport) -> Rows {
    [("a connection's", report.connection), ("a topic's", report.topic)]
        .into_iter()
        .map(|(name, bucket)| {
            let (passed, refused) = (printing::count(bucket.passed), printing::count(bucket.refused));
            let line = format!(
                "{passed} passed in {:.0} ms, {} expected: {:.4}; {refused} refused, {} connections",
                bucket.ms, bucket.expected, bucket.ratio, bucket.connections
            );
            (name, line)
        })
        .collect()
}
