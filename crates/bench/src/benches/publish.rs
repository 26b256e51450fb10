//! Publishing: events per second, and the time from sending to the answer.

use std::sync::Arc;
use std::time::Instant;

use prombus_proto::Topic;
use tokio::task::JoinSet;

use crate::load::event_text::EventText;
use crate::load::pacer::Pacer;
use crate::measure::tally::Tally;
use crate::port::PublishPort;
use crate::publisher::{RunContext, publish};
use crate::report::PublishReport;
use crate::target::Target;
use crate::target::wire::WirePublisher;
use crate::{BenchError, Load, run_name};

/// Publishes `load`. `tally` shows the progress.
pub async fn bench_publish(
    target: &Target,
    load: &Load,
    tally: &Arc<Tally>,
) -> Result<PublishReport, BenchError> {
    load.check()?;
    let topics = load.topics()?;
    let text = Arc::new(EventText::new(load, &topics, &run_name())?);
    let publishers = Publishers::connect(target, load, &topics).await?;
    let context = RunContext { load: load.clone(), text, started: Instant::now() };
    publishers.run(&context, tally).await?;
    Ok(PublishReport::of(&tally.total()))
}

/// Open connections that are ready to publish.
pub(crate) enum Publishers {
    InProcess(Vec<crate::target::in_process::InProcessPublisher>),
    Wire(Vec<WirePublisher>),
}

impl Publishers {
    pub(crate) async fn connect(
        target: &Target,
        load: &Load,
        topics: &[Topic],
    ) -> Result<Self, BenchError> {
        match target {
            Target::InProcess(bus) => {
                Ok(Self::InProcess((0..load.connections).map(|_| bus.publisher(topics)).collect()))
            }
            Target::Wire(server) => {
                let sockets = server.open_many(load.connections).await?;
                let publisher = |socket| WirePublisher::new(socket, topics, load.batch > 1);
                Ok(Self::Wire(sockets.into_iter().map(publisher).collect()))
            }
        }
    }

    /// Publishes the whole load.
    pub(crate) async fn run(
        self,
        context: &RunContext,
        tally: &Arc<Tally>,
    ) -> Result<(), BenchError> {
        match self {
            Self::InProcess(ports) => run(ports, context, tally).await,
            Self::Wire(ports) => run(ports, context, tally).await,
        }
    }
}

async fn run<P: PublishPort + 'static>(
    ports: Vec<P>,
    context: &RunContext,
    tally: &Arc<Tally>,
) -> Result<(), BenchError> {
    let pacer = Pacer::start(&context.load, context.started);
    let mut publishing = JoinSet::new();
    for (index, port) in ports.into_iter().enumerate() {
        let wake = pacer.notify(index);
        publishing.spawn(publish(port, context.clone(), index, wake, Arc::clone(tally)));
    }
    join_all(publishing).await
}

/// Waits for all tasks. The first failure ends the others.
pub(crate) async fn join_all(mut tasks: JoinSet<Result<(), BenchError>>) -> Result<(), BenchError> {
    while let Some(result) = tasks.join_next().await {
        result.map_err(|error| BenchError::Invalid(error.to_string()))??;
    }
    Ok(())
}
