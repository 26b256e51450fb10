//! Publishing and consuming: how long an event takes to its consumer, and how fast a backlog is
//! consumed. Each event is acknowledged alone.

use std::sync::Arc;
use std::time::Instant;

use prombus_proto::limits::MAX_IN_FLIGHT;
use prombus_proto::{Group, Topic};
use tokio::task::JoinSet;

use crate::consumer::{CountFrom, Countdown, consume};
use crate::event_text::EventText;
use crate::port::ConsumePort;
use crate::publish::{Publishers, all};
use crate::publisher::Course;
use crate::report::SubscribeReport;
use crate::tally::Tally;
use crate::target::Target;
use crate::wire::WireConsumer;
use crate::{BenchError, Load, run_name};

/// How many events a frame has that a backlog is published with.
const BACKLOG_BATCH: u64 = 100;

/// Publishes `load` and consumes it at the same time, by a group of its own.
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
    // The group is there before its events, so that it has exactly these to consume.
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
    group: Group,
}

impl<'a> Run<'a> {
    fn new(load: &'a Load) -> Result<Self, BenchError> {
        load.check()?;
        let topics = load.topics()?;
        let name = run_name();
        let text = Arc::new(EventText::new(load, &topics, &name)?);
        let group = Group::new(&format!("bench-{name}")).expect("a group's name");
        Ok(Self { load, topics, text, group })
    }

    fn course(&self, load: Load) -> Course {
        Course { load, text: Arc::clone(&self.text), began: Instant::now() }
    }

    async fn consumers(&self, target: &Target) -> Result<Consumers, BenchError> {
        let load = self.load;
        let places = 0..load.connections;
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
                for topics in places.map(topics_of) {
                    consumers.push(bus.consumer(&topics, &self.group, in_flight(&topics)).await?);
                }
                Ok(Consumers::InProcess(consumers))
            }
            Target::Wire(server) => {
                let mut consumers = Vec::new();
                let sockets = server.open_many(load.connections).await?;
                for (topics, socket) in places.map(topics_of).zip(sockets) {
                    let most = in_flight(&topics);
                    consumers.push(WireConsumer::new(socket, &topics, &self.group, most).await?);
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
        if total.events != self.load.events {
            let (came, sent) = (total.events, self.load.events);
            let wrong = format!("{came} events were delivered of {sent} that were published");
            return Err(BenchError::Meaningless(wrong));
        }
        Ok(SubscribeReport::of(&total, took, late))
    }
}

/// Connections that have subscribed.
enum Consumers {
    InProcess(Vec<crate::in_process::InProcessConsumer>),
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
    let left = Countdown::of(course.load.events);
    let mut consuming = JoinSet::new();
    for port in ports {
        let (left, tally) = (Arc::clone(&left), Arc::clone(tally));
        consuming.spawn(consume(port, course.clone(), from, left, tally));
    }
    all(consuming).await
}
