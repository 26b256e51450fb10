//! How exact a server's rate limits are.
//!
//! For a while, connections publish more than a token bucket admits. The number of admitted events
//! is compared with the setting: the capacity of the bucket and its refill meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_bus::Rate;
use prombus_proto::{ErrorCode, Topic};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::measure::tally::Tally;
use crate::target::wire::{FramePeek, Socket, frame_error};
use crate::{BenchError, Wire, run_name};

/// Unanswered publishes per connection.
const WINDOW: usize = 16;
/// How long a connection waits after everything was refused. No token is lost, because a bucket
/// keeps its refill until it is full.
const PAUSE: Duration = Duration::from_millis(1);
/// How much more is demanded than admitted.
const DEMAND: u64 = 2;

/// The server's settings.
#[derive(Clone, Debug)]
pub struct LimitsPlan {
    /// Part of the names of all topics: buckets that were used before are not full.
    pub run: String,
    /// `limits.connection`.
    pub connection: Rate,
    /// `limits.topic`.
    pub topic: Rate,
    /// How long each bucket is tested.
    pub time: Duration,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct LimitsReport {
    /// The bucket of one connection.
    pub connection: BucketReport,
    /// The bucket of one topic, published to by several connections.
    pub topic: BucketReport,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct BucketReport {
    /// Events that the bucket admitted.
    pub passed: u64,
    /// Events that the setting admits: the capacity, and the refill during the test.
    pub expected: f64,
    /// `passed` divided by `expected`; 1 is exact.
    pub ratio: f64,
    /// Events that this bucket refused.
    pub refused: u64,
    /// From the first publish to the last, in milliseconds.
    pub ms: f64,
    pub connections: usize,
}

/// Tests both buckets, one after the other, on topics of their own.
pub async fn bench_limits(
    server: &Wire,
    plan: &LimitsPlan,
    tally: &Arc<Tally>,
) -> Result<LimitsReport, BenchError> {
    let trial = Trial { rate: plan.connection, time: plan.time, scope: "conn" };
    let connection = trial.run(server, 1, plan.topics_of_connection()?, tally).await?;
    let connections = buckets_needed(plan.topic, plan.connection);
    let trial = Trial { rate: plan.topic, time: plan.time, scope: "topic" };
    let topic = trial.run(server, connections, vec![plan.shared_topic()?], tally).await?;
    Ok(LimitsReport { connection, topic })
}

impl LimitsPlan {
    /// Returns a random name of a run.
    #[must_use]
    pub fn new_run() -> String {
        run_name()
    }

    /// Returns all topics that are published to.
    pub fn topics(&self) -> Result<Vec<Topic>, BenchError> {
        let mut topics = self.topics_of_connection()?;
        topics.push(self.shared_topic()?);
        Ok(topics)
    }

    /// Returns enough topics that none of them limits the connection.
    fn topics_of_connection(&self) -> Result<Vec<Topic>, BenchError> {
        let count = buckets_needed(self.connection, self.topic);
        (0..count).map(|n| self.named(&format!("c{n}"))).collect()
    }

    fn shared_topic(&self) -> Result<Topic, BenchError> {
        self.named("t")
    }

    fn named(&self, name: &str) -> Result<Topic, BenchError> {
        let name = format!("bench.limits.{}.{name}", self.run);
        Topic::new(&name).map_err(|error| BenchError::Load(format!("{name}: {error}")))
    }
}

/// Returns how many buckets of `each` admit more than one bucket of `one`.
fn buckets_needed(one: Rate, each: Rate) -> usize {
    let times = |one: u64, each: u64| (DEMAND * one).div_ceil(each.max(1));
    let needed =
        times(one.capacity, each.capacity).max(times(one.refill_per_sec, each.refill_per_sec));
    usize::try_from(needed).unwrap_or(usize::MAX).max(1)
}

#[derive(Clone, Copy)]
struct Trial {
    rate: Rate,
    time: Duration,
    /// How the server's refusals by this bucket start.
    scope: &'static str,
}

#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    passed: u64,
    refused: u64,
    /// When the last publish was sent, since the start.
    last: Duration,
}

impl Trial {
    async fn run(
        self,
        server: &Wire,
        connections: usize,
        topics: Vec<Topic>,
        tally: &Arc<Tally>,
    ) -> Result<BucketReport, BenchError> {
        let sockets = server.open_many(connections).await?;
        let topics = Arc::new(topics);
        let started = Instant::now();
        let mut demanding = JoinSet::new();
        for socket in sockets {
            let (topics, tally) = (Arc::clone(&topics), Arc::clone(tally));
            demanding.spawn(self.demand(socket, topics, started, tally));
        }
        let mut all = Outcome::default();
        while let Some(one) = demanding.join_next().await {
            let one = one.map_err(|error| BenchError::Invalid(error.to_string()))??;
            all.passed += one.passed;
            all.refused += one.refused;
            all.last = all.last.max(one.last);
        }
        self.report(all, connections)
    }

