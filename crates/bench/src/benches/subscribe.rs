//! Consuming: the time from publisher to consumer, and how fast a backlog is consumed. Each event
//! is acknowledged on its own.

use std::sync::Arc;
use std::time::Instant;

use prombus_proto::limits::MAX_IN_FLIGHT;
use prombus_proto::{Group, Topic};
use tokio::task::JoinSet;

use crate::benches::publish::{Publishers, join_all};
use crate::consumer::{Countdown, LatencyFrom, consume};
use crate::load::event_text::EventText;
use crate::measure::tally::Tally;
use crate::port::ConsumePort;
use crate::publisher::RunContext;
use crate::report::SubscribeReport;
use crate::target::Target;
use crate::target::wire::WireConsumer;
use crate::{BenchError, Load, run_name};

/// Events per frame when a backlog is published.
const BACKLOG_BATCH: u64 = 100;

/// Publishes `load` and consumes it at the same time, with new consumer groups.
pub async fn bench_subscribe(
    target: &Target,
    load: &Load,
    tally: &Arc<Tally>,
) -> Result<SubscribeReport, BenchError> {
    let run = Run::new(load)?;
    let consumers = run.consumers(target).await?;
    let publishers = Publishers::connect(target, load, &run.topics).await?;
    let context = run.context(load.clone());
    let published = Arc::new(Tally::default());
    let consuming = consumers.run(&context, LatencyFrom::Sent, tally);
    // The first failure ends both.
    tokio::try_join!(publishers.run(&context, &published), consuming)?;
    let took = context.now();
    run.report(tally, took, published.total().late)
}

/// Publishes `load` first, without measuring, and then consumes it.
pub async fn bench_backlog(
    target: &Target,
    load: &Load,
    tally: &Arc<Tally>,
) -> Result<SubscribeReport, BenchError> {
    let run = Run::new(load)?;
    // The groups exist before the events, so that they consume exactly these.
    run.consumers(target).await?.leave().await;
    let fast = Load { batch: BACKLOG_BATCH, rate: None, ..load.clone() };
    let publishers = Publishers::connect(target, &fast, &run.topics).await?;
    publishers.run(&run.context(fast), &Arc::default()).await?;
    let context = run.context(load.clone());
    let consumers = run.consumers(target).await?;
    consumers.run(&context, LatencyFrom::RunStart, tally).await?;
    run.report(tally, context.now(), 0)
}

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

    fn context(&self, load: Load) -> RunContext {
        RunContext { load, text: Arc::clone(&self.text), started: Instant::now() }
    }

    async fn consumers(&self, target: &Target) -> Result<Consumers, BenchError> {
        let load = self.load;
        // Each group has as many consumers as there are connections.
        let indexes = 0..load.connections;
        let members = self.groups.iter();
        let members = members.flat_map(|group| indexes.clone().map(move |index| (group, index)));
        let topics_of = |index| -> Vec<Topic> {
            load.topics_of(index).into_iter().map(|topic| self.topics[topic].clone()).collect()
        };
        // A connection's subscriptions share its window.
        let in_flight = |topics: &[Topic]| {
            let each = load.window / topics.len() as u64;
            u32::try_from(each).unwrap_or(u32::MAX).clamp(1, MAX_IN_FLIGHT)
        };
        match target {
            Target::InProcess(bus) => {
                let mut consumers = Vec::new();
                for (group, index) in members {
                    let topics = topics_of(index);
                    consumers.push(bus.consumer(&topics, group, in_flight(&topics)).await?);
                }
                Ok(Consumers::InProcess(consumers))
            }
            Target::Wire(server) => {
                let mut consumers = Vec::new();
                let sockets = server.open_many(load.connections * load.groups).await?;
                for ((group, index), socket) in members.zip(sockets) {
                    let topics = topics_of(index);
                    let max = in_flight(&topics);
                    consumers.push(WireConsumer::new(socket, &topics, group, max).await?);
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
        let expected = self.load.deliveries();
        if total.events != expected {
            let msg = format!("got {} deliveries instead of {expected}", total.events);
            return Err(BenchError::Invalid(msg));
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
        context: &RunContext,
        from: LatencyFrom,
        tally: &Arc<Tally>,
    ) -> Result<(), BenchError> {
        match self {
            Self::InProcess(ports) => run(ports, context, from, tally).await,
            Self::Wire(ports) => run(ports, context, from, tally).await,
        }
    }
}

async fn run<P: ConsumePort + 'static>(
    ports: Vec<P>,
    context: &RunContext,
    from: LatencyFrom,
    tally: &Arc<Tally>,
) -> Result<(), BenchError> {
    let left = Countdown::new(context.load.deliveries());
    let mut consuming = JoinSet::new();
    for port in ports {
        let (left, tally) = (Arc::clone(&left), Arc::clone(tally));
        consuming.spawn(consume(port, context.clone(), from, left, tally));
    }
    join_all(consuming).await
}
