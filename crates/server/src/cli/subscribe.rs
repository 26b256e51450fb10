//! `prombus subscribe`.
//!
//! A blocking task prints the events or runs the command, so the loop that reads the connection keeps answering
//! pings meanwhile. An event is acknowledged after it was printed and flushed, or after its command succeeded. A
//! lost connection is opened again.
//!
//! - `deliveries`: the events that are not finished
//! - `handler`: prints an event, or runs the command for it
//! - `empty_topic`: says that there is nothing to consume yet

mod deliveries;
mod empty_topic;
mod handler;

use std::collections::VecDeque;
use std::error::Error;
use std::io;

use prombus_client::transport::full_jitter;
use prombus_proto::frame::{
    Ack, Ids, Membership, Nack, Outcome, ServerFrame, StartFrom, Subscribe, SubscribeOptions,
};
use prombus_proto::{ClientOp, EventId, Group, SystemRandom, Topic};
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::connection::{Connection, ConnectionError, refused};
use super::retries::Retries;
use super::server_arguments::GatewayArguments;
use super::start_from::start_from;
use super::stop_signal::StopSignal;
use super::times::milliseconds;
use deliveries::{Deliveries, Next};
use empty_topic::notice_empty_topic;
use handler::{Handled, Handler};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus subscribe orders.created --group billing
  prombus subscribe orders.created --group billing --from earliest --count 10 > first-ten.ndjson
  prombus subscribe orders.created --group peek --no-ack | jq .payload
  prombus subscribe orders.created --group mail --exec 'jq .payload | ./send-mail'

Prints one event per line, as stored, and acknowledges it. The members of a group share its events.
Stops after --count events or at ctrl-c, once everything printed is acknowledged. Reconnects if the connection
is lost; an event printed before is not printed again then, unless this process was restarted.

TIME, such as in --from 2h or --from ts:2026-01-02T03:04:05Z, is a duration before now, a date or time (in UTC
unless it has an offset) or, after ts:, milliseconds since 1970.

By default the server delivers at most 200 events per second to a connection (limits.connection).

With --exec, the command reads the event on stdin. Exit status 0 acknowledges the event, 65 rejects it: it is
dead-lettered at once. After any other it is delivered again, until it has failed --max-attempts times.
Commands run one at a time and must finish within --ack-timeout.")]
pub(crate) struct SubscribeArguments {
    /// Topic to consume, such as orders.created
    topic: Topic,
    /// Consumer group; an existing group continues where it left off
    #[arg(long, value_name = "GROUP")]
    group: Group,
    /// Where a new group starts: earliest, latest, a TIME such as 2h (ago) or ts:TIME, or after:ID
    #[arg(long, value_name = "START", default_value = "latest", value_parser = start_from)]
    from: StartFrom,
    /// Maximum unacknowledged events; default: set by the server
    #[arg(long, value_name = "COUNT")]
    max_in_flight: Option<u32>,
    /// Time to acknowledge an event before it is redelivered, such as 30s or in milliseconds; default: set by the
    /// server
    #[arg(long = "ack-timeout", alias = "ack-timeout-ms", value_name = "TIME", value_parser = milliseconds)]
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
    /// Maximum consecutive attempts to reconnect; default: unlimited
    #[arg(long, value_name = "COUNT")]
    tries: Option<u32>,
    #[command(flatten)]
    server: GatewayArguments,
}

/// A `--count` up to this also limits the events in flight; the server's default is higher.
const MAX_COUNT_AS_IN_FLIGHT: u32 = 50;

pub(crate) async fn run(arguments: SubscribeArguments) -> Result<(), Box<dyn Error>> {
    let SubscribeArguments { topic, group, count, no_ack, exec, tries, server, .. } = arguments;
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
    let subscribe = Subscribe { topic: topic.clone(), group: group.clone(), opts };
    let connection = open(&server, &subscribe).await?;
    let mut subscriber = Subscriber {
        connection,
        subscribe,
        membership: Membership { topic: topic.clone(), group },
        handler: Handler::new(exec),
        acknowledges: !no_ack,
        deliveries: Deliveries::new(count),
        handling: None,
        unanswered: VecDeque::new(),
        stale: 0,
        notice: server.endpoint().ok().and_then(|server| notice_empty_topic(&server, topic)),
        retries: Retries::up_to(tries.unwrap_or(u32::MAX)),
        server,
    };
    let result = subscriber.run(&mut stop_signal).await;
    subscriber.connection.close().await;
    if subscriber.stale > 0 {
        let count = subscriber.stale;
        eprintln!("prombus: {count} acknowledgements were too late; their events are redelivered");
    }
    result
}

