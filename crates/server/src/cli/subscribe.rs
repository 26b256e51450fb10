//! `prombus subscribe`.
//!
//! Events are written, or handed to a command, away from the loop that reads: however long that
//! takes, pings are answered. An event is acknowledged when it is written and flushed, or when its
//! command has succeeded.

mod handling;

use std::collections::VecDeque;
use std::error::Error;

use bytes::Bytes;
use prombus_proto::frame::{
    Ack, Ids, Membership, Nack, Outcome, ServerFrame, StartFrom, Subscribe, SubscribeOptions,
};
use prombus_proto::{ClientOp, EventId, Group, Timestamp, Topic};
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::connection::{Connection, refused};
use super::server_arguments::GatewayArguments;
use super::stopping::Stopping;
use handling::{Handled, Handler};

/// What `subscribe` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus subscribe orders.created --group billing
  prombus subscribe orders.created --group billing --from earliest --count 10 > first-ten.ndjson
  prombus subscribe orders.created --group look --no-ack | jq .payload
  prombus subscribe orders.created --group mail --exec 'jq .payload | ./send-mail'

Each event is one line, as it is stored. Connections that share a group share its events. It ends
at --count, or at ctrl-c, and then acknowledges what it wrote; when the connection is lost it says
why and fails.")]
pub(crate) struct SubscribeArguments {
    /// What to follow, such as orders.created
    topic: Topic,
    /// For whom; the group goes on where it stopped
    #[arg(long, value_name = "GROUP")]
    group: Group,
    /// Where a group begins that does not exist yet: earliest, latest, ts:MS or after:ID
    #[arg(long, value_name = "PLACE", default_value = "latest", value_parser = start_from)]
    from: StartFrom,
    /// How many events may be here without an acknowledgement; otherwise the server says
    #[arg(long, value_name = "COUNT")]
    max_in_flight: Option<u32>,
    /// How long an event may stay here before somebody else gets it; otherwise the server says
    #[arg(long, value_name = "MS")]
    ack_timeout_ms: Option<u64>,
    /// How often an event is delivered before it goes to the dead letters; otherwise the server says
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// End after so many events
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Acknowledge nothing: the events come again, here or elsewhere, and this was an attempt
    #[arg(long)]
    no_ack: bool,
    /// Run this shell command for each event, one at a time, with the event on its standard input:
    /// success acknowledges, failure gives the event back for another attempt; it has to end
    /// within the time of --ack-timeout-ms
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_ack")]
    exec: Option<String>,
    #[command(flatten)]
    server: GatewayArguments,
}

/// A `--count` below this is also how many events may be here: the server's own default is more.
const MOST_KEPT_FROM_OTHERS: u32 = 50;

pub(crate) async fn run(arguments: SubscribeArguments) -> Result<(), Box<dyn Error>> {
    let SubscribeArguments { topic, group, count, no_ack, exec, server, .. } = arguments;
    let mut stopping = Stopping::new()?;
    // Events that only wait for a command would use up the time that they may stay here.
    let usual = exec.is_some().then_some(1);
    // More than are wanted would only be kept from others.
    let wanted = count.and_then(|count| u32::try_from(count).ok());
    let wanted = wanted.filter(|wanted| *wanted <= MOST_KEPT_FROM_OTHERS);
    let max_in_flight = arguments.max_in_flight.or(usual);
    let opts = SubscribeOptions {
        from: arguments.from,
        max_in_flight: max_in_flight.into_iter().chain(wanted).min(),
        ack_timeout_ms: arguments.ack_timeout_ms,
        max_attempts: arguments.max_attempts,
    };
    let mut connection = Connection::open(&server).await?;
    let which = Membership { topic, group };
    let (topic, group) = (which.topic.clone(), which.group.clone());
    connection.ask(ClientOp::Subscribe(Subscribe { topic, group, opts })).await?;
    let mut subscriber = Subscriber {
        connection,
        which,
        handler: Handler::new(exec),
        acknowledges: !no_ack,
        left: count,
        received: VecDeque::new(),
        handling: None,
        unanswered: 0,
        stale: 0,
    };
    let result = subscriber.follow(&mut stopping).await;
    subscriber.connection.close().await;
    if subscriber.stale > 0 {
        let frames = subscriber.stale;
        eprintln!("prombus: {frames} acknowledgements came too late: their events come again");
    }
    result
}

