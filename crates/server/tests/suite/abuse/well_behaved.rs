//! The well-behaved client: it publishes at a steady rate within its limits, and consumes what it publishes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::Error;

use super::connection::{self, GOOD, Socket, authenticated, receive, send};
use super::server::{Target, WELL_BEHAVED};

/// Half of what one connection may publish with the default limits.
const PER_SECOND: u32 = 100;
/// Only a server that hangs takes this long to answer.
const HANG: Duration = Duration::from_secs(60);
const TOPIC: &str = "good.work";

/// What the client did and saw in one phase.
pub(super) struct Work {
    /// One for each event, in the order of publishing.
    events: Vec<Published>,
    /// The deliveries in their order, by number of the event.
    deliveries: Vec<(usize, Instant)>,
    /// Everything that did not go as it should.
    pub(super) refusals: Vec<String>,
    took: Duration,
}

struct Published {
    sent_at: Instant,
    answered_at: Option<Instant>,
}

/// Publishes and consumes for that long, and then until everything is consumed.
pub(super) fn work(target: Target, time: Duration) -> Work {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let count = usize::try_from(u64::from(PER_SECOND) * time.as_secs()).unwrap();
    let started = Instant::now();
    let worked = runtime.block_on(async {
        // Started before anything is published, so that the group misses nothing.
        let consumer = subscribed(target).await?;
        let publisher = authenticated(GOOD, target.ws, WELL_BEHAVED).await?;
        let consuming = tokio::spawn(consume(consumer, count));
        let (events, mut refusals) = publish(publisher, count).await;
        let (deliveries, refused_acks) = consuming.await.unwrap();
        refusals.extend(refused_acks);
        Ok(Work { events, deliveries, refusals, took: started.elapsed() })
    });
    worked.unwrap_or_else(|error: Error| Work {
        events: vec![],
        deliveries: vec![],
        refusals: vec![format!("it cannot connect: {error}")],
        took: started.elapsed(),
    })
}

async fn subscribed(target: Target) -> Result<Socket, Error> {
    let mut socket = authenticated(GOOD, target.ws, WELL_BEHAVED).await?;
    let subscribe = json!({"op": "SUBSCRIBE", "topic": TOPIC, "group": "good"});
    let answer = connection::ask(&mut socket, &subscribe).await?;
    assert_eq!(answer["op"], "OK", "{answer}");
    Ok(socket)
}

/// Publishes without waiting for answers, each event at its time.
async fn publish(mut socket: Socket, count: usize) -> (Vec<Published>, Vec<String>) {
    let mut events: Vec<Published> = Vec::with_capacity(count);
    let (mut answered, mut refusals) = (0, Vec::new());
    let mut clock = interval(Duration::from_secs(1) / PER_SECOND);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while answered < count {
        tokio::select! {
            _ = clock.tick(), if events.len() < count => {
                let number = events.len();
                events.push(Published { sent_at: Instant::now(), answered_at: None });
                let frame = json!({"op": "PUBLISH", "topic": TOPIC, "payload": {"number": number}});
                if let Err(error) = send(&mut socket, &frame).await {
                    refusals.push(format!("the publisher's connection was lost: {error}"));
                    break;
                }
            }
            answer = timeout(HANG, receive(&mut socket)) => match answer {
                Ok(Ok(text)) if text.starts_with(r#"{"op":"OK""#) => {
                    events[answered].answered_at = Some(Instant::now());
                    answered += 1;
                }
                Ok(Ok(refusal)) => {
                    refusals.push(refusal);
                    answered += 1;
                }
                Ok(Err(error)) => {
                    refusals.push(format!("the publisher's connection was lost: {error}"));
                    break;
                }
                Err(_) => {
                    refusals.push("the server does not answer the publisher".to_owned());
                    break;
                }
            },
        }
    }
    (events, refusals)
}

/// Acknowledges events until there were `count`.
async fn consume(mut socket: Socket, count: usize) -> (Vec<(usize, Instant)>, Vec<String>) {
    let (mut deliveries, mut refusals) = (Vec::with_capacity(count), Vec::new());
    let mut unanswered = 0;
    while deliveries.len() < count || unanswered > 0 {
        let text = match timeout(HANG, receive(&mut socket)).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                refusals.push(format!("the consumer's connection was lost: {error}"));
                break;
            }
            Err(_) => {
                refusals.push("the consumer gets no more events".to_owned());
                break;
            }
        };
        let frame: Value = serde_json::from_str(&text).unwrap();
        match frame["op"].as_str() {
            Some("EVENT") => {
                let event = &frame["event"];
                let number = event["payload"]["number"].as_u64().unwrap();
                deliveries.push((usize::try_from(number).unwrap(), Instant::now()));
                let ack = json!({"op": "ACK", "topic": TOPIC, "group": "good", "id": event["id"]});
                if let Err(error) = send(&mut socket, &ack).await {
                    refusals.push(format!("the consumer's connection was lost: {error}"));
                    break;
                }
                unanswered += 1;
            }
            Some("OK") if frame["stale"] != true => unanswered -= 1,
            _ => {
                refusals.push(text);
                unanswered -= 1;
            }
        }
    }
    (deliveries, refusals)
}

impl Work {
    /// Fails unless every event was stored and delivered once, in the order of publishing.
    pub(super) fn assert_complete_and_in_order(&self) {
        let numbers: Vec<_> = self.deliveries.iter().map(|(number, _)| *number).collect();
        let expected: Vec<_> = (0..self.events.len()).collect();
        assert!(
            numbers == expected,
            "published {} and got {} ({:?})",
            expected.len(),
            numbers.len(),
            self.refusals
        );
        assert!(self.events.iter().all(|event| event.answered_at.is_some()));
    }

    /// Returns the time within which this share of the publishes was answered.
    pub(super) fn publish(&self, share: f64) -> Duration {
        let times = self
            .events
            .iter()
            .filter_map(|event| Some(event.answered_at?.duration_since(event.sent_at)));
        percentile(times.collect(), share)
    }

    /// Returns the time within which this share of the events was delivered, from publishing.
    pub(super) fn end_to_end(&self, share: f64) -> Duration {
        let times = self
            .deliveries
            .iter()
            .map(|(number, at)| at.duration_since(self.events[*number].sent_at));
        percentile(times.collect(), share)
    }

    /// Returns the events consumed per second.
    pub(super) fn per_second(&self) -> f64 {
        self.deliveries.len() as f64 / self.took.as_secs_f64()
    }
}

fn percentile(mut times: Vec<Duration>, share: f64) -> Duration {
    times.sort_unstable();
    let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(index).copied().unwrap_or_default()
}