/// Opens a connection and subscribes.
async fn open(
    server: &GatewayArguments,
    subscribe: &Subscribe,
) -> Result<Connection, ConnectionError> {
    let mut connection = Connection::open(server).await?;
    connection.request(ClientOp::Subscribe(subscribe.clone())).await?;
    Ok(connection)
}

struct Subscriber {
    server: GatewayArguments,
    connection: Connection,
    subscribe: Subscribe,
    membership: Membership,
    handler: Handler,
    acknowledges: bool,
    deliveries: Deliveries,
    handling: Option<JoinHandle<io::Result<Handled>>>,
    /// Frames sent and not answered yet, each with the events it acknowledges.
    unanswered: VecDeque<Vec<EventId>>,
    /// Acknowledgements that arrived after the deadline.
    stale: usize,
    /// Finds out whether the topic is empty, until the first event.
    notice: Option<JoinHandle<()>>,
    retries: Retries,
}

/// Why the subscriber stopped reading its connection.
enum Pause {
    /// The events of `--count` are handled, or there was a signal.
    Stopping,
    /// The server is gone, or goes away.
    Lost(ConnectionError),
}

impl Subscriber {
    async fn run(&mut self, stop_signal: &mut StopSignal) -> Result<(), Box<dyn Error>> {
        loop {
            match self.consume(stop_signal).await? {
                Pause::Stopping => return self.stop().await,
                Pause::Lost(error) if self.deliveries.is_complete() => {
                    // Nobody may deliver again to this member what it has handled.
                    self.finish_handler().await?;
                    return Err(error.into());
                }
                Pause::Lost(error) => {
                    if !self.reconnect(error, stop_signal).await? {
                        // Without a connection, nothing can be acknowledged any more.
                        return self.finish_handler().await;
                    }
                }
            }
        }
    }