struct Subscriber {
    connection: Connection,
    which: Membership,
    handler: Handler,
    acknowledges: bool,
    /// How many events are still to be received, where there is an end.
    left: Option<u64>,
    received: VecDeque<(EventId, Bytes)>,
    handling: Option<JoinHandle<Result<Handled, String>>>,
    /// Frames that were sent and not answered yet.
    unanswered: usize,
    /// Acknowledgements that came too late.
    stale: usize,
}

impl Subscriber {
    async fn follow(&mut self, stopping: &mut Stopping) -> Result<(), Box<dyn Error>> {
        loop {
            if self.handling.is_none() && !self.received.is_empty() {
                self.handling = Some(self.handler.begin(&mut self.received));
            }
            if self.handling.is_none() && self.left == Some(0) {
                return self.finish().await;
            }
            tokio::select! {
                frame = self.connection.next() => self.take(frame?)?,
                handled = handled(&mut self.handling) => {
                    self.handling = None;
                    self.settle(handled?);
                }
                () = stopping.asked() => {
                    // What is received and not begun goes to others.
                    self.received.clear();
                    return self.stop().await;
                }
            }
        }
    }

    /// Takes no more, and ends when what is being handled is done, or at a second ctrl-c.
    async fn stop(&mut self) -> Result<(), Box<dyn Error>> {
        self.send(ClientOp::Pause(self.which.clone()));
        self.left = Some(0);
        let mut again = Stopping::new()?;
        while self.handling.is_some() {
            tokio::select! {
                frame = self.connection.next() => self.take(frame?)?,
                handled = handled(&mut self.handling) => {
                    self.handling = None;
                    self.settle(handled?);
                }
                () = again.asked() => return Err("ended before the last events were done".into()),
            }
        }
        self.finish().await
    }

    /// Waits until all that was acknowledged is answered.
    async fn finish(&mut self) -> Result<(), Box<dyn Error>> {
        while self.unanswered > 0 {
            let frame = self.connection.next().await?;
            self.take(frame)?;
        }
        Ok(())
    }

    fn take(&mut self, frame: ServerFrame) -> Result<(), Box<dyn Error>> {
        match frame {
            ServerFrame::Event { event, .. } => {
                if self.left == Some(0) {
                    // It goes to others when the connection ends.
                    return Ok(());
                }
                let id = id_of(&event)?;
                self.received.push_back((id, event));
                if let Some(left) = &mut self.left {
                    *left -= 1;
                    if *left == 0 {
                        self.send(ClientOp::Pause(self.which.clone()));
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

    /// Tells the server what became of events.
    fn settle(&mut self, handled: Handled) {
        let Membership { topic, group } = self.which.clone();
        match handled {
            Handled::Done(_) if !self.acknowledges => {}
            Handled::Done(ids) => {
                let ids = Ids::Many(ids);
                self.send(ClientOp::Ack(Ack { topic, group, ids, mark: None, publish: None }));
            }
            Handled::Failed { id, reason } => {
                eprintln!("prombus: event {id}: {reason}");
                let reason = Some(reason);
                self.send(ClientOp::Nack(Nack { topic, group, id, reason, delay_ms: None }));
            }
        }
    }

    fn send(&mut self, op: ClientOp) {
        self.unanswered += 1;
        self.connection.send(op);
    }
}

/// What became of what is being handled; never, if nothing is.
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
        .map_err(|error| format!("the server sent an event without id: {error}"))
}

fn start_from(text: &str) -> Result<StartFrom, String> {
    match text.split_once(':') {
        None if text == "earliest" => Ok(StartFrom::Earliest),
        None if text == "latest" => Ok(StartFrom::Latest),
        Some(("ts", ms)) => {
            let ms = ms.parse().map_err(|_| "ts: takes milliseconds since 1970".to_owned())?;
            Ok(StartFrom::Ts(Timestamp(ms)))
        }
        Some(("after", id)) => {
            EventId::new(id).map(StartFrom::AfterId).map_err(|error| error.to_string())
        }
        _ => Err("earliest, latest, ts:MS or after:ID".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_begin_at() {
        assert_eq!(start_from("earliest"), Ok(StartFrom::Earliest));
        assert_eq!(start_from("latest"), Ok(StartFrom::Latest));
        assert_eq!(start_from("ts:17"), Ok(StartFrom::Ts(Timestamp(17))));
        let id = EventId::new("a:b").unwrap();
        assert_eq!(start_from("after:a:b"), Ok(StartFrom::AfterId(id)));
        for bad in ["", "first", "ts", "ts:", "ts:x", "after:", "earliest:1"] {
            assert!(start_from(bad).is_err(), "{bad}");
        }
    }
}
