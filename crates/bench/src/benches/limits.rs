//! How exact a server's limits of rate are.
//!
//! More is asked for than a bucket lets through, for a while. What passes is compared with what the
//! setting says: what a full bucket holds, and what it gains meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_bus::Rate;
use prombus_proto::{ErrorCode, Topic};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::measure::tally::Tally;
use crate::target::wire::{Glimpse, Socket, refusal};
use crate::{BenchError, Wire, run_name};

/// How many publishes a connection has out at a time.
const AT_ONCE: usize = 16;
/// So long a connection waits when all was refused; a full second's worth of such waits costs no
/// token, for a bucket that is not full keeps what it gains.
const PAUSE: Duration = Duration::from_millis(1);
/// By so much more is asked for than passes.
const DEMAND: u64 = 2;

/// What the server is set to.
#[derive(Clone, Copy, Debug)]
pub struct LimitsPlan {
    /// `limits.connection`.
    pub connection: Rate,
    /// `limits.topic`.
    pub topic: Rate,
    /// For how long each is tried.
    pub time: Duration,
}

/// How exact they are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LimitsReport {
    /// The bucket of one connection.
    pub connection: BucketReport,
    /// The bucket of one topic, published to by several connections.
    pub topic: BucketReport,
}

/// How exact one bucket is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BucketReport {
    /// How many events passed.
    pub passed: u64,
    /// How many the setting lets pass: the capacity, and the refill for as long as it took.
    pub expected: f64,
    /// What passed over what was expected; 1 is exact.
    pub ratio: f64,
    /// How many were refused by this bucket.
    pub refused: u64,
    /// From the first publish to the last, in milliseconds.
    pub ms: f64,
    /// How many connections it took.
    pub connections: usize,
}

/// Tries both buckets, one after the other, on topics that nobody else publishes to.
pub async fn bench_limits(
    server: &Wire,
    plan: &LimitsPlan,
    tally: &Arc<Tally>,
) -> Result<LimitsReport, BenchError> {
    let run = run_name();
    let topic = |name: &str| {
        let name = format!("bench.limits.{run}.{name}");
        Topic::new(&name).map_err(|error| BenchError::Load(format!("{name}: {error}")))
    };
    // So many topics that none of them is what limits the connection.
    let topics = (0..enough(plan.connection, plan.topic)).map(|n| topic(&format!("c{n}")));
    let topics = topics.collect::<Result<Vec<_>, _>>()?;
    let trial = Trial { rate: plan.connection, time: plan.time, scope: "conn" };
    let connection = trial.run(server, 1, topics, tally).await?;
    let connections = enough(plan.topic, plan.connection);
    let trial = Trial { rate: plan.topic, time: plan.time, scope: "topic" };
    let topic = trial.run(server, connections, vec![topic("t")?], tally).await?;
    Ok(LimitsReport { connection, topic })
}

/// How many buckets of `each` let more through than one of `one`.
fn enough(one: Rate, each: Rate) -> usize {
    let times = |one: u64, each: u64| (DEMAND * one).div_ceil(each.max(1));
    let most =
        times(one.capacity, each.capacity).max(times(one.refill_per_sec, each.refill_per_sec));
    usize::try_from(most).unwrap_or(usize::MAX).max(1)
}

#[derive(Clone, Copy)]
struct Trial {
    rate: Rate,
    time: Duration,
    /// How the server's refusals by this bucket begin.
    scope: &'static str,
}

#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    passed: u64,
    refused: u64,
    /// When the last publish was sent.
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
        let began = Instant::now();
        let mut demanding = JoinSet::new();
        for socket in sockets {
            let (topics, tally) = (Arc::clone(&topics), Arc::clone(tally));
            demanding.spawn(self.demand(socket, topics, began, tally));
        }
        let mut all = Outcome::default();
        while let Some(one) = demanding.join_next().await {
            let one = one.map_err(|error| BenchError::Meaningless(error.to_string()))??;
            all.passed += one.passed;
            all.refused += one.refused;
            all.last = all.last.max(one.last);
        }
        self.report(all, connections)
    }

    /// Publishes as much as it may.
    async fn demand(
        self,
        mut socket: Socket,
        topics: Arc<Vec<Topic>>,
        began: Instant,
        tally: Arc<Tally>,
    ) -> Result<Outcome, BenchError> {
        let mut outcome = Outcome::default();
        let mut topics = topics.iter().cycle();
        let mut came = Vec::new();
        while began.elapsed() < self.time {
            for topic in topics.by_ref().take(AT_ONCE) {
                let frame = format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":0}}"#);
                socket.put(frame.into_bytes())?;
            }
            outcome.last = began.elapsed();
            let passed_before = outcome.passed;
            let mut unanswered = AT_ONCE;
            while unanswered > 0 {
                came.clear();
                socket.turn(&mut came).await?;
                unanswered = unanswered.saturating_sub(came.len());
                for answer in &came {
                    if Glimpse::of(answer) == Glimpse::Ok {
                        outcome.passed += 1;
                    } else {
                        outcome.refused += u64::from(self.is_refused_here(refusal(answer))?);
                    }
                }
            }
            let passed = outcome.passed - passed_before;
            tally.add(began.elapsed(), 0, &[(Duration::ZERO, passed)]);
            if passed == 0 {
                sleep(PAUSE).await;
            }
        }
        Ok(outcome)
    }

    /// Whether it was this bucket that refused. Another one may, too: there is more than enough
    /// demand.
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
            return Err(BenchError::Meaningless(format!(
                "none of {passed} publishes was refused by the limit of a {}: the server's limits \
                 are off (limits.enabled), or higher than --connection-limit and --topic-limit say",
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
    fn so_many_take_part_that_only_the_bucket_in_question_is_short() {
        assert_eq!(enough(rate(200, 200), rate(1000, 1000)), 1);
        assert_eq!(enough(rate(1000, 1000), rate(200, 200)), 10);
        assert_eq!(enough(rate(10, 1000), rate(200, 100)), 20);
    }

    #[test]
    fn what_passed_is_compared_with_capacity_and_refill() {
        let trial = Trial { rate: rate(200, 100), time: Duration::from_secs(10), scope: "conn" };
        let outcome = Outcome { passed: 1140, refused: 9, last: Duration::from_secs(10) };
        let report = trial.report(outcome, 1).unwrap();
        assert_eq!((report.expected, report.ratio), (1200.0, 0.95));
        let error = trial.report(Outcome { refused: 0, ..outcome }, 1).unwrap_err().to_string();
        assert!(error.contains("limits.enabled"), "{error}");
    }
}
