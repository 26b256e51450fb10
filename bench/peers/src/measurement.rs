//! One measurement: a new server, its clients, one work.

use std::path::Path;
use std::time::Duration;

use hdrhistogram::Histogram;
use prombus_peers_report::{Outcome, Plan, Work};

use crate::disk::{measure_on_time, measure_syncs};
use crate::patience;
use crate::server::Server;
use crate::session::{Publisher, Result, Subscriber};
use crate::system::{Program, System};
use crate::systems::{mongodb, nats, prombus, redis};
use crate::work::{self, Amount};

/// How long the disk is measured, before and after.
const SYNCS: Duration = Duration::from_millis(500);
/// How long a plain file is, which has to see as many slow syncs as a server does.
const ON_TIME: Duration = Duration::from_millis(1500);

/// Measures one work on a server of its own. The client has one thread.
pub(crate) fn measure(
    system: System,
    program: &Path,
    scratch: &Path,
    work: Work,
    plan: &Plan,
) -> Result<Outcome> {
    let mut syncs = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let mut on_time = syncs.clone();
    let mut measure_disk = || {
        measure_syncs(scratch, SYNCS, &mut syncs)?;
        measure_on_time(scratch, ON_TIME, plan.per_second, &mut on_time)
    };
    if work == Work::Steady {
        measure_disk()?;
    }
    let server = Server::start(system, program, scratch)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut outcome = runtime.block_on(async {
        let measuring = on_server(system, &server, work, plan);
        tokio::time::timeout(patience(plan), measuring)
            .await
            .unwrap_or_else(|_| Err("took too long".into()))
    })?;
    drop(runtime);
    drop(server);
    if let Outcome::Latency { disk_p99_us, file_p99_us, .. } = &mut outcome {
        measure_disk()?;
        *disk_p99_us = syncs.value_at_quantile(0.99);
        *file_p99_us = on_time.value_at_quantile(0.99);
    }
    Ok(outcome)
}

async fn on_server(system: System, server: &Server, work: Work, plan: &Plan) -> Result<Outcome> {
    let address = server.address;
    let window = plan.window;
    match system.program() {
        Program::Prombus => {
            let publisher = prombus::Publishing::connect(address).await?;
            let subscriber = async || prombus::Subscribing::connect(address, window).await;
            run(publisher, subscriber, work, plan).await
        }
        Program::Nats => {
            nats::prepare(address, window).await?;
            let publisher = nats::Publishing::connect(address).await?;
            let subscriber = async || nats::Subscribing::connect(address, window).await;
            run(publisher, subscriber, work, plan).await
        }
        Program::Redis => {
            redis::prepare(address).await?;
            let publisher = redis::Publishing::connect(address).await?;
            let subscriber = async || redis::Subscribing::connect(address, window).await;
            run(publisher, subscriber, work, plan).await
        }
        Program::Mongod => {
            let journaled = system == System::MongodbJournaled;
            mongodb::prepare(address).await?;
            let publisher = mongodb::Publishing::connect(address, journaled)?;
            let subscriber = async || mongodb::Subscribing::connect(address, journaled, window);
            run(publisher, subscriber, work, plan).await
        }
    }
}

async fn run<S: Subscriber>(
    mut publisher: impl Publisher,
    subscriber: impl AsyncFn() -> Result<S>,
    work: Work,
    plan: &Plan,
) -> Result<Outcome> {
    let time = Duration::from_secs(plan.seconds);
    let each = Amount { events: plan.events, time, window: plan.window, batch: 1 };
    let batches = Amount { batch: plan.batch, ..each };
    match work {
        Work::PublishEach => work::publish_only(&mut publisher, each).await,
        Work::PublishBatches => work::publish_only(&mut publisher, batches).await,
        Work::PublishAndConsume => {
            let mut subscriber = subscriber().await?;
            work::publish_and_consume(&mut publisher, &mut subscriber, each).await
        }
        Work::Backlog => {
            let backlog = work::publish(&mut publisher, batches).await?;
            let mut subscriber = subscriber().await?;
            work::consume_backlog(&mut subscriber, backlog, each).await
        }
        Work::Steady => {
            let mut subscriber = subscriber().await?;
            work::steady(&mut publisher, &mut subscriber, plan.per_second, time).await
        }
    }
}
