//! One measurement: a new server, its clients, one workload.

use std::path::Path;
use std::time::Duration;

use prombus_peers_report::{Outcome, Plan, Workload};

use crate::client::{Publisher, Result, Subscriber};
use crate::disk::sync_filesystem;
use crate::latency::measure_latency;
use crate::measurement_timeout;
use crate::server::Server;
use crate::system::{Program, System};
use crate::systems::{mongodb, nats, prombus, redis};
use crate::workload::{self, Observation, RunLimits};

/// Measures one workload on a new server, and the disk as well if the outcome is a latency. The client has one thread.
pub(crate) fn measure(
    system: System,
    program: &Path,
    scratch: &Path,
    workload: Workload,
    plan: &Plan,
) -> Result<Outcome> {
    sync_filesystem(scratch)?;
    let measured = || {
        let server = Server::start(system, program, scratch)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let measuring = run_on_server(system, &server, workload, plan);
            tokio::time::timeout(measurement_timeout(plan), measuring)
                .await
                .unwrap_or_else(|_| Err("took too long".into()))
        })
    };
    if workload == Workload::Steady {
        return measure_latency(scratch, plan, measured);
    }
    let Observation { events, time, .. } = measured()?;
    Ok(Outcome::Rate { events, seconds: time.as_secs_f64() })
}

async fn run_on_server(
    system: System,
    server: &Server,
    workload: Workload,
    plan: &Plan,
) -> Result<Observation> {
    let address = server.address;
    let window = plan.window;
    match system.program() {
        Program::Prombus => {
            let publisher = prombus::PrombusPublisher::connect(address).await?;
            let subscriber = async || prombus::PrombusSubscriber::connect(address, window).await;
            run(publisher, subscriber, workload, plan).await
        }
        Program::Nats => {
            nats::prepare(address, window).await?;
            let publisher = nats::NatsPublisher::connect(address).await?;
            let subscriber = async || nats::NatsSubscriber::connect(address, window).await;
            run(publisher, subscriber, workload, plan).await
        }
        Program::Redis => {
            redis::prepare(address).await?;
            let publisher = redis::RedisPublisher::connect(address).await?;
            let subscriber = async || redis::RedisSubscriber::connect(address, window).await;
            run(publisher, subscriber, workload, plan).await
        }
        Program::Mongod => {
            let journaled = system == System::MongodbJournaled;
            mongodb::prepare(address).await?;
            let publisher = mongodb::MongoPublisher::connect(address, journaled)?;
            let subscriber = async || mongodb::MongoSubscriber::connect(address, journaled, window);
            run(publisher, subscriber, workload, plan).await
        }
    }
}

async fn run<S: Subscriber>(
    mut publisher: impl Publisher,
    subscriber: impl AsyncFn() -> Result<S>,
    workload: Workload,
    plan: &Plan,
) -> Result<Observation> {
    let time = Duration::from_secs(plan.seconds);
    let each = RunLimits { events: plan.events, time, window: plan.window, batch: 1 };
    let batches = RunLimits { batch: plan.batch, ..each };
    match workload {
        Workload::PublishEach => workload::publish_only(&mut publisher, each).await,
        Workload::PublishBatches => workload::publish_only(&mut publisher, batches).await,
        Workload::PublishAndConsume => {
            let mut subscriber = subscriber().await?;
            workload::publish_and_consume(&mut publisher, &mut subscriber, each).await
        }
        Workload::Backlog => {
            let backlog = workload::publish(&mut publisher, batches).await?;
            let mut subscriber = subscriber().await?;
            workload::consume_backlog(&mut subscriber, backlog, each).await
        }
        Workload::Steady => {
            let mut subscriber = subscriber().await?;
            let time = Duration::from_secs(plan.steady_seconds);
            workload::steady(&mut publisher, &mut subscriber, plan.per_second, time).await
        }
    }
}
