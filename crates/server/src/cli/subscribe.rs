//! `prombus subscribe`.
//!
//! A blocking task prints the events or runs the command, so the loop that reads the connection keeps answering
//! pings meanwhile. An event is acknowledged after it was printed and flushed, or after its command succeeded.

mod handler;

use std::collections::VecDeque;
use std::error::Error;

use bytes::Bytes;
use prombus_proto::frame::{
    Ack, AfterNack, Ids, Membership, Nack, Outcome, ServerFrame, StartFrom, Subscribe,
    SubscribeOptions,
};
use prombus_proto::{ClientOp, EventId, Group, Timestamp, Topic};
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::connection::{Connection, refused};
use super::server_arguments::GatewayArguments;
use super::stop_signal::StopSignal;
use handler::{Handled, Handler};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus subscribe orders.created --group billing
  prombus subscribe orders.created --group billing --from earliest --count 10 > first-ten.ndjson
  prombus subscribe orders.created --group peek --no-ack | jq .payload
  prombus subscribe orders.created --group mail --exec 'jq .payload | ./send-mail'

Prints one event per line, as stored, and acknowledges it. The members of a group share its events.
Stops after --count events or at ctrl-c, once everything printed is acknowledged. Fails if the connection
is lost.

With --exec, the command reads the event on stdin. Exit status 0 acknowledges the event, any other rejects it
for another attempt. Commands run one at a time and must finish within --ack-timeout-ms.")]
pub(crate) struct SubscribeArguments {
    /// Topic to consume, such as orders.created
    topic: Topic,
    /// Consumer group; an existing group continues where it left off
    #[arg(long, value_name = "GROUP")]
    group: Group,
    /// Where a new group starts: earliest, latest, ts:MS or after:ID
    #[arg(long, value_name = "START", default_value = "latest", value_parser = start_from)]
    from: StartFrom,
    /// Maximum unacknowledged events; default: set by the server
    #[arg(long, value_name = "COUNT")]
    max_in_flight: Option<u32>,
    /// Milliseconds to acknowledge an event before it is redelivered; default: set by the server
    #[arg(long, value_name = "MS")]
    ack_timeout_ms: Option<u64>,
    /// Failures before an event is dead-lettered, from now on for the whole group; default: as set for the group before,
    /// or by the server
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// Stop after this many events
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Do not acknowledge: the events are redelivered, and each lease that expires counts as a failure
    #[arg(long)]
    no_ack: bool,
    /// Run this shell command for each event instead of printing it
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_ack")]
    exec: Option<String>,
    #[command(flatten)]
    server: GatewayArguments,
}

/// A `--count` up to this also limits the events in flight; the server's default is higher.
const MAX_COUNT_AS_IN_FLIGHT: u32 = 50;

pub(crate) async fn run(arguments: SubscribeArguments) -> Result<(), Box<dyn Error>> {
    let SubscribeArguments { topic, group, count, no_ack, exec, server, .. } = arguments;
    let mut stop_signal = StopSignal::new()?;
    // Events that queue for the command would use up their deadline.
    let exec_limit = exec.is_some().then_some(1);
    // Do not lease more events than wanted: other members could process them.
    let wanted = count.and_then(|count| u32::try_from(count).ok());
    let wanted = wanted.filter(|wanted| *wanted <= MAX_COUNT_AS_IN_FLIGHT);
    let max_in_flight = arguments.max_in_flight.or(exec_limit);
    let opts = SubscribeOptions {
        from: arguments.from,
        max_in_flight: max_in_flight.into_iter().chain(wanted).min(),
        ack_timeout_ms: arguments.ack_timeout_ms,
        max_attempts: arguments.max_attempts,
    };
    let mut connection = Connection::open(&server).await?;
    let membership = Membership { topic, group };
    let (topic, group) = (membership.topic.clone(), membership.group.clone());
    connection.request(ClientOp::Subscribe(Subscribe { topic, group, opts })).await?;
    let mut subscriber = Subscriber {
        connection,
        membership,
        handler: Handler::new(exec),
        acknowledges: !no_ack,
        remaining: count,
        received: VecDeque::new(),
        handling: None,
        unanswered: 0,
        stale: 0,
    };
    let result = subscriber.consume(&mut stop_signal).await;
    subscriber.connection.close().await;
    if subscriber.stale > 0 {
        let count = subscriber.stale;
        eprintln!("prombus: {count} acknowledgements were too late; their events are redelivered");
    }
    result
}

struct Subscriber {
    connection: Connection,
    membership: Membership,
    handler: Handler,
    acknowledges: bool,
    /// Events left to receive; `None` without `--count`.
    remaining: Option<u64>,
    received: VecDeque<(EventId, Bytes)>,
    handling: Option<JoinHandle<Result<Handled, String>>>,
    /// Frames sent and not answered yet.
    unanswered: usize,
    /// Acknowledgements that arrived after the deadline.
    stale: usize,
}