    /// Publishes as much as the bucket admits, and more.
    async fn demand(
        self,
        mut socket: Socket,
        topics: Arc<Vec<Topic>>,
        started: Instant,
        tally: Arc<Tally>,
    ) -> Result<Outcome, BenchError> {
        let mut outcome = Outcome::default();
        let mut topics = topics.iter().cycle();
        let mut received = Vec::new();
        while started.elapsed() < self.time {
            for topic in topics.by_ref().take(WINDOW) {
                let frame = format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":0}}"#);
                socket.enqueue(frame.into_bytes())?;
            }
            outcome.last = started.elapsed();
            let passed_before = outcome.passed;
            let mut unanswered = WINDOW;
            while unanswered > 0 {
                received.clear();
                socket.exchange(&mut received).await?;
                unanswered = unanswered.saturating_sub(received.len());
                for answer in &received {
                    if FramePeek::of(answer) == FramePeek::Ok {
                        outcome.passed += 1;
                    } else {
                        outcome.refused += u64::from(self.is_refused_here(frame_error(answer))?);
                    }
                }
            }
            let passed = outcome.passed - passed_before;
            tally.add(started.elapsed(), 0, &[(Duration::ZERO, passed)]);
            if passed == 0 {
                sleep(PAUSE).await;
            }
        }
        Ok(outcome)
    }

    /// Returns `true` if this bucket refused; under that much demand, another one may as well.
    fn is_refused_here(self, error: BenchError) -> Result<bool, BenchError> {
        match error {
            BenchError::Refused { code: ErrorCode::RateLimited, message } => {
                Ok(message.starts_with(self.scope))
            }
            other => Err(other),
        }
    }

    fn report(self, all: Outcome, connections: usize) -> Result<BucketReport, BenchError> {
        let Outcome { passed, refused, last } = all;
        if refused == 0 {
            return Err(BenchError::Invalid(format!(
                "the {} limit refused none of {passed} publishes: the server's limits are off \
                 (limits.enabled), or higher than --connection-limit and --topic-limit",
                if self.scope == "conn" { "connection" } else { "topic" }
            )));
        }
        let Rate { capacity, refill_per_sec } = self.rate;
        let expected = capacity as f64 + refill_per_sec as f64 * last.as_secs_f64();
        let rounded = |figure: f64, digits: f64| (figure * digits).round() / digits;
        Ok(BucketReport {
            passed,
            expected: rounded(expected, 10.0),
            ratio: rounded(passed as f64 / expected, 1e4),
            refused,
            ms: crate::report::ms(last),
            connections,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(capacity: u64, refill_per_sec: u64) -> Rate {
        Rate { capacity, refill_per_sec }
    }

    #[test]
    fn uses_enough_buckets_that_only_the_tested_one_is_exhausted() {
        assert_eq!(buckets_needed(rate(200, 200), rate(1000, 1000)), 1);
        assert_eq!(buckets_needed(rate(1000, 1000), rate(200, 200)), 10);
        assert_eq!(buckets_needed(rate(10, 1000), rate(200, 100)), 20);
    }

    #[test]
    fn compares_admitted_events_with_capacity_and_refill() {
        let trial = Trial { rate: rate(200, 100), time: Duration::from_secs(10), scope: "conn" };
        let outcome = Outcome { passed: 1140, refused: 9, last: Duration::from_secs(10) };
        let report = trial.report(outcome, 1).unwrap();
        assert_eq!((report.expected, report.ratio), (1200.0, 0.95));
        let error = trial.report(Outcome { refused: 0, ..outcome }, 1).unwrap_err().to_string();
        assert!(error.contains("limits.enabled"), "{error}");
    }
}
