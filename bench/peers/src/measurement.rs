//! One measurement: a new server, its clients, one work.

use std::path::Path;
use std::time::Duration;

use prombus_peers_report::{Outcome, Plan, Work};

use crate::disk::settle;
use crate::latency::latency;
use crate::patience;
use crate::server::Server;
use crate::session::{Publisher, Result, Subscriber};
use crate::system::{Program, System};
use crate::systems::{mongodb, nats, prombus, redis};
use crate::work::{self, Amount, Seen};

/// Measures one work on a server of its own, and the disk beside it where that is what counts. The client has
/// one thread.
pub(crate) fn measure(
    system: System,
    program: &Path,
    scratch: &Path,
    work: Work,
    plan: &Plan,
) -> Result<Outcome> {
    settle(scratch)?;
    let measured = || {
        let server = Server::start(system, program, scratch)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let measuring = on_server(system, &server, work, plan);
            tokio::time::timeout(patience(plan), measuring)
                .await
                .unwrap_or_else(|_| Err("took too long".into()))
        })
    };
    if work == Work::Steady {
        return latency(scratch, plan, measured);
    }
    let Seen { events, time, .. } = measured()?;
    Ok(Outcome::Rate { events, seconds: time.as_secs_f64() })
}

async fn on_server(system: System, server: &Server, work: Work, plan: &Plan) -> Result<Seen> {
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
) -> Result<Seen> {
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
            let time = Duration::from_secs(plan.steady_seconds);
            work::steady(&mut publisher, &mut subscriber, plan.per_second, time).await
        }
    }
}
