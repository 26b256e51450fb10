//! One measurement: a new server, its clients, one work.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use prombus_peers_report::{Disk, Outcome, Plan, Work};

use crate::disk::{measure_on_time, measure_syncs, measure_syncs_meanwhile};
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

/// Measures one work on a server of its own, and the disk beside it where that is what counts. The client has
/// one thread.
pub(crate) fn measure(
    system: System,
    program: &Path,
    scratch: &Path,
    work: Work,
    plan: &Plan,
) -> Result<Outcome> {
    if work != Work::Steady {
        return measure_once(system, program, scratch, work, plan);
    }
    let mut flat_out = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let (mut on_time, mut meanwhile) = (flat_out.clone(), flat_out.clone());
    let mut measure_disk = || {
        measure_syncs(scratch, SYNCS, &mut flat_out)?;
        measure_on_time(scratch, ON_TIME, plan.per_second, &mut on_time)
    };
    measure_disk()?;
    let is_over = AtomicBool::new(false);
    let every = Duration::from_millis(plan.sync_every_ms);
    let (outcome, syncs) = thread::scope(|scope| {
        let syncs =
            scope.spawn(|| measure_syncs_meanwhile(scratch, every, &is_over, &mut meanwhile));
        let outcome = measure_once(system, program, scratch, work, plan);
        is_over.store(true, Ordering::Relaxed);
        (outcome, syncs.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    syncs?;
    let mut outcome = outcome?;
    measure_disk()?;
    if let Outcome::Latency { disk, .. } = &mut outcome {
        *disk = Disk {
            meanwhile_p99_us: meanwhile.value_at_quantile(0.99),
            flat_out_p99_us: flat_out.value_at_quantile(0.99),
            file_p99_us: on_time.value_at_quantile(0.99),
        };
    }
    Ok(outcome)
}

fn measure_once(
    system: System,
    program: &Path,
    scratch: &Path,
    work: Work,
    plan: &Plan,
) -> Result<Outcome> {
    let server = Server::start(system, program, scratch)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let measuring = on_server(system, &server, work, plan);
        tokio::time::timeout(patience(plan), measuring)
            .await
            .unwrap_or_else(|_| Err("took too long".into()))
    })
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
            let time = Duration::from_secs(plan.steady_seconds);
            work::steady(&mut publisher, &mut subscriber, plan.per_second, time).await
        }
    }
}