impl Subscriber {
    async fn consume(&mut self, stop_signal: &mut StopSignal) -> Result<(), Box<dyn Error>> {
        loop {
            if self.handling.is_none() && !self.received.is_empty() {
                self.handling = Some(self.handler.start(&mut self.received));
            }
            if self.handling.is_none() && self.remaining == Some(0) {
                return self.finish().await;
            }
            tokio::select! {
                frame = self.connection.next() => self.receive(frame?)?,
                handled = handled(&mut self.handling) => {
                    self.handling = None;
                    self.settle(handled?);
                }
                () = stop_signal.recv() => {
                    // Events not handled yet go to other members.
                    self.received.clear();
                    return self.stop().await;
                }
            }
        }
    }

    /// Receives no more, and returns when the running handler is done or at a second ctrl-c.
    async fn stop(&mut self) -> Result<(), Box<dyn Error>> {
        self.send(ClientOp::Pause(self.membership.clone()));
        self.remaining = Some(0);
        let mut second_signal = StopSignal::new()?;
        while self.handling.is_some() {
            tokio::select! {
                frame = self.connection.next() => self.receive(frame?)?,
                handled = handled(&mut self.handling) => {
                    self.handling = None;
                    self.settle(handled?);
                }
                () = second_signal.recv() => {
                    return Err("stopped before the last events were handled".into());
                }
            }
        }
        self.finish().await
    }

    /// Waits until all acknowledgements are answered.
    async fn finish(&mut self) -> Result<(), Box<dyn Error>> {
        while self.unanswered > 0 {
            let frame = self.connection.next().await?;
            self.receive(frame)?;
        }
        Ok(())
    }

    fn receive(&mut self, frame: ServerFrame) -> Result<(), Box<dyn Error>> {
        match frame {
            ServerFrame::Event { event, .. } => {
                if self.remaining == Some(0) {
                    // It is redelivered after the connection closes.
                    return Ok(());
                }
                let id = id_of(&event)?;
                self.received.push_back((id, event));
                if let Some(remaining) = &mut self.remaining {
                    *remaining -= 1;
                    if *remaining == 0 {
                        self.send(ClientOp::Pause(self.membership.clone()));
                    }
                }
            }
            ServerFrame::Ok { outcome, .. } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.stale += usize::from(outcome == Outcome::Stale);
            }
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                return Err(refused(code, msg, retry_after_ms).into());
            }
        }
        Ok(())
    }

    /// Acknowledges handled events, or rejects a failed one.
    fn settle(&mut self, handled: Handled) {
        let Membership { topic, group } = self.membership.clone();
        match handled {
            Handled::Done(_) if !self.acknowledges => {}
            Handled::Done(ids) => {
                let ids = Ids::Many(ids);
                self.send(ClientOp::Ack(Ack { topic, group, ids, mark: None, publish: None }));
            }
            Handled::Failed { id, reason } => {
                eprintln!("prombus: event {id}: {reason}");
                let reason = Some(reason);
                let (ids, next) = (Ids::One(id), AfterNack::BackOff);
                self.send(ClientOp::Nack(Nack { topic, group, ids, reason, next }));
            }
        }
    }

    fn send(&mut self, op: ClientOp) {
        self.unanswered += 1;
        self.connection.send(op);
    }
}

/// Waits for the running handler. Never returns if none is running.
async fn handled(
    handling: &mut Option<JoinHandle<Result<Handled, String>>>,
) -> Result<Handled, String> {
    match handling {
        Some(handling) => handling.await.unwrap_or_else(|error| Err(error.to_string())),
        None => std::future::pending().await,
    }
}

fn id_of(event: &[u8]) -> Result<EventId, String> {
    #[derive(Deserialize)]
    struct Wire {
        id: EventId,
    }
    let wire: Result<Wire, _> = serde_json::from_slice(event);
    wire.map(|wire| wire.id)
        .map_err(|error| format!("the server sent an event without an id: {error}"))
}

fn start_from(text: &str) -> Result<StartFrom, String> {
    match text.split_once(':') {
        None if text == "earliest" => Ok(StartFrom::Earliest),
        None if text == "latest" => Ok(StartFrom::Latest),
        Some(("ts", ms)) => {
            let ms =
                ms.parse().map_err(|_| "expected ts:MS, in milliseconds since 1970".to_owned())?;
            Ok(StartFrom::Ts(Timestamp(ms)))
        }
        Some(("after", id)) => {
            EventId::new(id).map(StartFrom::AfterId).map_err(|error| error.to_string())
        }
        _ => Err("expected earliest, latest, ts:MS or after:ID".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_start_of_a_group() {
        assert_eq!(start_from("earliest"), Ok(StartFrom::Earliest));
        assert_eq!(start_from("latest"), Ok(StartFrom::Latest));
        assert_eq!(start_from("ts:17"), Ok(StartFrom::Ts(Timestamp(17))));
        let id = EventId::new("a:b").unwrap();
        assert_eq!(start_from("after:a:b"), Ok(StartFrom::AfterId(id)));
        for invalid in ["", "first", "ts", "ts:", "ts:x", "after:", "earliest:1"] {
            assert!(start_from(invalid).is_err(), "{invalid}");
        }
    }
}