    async fn consume(&mut self, stop_signal: &mut StopSignal) -> Result<Pause, Box<dyn Error>> {
        loop {
            self.start_handler();
            if self.handling.is_none() && self.deliveries.is_complete() {
                return Ok(Pause::Stopping);
            }
            tokio::select! {
                frame = self.connection.next() => {
                    let received = frame.and_then(|frame| self.receive(frame));
                    match received {
                        Ok(()) => {}
                        Err(error) if error.may_reconnect(self.has_token()) => {
                            return Ok(Pause::Lost(error));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                handled = handled(&mut self.handling) => {
                    self.handling = None;
                    self.settle(handled?);
                }
                () = stop_signal.recv() => return Ok(Pause::Stopping),
            }
        }
    }

    /// Opens the connection again, as often as it takes. Returns `false` at a stop signal.
    async fn reconnect(
        &mut self,
        mut error: ConnectionError,
        stop_signal: &mut StopSignal,
    ) -> Result<bool, Box<dyn Error>> {
        let unanswered = std::mem::take(&mut self.unanswered);
        self.deliveries.lost_connection(unanswered.into_iter().flatten().collect());
        let mut reported = String::new();
        loop {
            let Some(delay) = self.retries.failed() else {
                return Err(format!("{error}; gave up reconnecting").into());
            };
            let reason = error.to_string();
            if reason != reported {
                eprintln!("prombus: {reason}; reconnecting");
                reported = reason;
            }
            let delay = error.retry_after().map_or(delay, |after| after.max(delay));
            // Subscribers that lost their connection together do not come back together.
            let delay = delay / 2 + full_jitter(delay / 2, &SystemRandom);
            let opening = async {
                tokio::time::sleep(delay).await;
                open(&self.server, &self.subscribe).await
            };
            let opened = tokio::select! {
                opened = opening => opened,
                () = stop_signal.recv() => return Ok(false),
            };
            match opened {
                Ok(connection) => {
                    self.connection = connection;
                    eprintln!("prombus: connected again");
                    return Ok(true);
                }
                Err(again) if again.may_reconnect(self.has_token()) => error = again,
                Err(again) => return Err(again.into()),
            }
        }
    }

    fn start_handler(&mut self) {
        if self.handling.is_none() && self.deliveries.has_waiting() {
            let events = self.deliveries.start(self.handler.events_at_once());
            self.handling = Some(self.handler.start(events));
        }
    }

    /// Receives no more, and returns when the running handler is done or at another signal.
    async fn stop(&mut self) -> Result<(), Box<dyn Error>> {
        if !self.deliveries.is_complete() {
            self.send(ClientOp::Pause(self.membership.clone()), vec![]);
            self.deliveries.stop();
        }
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
        // Wait until all acknowledgements are answered.
        while !self.unanswered.is_empty() {
            let frame = self.connection.next().await?;
            self.receive(frame)?;
        }
        Ok(())
    }

    /// Lets the running handler finish without a connection. Fails if handled events are not acknowledged.
    async fn finish_handler(&mut self) -> Result<(), Box<dyn Error>> {
        if self.handling.is_some()
            && let Handled::Done(ids) = handled(&mut self.handling).await?
        {
            self.deliveries.handled(ids);
        }
        match self.deliveries.unconfirmed() {
            1.. if self.acknowledges => {
                Err("stopped without a connection: the last events are not acknowledged, and are \
                     delivered again"
                    .into())
            }
            _ => Ok(()),
        }
    }

    fn has_token(&self) -> bool {
        self.server.endpoint().is_ok_and(|server| server.token().is_some())
    }

    fn receive(&mut self, frame: ServerFrame) -> Result<(), ConnectionError> {
        self.retries.reset();
        match frame {
            ServerFrame::Event { event, .. } => {
                if let Some(notice) = self.notice.take() {
                    notice.abort();
                }
                let id = id_of(&event).map_err(ConnectionError::Lost)?;
                match self.deliveries.receive(id, event) {
                    Next::Wait | Next::Leave => {}
                    Next::WaitAndPause => {
                        self.send(ClientOp::Pause(self.membership.clone()), vec![]);
                    }
                    Next::Acknowledge(id) => self.acknowledge(vec![id]),
                }
            }
            ServerFrame::Ok { outcome, .. } => {
                self.unanswered.pop_front();
                self.stale += usize::from(outcome == Outcome::Stale);
            }
            ServerFrame::Err { code, msg, retry_after_ms, .. } => {
                return Err(refused(code, msg, retry_after_ms));
            }
            ServerFrame::Ended { topic, group, reason } => {
                return Err(ConnectionError::Ended { topic, group, reason });
            }
        }
        Ok(())
    }

    /// Acknowledges handled events, or reports a failed one.
    fn settle(&mut self, handled: Handled) {
        match handled {
            Handled::Done(_) if !self.acknowledges => {
                self.deliveries.handled(vec![]);
            }
            Handled::Done(ids) => {
                let ids = self.deliveries.handled(ids);
                self.acknowledge(ids);
            }
            Handled::Failed { id, reason, next } => {
                eprintln!("prombus: event {id}: {reason}");
                if self.deliveries.failed(&id) {
                    let Membership { topic, group } = self.membership.clone();
                    let (ids, reason) = (Ids::One(id), Some(reason));
                    self.send(ClientOp::Nack(Nack { topic, group, ids, reason, next }), vec![]);
                }
            }
        }
    }

    fn acknowledge(&mut self, ids: Vec<EventId>) {
        if ids.is_empty() {
            return;
        }
        let Membership { topic, group } = self.membership.clone();
        let acknowledged = ids.clone();
        let ids = Ids::Many(ids);
        let ack = Ack { topic, group, ids, mark: None, publish: None };
        self.send(ClientOp::Ack(ack), acknowledged);
    }

    /// Sends a frame that acknowledges these events.
    fn send(&mut self, op: ClientOp, acknowledged: Vec<EventId>) {
        self.unanswered.push_back(acknowledged);
        self.connection.send(op);
    }
}

/// Waits for the running handler. Never returns if none is running.
async fn handled(handling: &mut Option<JoinHandle<io::Result<Handled>>>) -> io::Result<Handled> {
    match handling {
        Some(handling) => handling.await.unwrap_or_else(|error| Err(io::Error::other(error))),
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
