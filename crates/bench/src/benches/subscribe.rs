//! Publishing and consuming: how long an event takes to its consumer, and how fast a backlog is
//! consumed. Each event is acknowledged alone.

use std::sync::Arc;
use std::time::Instant;

use prombus_proto::limits::MAX_IN_FLIGHT;
use prombus_proto::{Group, Topic};
use tokio::task::JoinSet;

use crate::benches::publish::{Publishers, all};
use crate::consumer::{CountFrom, Countdown, consume};
use crate::load::event_text::EventText;
use crate::measure::tally::Tally;
use crate::port::ConsumePort;
use crate::publisher::Course;
use crate::report::SubscribeReport;
use crate::target::Target;
use crate::target::wire::WireConsumer;
use crate::{BenchError, Load, run_name};

/// How many events a frame has that a backlog is published with.
const BACKLOG_BATCH: u64 = 100;

/// Publishes `load` and consumes it at the same time, by groups of its own.
pub async fn bench_subscribe(
    target: &Target,
    load: &Load,
    tally: &Arc<Tally>,
) -> Result<SubscribeReport, BenchError> {
    let run = Run::new(load)?;
    let consumers = run.consumers(target).await?;
    let publishers = Publishers::connect(target, load, &run.topics).await?;
    let course = run.course(load.clone());
    let published = Arc::new(Tally::default());
    let consuming = consumers.run(&course, CountFrom::Sending, tally);
    // What fails first ends both.
    tokio::try_join!(publishers.run(&course, &published), consuming)?;
    let took = course.now();
    run.report(tally, took, published.total().late)
}

/// Publishes `load` first, unmeasured, and consumes then what is there.
pub async fn bench_backlog(
    target: &Target,
    load: &Load,
    tally: &Arc<Tally>,
) -> Result<SubscribeReport, BenchError> {
    let run = Run::new(load)?;
    // The groups are there before their events, so that they have exactly these to consume.
    run.consumers(target).await?.leave().await;
    let quickly = Load { batch: BACKLOG_BATCH, rate: None, ..load.clone() };
    let publishers = Publishers::connect(target, &quickly, &run.topics).await?;
    publishers.run(&run.course(quickly), &Arc::default()).await?;
    let course = run.course(load.clone());
    let consumers = run.consumers(target).await?;
    consumers.run(&course, CountFrom::Beginning, tally).await?;
    run.report(tally, course.now(), 0)
}

/// What one run has of its own.
struct Run<'a> {
    load: &'a Load,
    topics: Vec<Topic>,
    text: Arc<EventText>,
    groups: Vec<Group>,
}

impl<'a> Run<'a> {
    fn new(load: &'a Load) -> Result<Self, BenchError> {
        load.check()?;
        let topics = load.topics()?;
        let name = run_name();
        let text = Arc::new(EventText::new(load, &topics, &name)?);
        let group = |number| Group::new(&format!("bench-{name}-{number}")).expect("a group's name");
        let groups = (0..load.groups).map(group).collect();
        Ok(Self { load, topics, text, groups })
    }

    fn course(&self, load: Load) -> Course {
        Course { load, text: Arc::clone(&self.text), began: Instant::now() }
    }

    async fn consumers(&self, target: &Target) -> Result<Consumers, BenchError> {
        let load = self.load;
        // Each group has so many connections.
        let places = 0..load.connections;
        let places = self.groups.iter().flat_map(|group| places.clone().map(move |p| (group, p)));
        let topics_of = |place| -> Vec<Topic> {
            load.topics_of(place).into_iter().map(|topic| self.topics[topic].clone()).collect()
        };
        // What a connection may have at a time is shared by its subscriptions.
        let in_flight = |topics: &[Topic]| {
            let each = load.window / topics.len() as u64;
            u32::try_from(each).unwrap_or(u32::MAX).clamp(1, MAX_IN_FLIGHT)
        };
        match target {
            Target::InProcess(bus) => {
                let mut consumers = Vec::new();
                for (group, place) in places {
                    let topics = topics_of(place);
                    consumers.push(bus.consumer(&topics, group, in_flight(&topics)).await?);
                }
                Ok(Consumers::InProcess(consumers))
            }
            Target::Wire(server) => {
                let mut consumers = Vec::new();
                let sockets = server.open_many(load.connections * load.groups).await?;
                for ((group, place), socket) in places.zip(sockets) {
                    let topics = topics_of(place);
                    let most = in_flight(&topics);
                    consumers.push(WireConsumer::new(socket, &topics, group, most).await?);
                }
                Ok(Consumers::Wire(consumers))
            }
        }
    }

    fn report(
        &self,
        tally: &Tally,
        took: std::time::Duration,
        late: u64,
    ) -> Result<SubscribeReport, BenchError> {
        let total = tally.total();
        let due = self.load.deliveries();
        if total.events != due {
            let wrong = format!("{} deliveries came of {due} that were due", total.events);
            return Err(BenchError::Meaningless(wrong));
        }
        Ok(SubscribeReport::of(&total, took, late))
    }
}

/// Connections that have subscribed.
enum Consumers {
    InProcess(Vec<crate::target::in_process::InProcessConsumer>),
    Wire(Vec<WireConsumer>),
}

impl Consumers {
    async fn leave(self) {
        match self {
            Self::InProcess(consumers) => {
                for consumer in consumers {
                    consumer.leave().await;
                }
            }
            Self::Wire(consumers) => {
                for consumer in consumers {
                    consumer.leave().await;
                }
            }
        }
    }

    async fn run(
        self,
        course: &Course,
        from: CountFrom,
        tally: &Arc<Tally>,
    ) -> Result<(), BenchError> {
        match self {
            Self::InProcess(ports) => run(ports, course, from, tally).await,
            Self::Wire(ports) => run(ports, course, from, tally).await,
        }
    }
}

async fn run<P: ConsumePort + 'static>(
    ports: Vec<P>,
    course: &Course,
    from: CountFrom,
    tally: &Arc<Tally>,
) -> Result<(), BenchError> {
    let left = Countdown::of(course.load.deliveries());
    let mut consuming = JoinSet::new();
    for port in ports {
        let (left, tally) = (Arc::clone(&left), Arc::clone(tally));
        consuming.spawn(consume(port, course.clone(), from, left, tally));
    }
    all(consuming).await
}
