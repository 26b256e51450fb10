//! Publishing: how many events a second, and how long each takes to be answered.

use std::sync::Arc;
use std::time::Instant;

use prombus_proto::Topic;
use tokio::task::JoinSet;

use crate::load::event_text::EventText;
use crate::load::pacer::Pacer;
use crate::measure::tally::Tally;
use crate::port::PublishPort;
use crate::publisher::{Course, publish};
use crate::report::PublishReport;
use crate::target::Target;
use crate::target::wire::WirePublisher;
use crate::{BenchError, Load, run_name};

/// Publishes `load`; `tally` says how far it is.
pub async fn bench_publish(
    target: &Target,
    load: &Load,
    tally: &Arc<Tally>,
) -> Result<PublishReport, BenchError> {
    load.check()?;
    let topics = load.topics()?;
    let text = Arc::new(EventText::new(load, &topics, &run_name())?);
    let publishers = Publishers::connect(target, load, &topics).await?;
    let course = Course { load: load.clone(), text, began: Instant::now() };
    publishers.run(&course, tally).await?;
    Ok(PublishReport::of(&tally.total()))
}

/// Connections that are there and publish when they are told to.
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

    /// Publishes everything.
    pub(crate) async fn run(self, course: &Course, tally: &Arc<Tally>) -> Result<(), BenchError> {
        match self {
            Self::InProcess(ports) => run(ports, course, tally).await,
            Self::Wire(ports) => run(ports, course, tally).await,
        }
    }
}

async fn run<P: PublishPort + 'static>(
    ports: Vec<P>,
    course: &Course,
    tally: &Arc<Tally>,
) -> Result<(), BenchError> {
    let pacer = Pacer::start(&course.load, course.began);
    let mut publishing = JoinSet::new();
    for (place, port) in ports.into_iter().enumerate() {
        let wake = pacer.of(place);
        publishing.spawn(publish(port, course.clone(), place, wake, Arc::clone(tally)));
    }
    all(publishing).await
}

/// Waits for all; the first that fails ends them.
pub(crate) async fn all(mut tasks: JoinSet<Result<(), BenchError>>) -> Result<(), BenchError> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| BenchError::Meaningless(error.to_string()))??;
    }
    Ok(())
}
