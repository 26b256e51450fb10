//! One connection, from its first frame to its goodbye.
//!
//! One task does it all: it writes what waits, reads what has come, and sends what groups deliver.
//! A peer that does not read is slowed down in steps. Deliveries stop when its delivery_queue is full, for
//! groups find no room; reading stops when too many answers wait; and when nothing was taken for
//! too long, it is closed.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prombus_bus::{Delivery, OpenConnection, Refusal, Transport};
use prombus_proto::ErrorCode;
use prombus_proto::frame::answer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::coop::has_budget_remaining;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::Gateway;
use super::client::Client;
use super::close_code::CloseCode;
use super::messages::Messages;
use super::socket::Socket;
use super::wire::Wire;

/// One connection.
pub(super) struct Session<S> {
    socket: Socket<S>,
    client: Client,
    /// Ready when the server is about to stop.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// When it is closed because of that.
    closes_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    opened_at: Instant,
    ping_at: Instant,
    /// When a pong has to have come.
    pong_by: Option<Instant>,
    /// Since when the peer takes nothing of what waits.
    stuck_since: Option<Instant>,
    rights_end: Option<Instant>,
    deliveries: Vec<Delivery>,
    /// Counted while it is there.
    _open: OpenConnection,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer closed it, or is gone.
    Gone,
    /// We close it.
    Closed(CloseCode),
}

/// Deliveries are added to what waits while that is less than this: enough to fill a write.
const WRITE_BYTES: usize = 64 << 10;
/// Reading stops while so many frames wait for their answers.
const MOST_FRAMES: usize = 10_000;
/// Reading stops, too, while frames wait for their answers that have as many bytes as so many of
/// the largest: what a frame asks for, and its `corr`, hold on to it.
const LARGEST_FRAMES: usize = 4;
/// So many bytes may wait even where frames have to be small.
const SMALL_FRAMES_BYTES: usize = 1 << 20;
/// How many frames are served before what they ask for goes its way, answers are written, and others
/// get their turn.
const MOST_AT_ONCE: usize = 128;
/// How long a client may finish what it has when the server stops.
const FINISHING_TIME: Duration = Duration::from_millis(500);
/// How long a peer has to take our goodbye.
const GOODBYE_TIME: Duration = Duration::from_secs(5);

enum Turn {
    Read(Option<Result<Message, Error>>),
    Time,
    Stopping,
    NoPong,
    Lost(io::Error),
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    pub(super) fn over(
        stream: S,
        read_ahead: &[u8],
        gateway: Arc<Gateway>,
        mut stopping: watch::Receiver<bool>,
    ) -> Self {
        let metrics = gateway.bus.metrics();
        let traffic = metrics.traffic(Transport::Ws);
        traffic.received(read_ahead.len());
        let mut messages = Messages::new(gateway.settings.max_frame_bytes);
        messages.append(read_ahead);
        let now = Instant::now();
        Self {
            socket: Socket::new(Wire::new(stream, traffic), messages),
            stopping: Box::pin(async move {
                // An error says that the server is gone, which is the same.
                let _ = stopping.wait_for(|stop| *stop).await;
            }),
            closes_at: None,
            timer: Box::pin(sleep_until(now)),
            opened_at: now,
            ping_at: now + gateway.settings.ping_interval,
            pong_by: None,
            stuck_since: None,
            rights_end: None,
            deliveries: Vec::new(),
            _open: metrics.connection(Transport::Ws),
            client: Client::new(gateway),
        }
    }

    /// Runs to the end, and says goodbye.
    pub(super) async fn run(mut self) -> End {
        let end = self.turns().await;
        // What it had goes to others before the goodbye, which may take a while.
        self.client.subscriptions.clear();
        // Who does not take it in time is not waited for.
        let _ = timeout(GOODBYE_TIME, self.say_goodbye(end)).await;
        end
    }

    async fn turns(&mut self) -> End {
        loop {
            let settings = &self.client.gateway.settings;
            let now = Instant::now();
            if let Some(code) = self.overdue(now) {
                return End::Closed(code);
            }
            if now >= self.ping_at {
                self.ping_at = now + settings.ping_interval;
                self.pong_by.get_or_insert(now + settings.pong_timeout);
                let outgoing = &mut self.socket.wire.outgoing;
                // Not each time when it is empty: who gets much would have it made anew for every write.
                outgoing.shrink();
                outgoing.ping();
            }
            if self.rights_end.is_some_and(|end| now >= end) {
                self.rights_end = None;
                self.client.deliver_nothing();
            }
            match self.turn().await {
                Turn::Read(Some(Ok(message))) => {
                    let begun = Instant::now();
                    if let Err(end) = self.burst(message).await {
                        return end;
                    }
                    // What the storage took is no fault of the peer's.
                    self.pong_by = self.pong_by.map(|by| by + begun.elapsed());
                }
                Turn::Read(Some(Err(error))) => return self.read_failed(&error),
                Turn::Read(None) => return End::Gone,
                Turn::Lost(error) => {
                    tracing::debug!("a connection is lost: {error}");
                    return End::Gone;
                }
                Turn::Stopping => {
                    // Those who still have events may finish them.
                    let time = if self.client.subscriptions.is_empty() {
                        Duration::ZERO
                    } else {
                        FINISHING_TIME
                    };
                    self.closes_at = Some(now + time);
                    self.client.deliver_nothing();
                }
                Turn::NoPong => return End::Closed(CloseCode::NoPong),
                Turn::Time => {}
            }
        }
    }

    /// Writes until something has come, a time is over, or the server stops.
    async fn turn(&mut self) -> Turn {
        let delivery_queue = Arc::clone(&self.client.connection.delivery_queue);
        let mut filled = std::pin::pin!(delivery_queue.filled());
        poll_fn(|context| {
            if !self.may_read() {
                // Who is not read cannot be heard: its time begins anew.
                self.hear_again_within(self.client.gateway.settings.pong_timeout);
            }
            loop {
                self.fill(context);
                match self.drain(context) {
                    Poll::Ready(Ok(0)) | Poll::Pending => break,
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Turn::Lost(error)),
                }
            }
            // Before reading: there may be always something to read.
            if self.closes_at.is_none() && self.stopping.as_mut().poll(context).is_ready() {
                return Poll::Ready(Turn::Stopping);
            }
            if self.may_read() {
                if let Poll::Ready(read) = self.socket.poll_message(context) {
                    return Poll::Ready(Turn::Read(read));
                }
                // After reading: a pong that came in time is not late because we were.
                if self.has_no_pong() && has_budget_remaining() {
                    return Poll::Ready(Turn::NoPong);
                }
            }
            // Not before: what was just written, or not, says how long to wait.
            let wake_at = self.wake_at();
            if self.timer.deadline() != wake_at {
                self.timer.as_mut().reset(wake_at);
            }
            if self.timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(Turn::Time);
            }
            if filled.as_mut().poll(context).is_ready() {
                // Taken up by the next turn.
                return Poll::Ready(Turn::Time);
            }
            Poll::Pending
        })
        .await
    }

    /// Adds answers that are ready, and deliveries, to what waits to be written, as far as there is
    /// room.
    fn fill(&mut self, context: &mut Context<'_>) {
        let limit = self.client.gateway.settings.max_outbox_bytes;
        let outgoing = &mut self.socket.wire.outgoing;
        while outgoing.waiting() < limit
            && self.client.answers.poll_write(context, outgoing).is_ready()
        {}
        let may_deliver = self.client.answers.answered() >= self.client.deliver_after;
        if !may_deliver || outgoing.waiting() >= WRITE_BYTES {
            return;
        }
        self.client.connection.delivery_queue.take(WRITE_BYTES, &mut self.deliveries);
        let now = Instant::now().into_std();
        for delivery in self.deliveries.drain(..) {
            let left = delivery.deadline.saturating_duration_since(now).as_millis();
            let left = u64::try_from(left).unwrap_or(u64::MAX);
            let (topic, group) = (&delivery.topic, &delivery.group);
            outgoing.text(|text| {
                let event = |out: &mut Vec<u8>| delivery.event.write_json(out);
                answer::write_event(text, topic, group, event, delivery.attempt, left);
            });
        }
    }

    /// Writes what the peer takes. Answers how much that was.
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.socket.wire.poll_drain(context) {
            Poll::Ready(Ok(count)) => {
                if count > 0 || self.socket.wire.outgoing.is_empty() {
                    self.stuck_since = None;
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.stuck_since.get_or_insert_with(Instant::now);
                Poll::Pending
            }
        }
    }

    fn may_read(&self) -> bool {
        let limit = self.client.gateway.settings.max_outbox_bytes;
        let answers = &self.client.answers;
        let largest = self.client.gateway.settings.max_frame_bytes;
        let most_bytes = (LARGEST_FRAMES * largest).max(SMALL_FRAMES_BYTES);
        answers.frames() < MOST_FRAMES
            && answers.frame_bytes() < most_bytes
            && self.socket.wire.outgoing.waiting() < limit
    }

    /// Serves all frames that have come by now.
    async fn burst(&mut self, first: Message) -> Result<(), End> {
        let mut next = Some(first);
        let mut served = 0;
        while let Some(message) = next {
            match message {
                Message::Text(text) => self.client.serve(&text).await,
                Message::Binary(_) => {
                    let refusal = Refusal::new(ErrorCode::BadFrame, "send text frames, not binary");
                    self.client.ask_together().await;
                    self.client.answers.refuse(None, &refusal);
                }
                Message::Pong(_) => self.pong_by = None,
                // The library answers both.
                Message::Ping(_) | Message::Close(_) => {}
                Message::Frame(_) => unreachable!("is never read"),
            }
            served += 1;
            next = if served < MOST_AT_ONCE && self.may_read() {
                match poll_fn(|context| Poll::Ready(self.socket.poll_message(context))).await {
                    Poll::Ready(Some(Ok(message))) => Some(message),
                    Poll::Ready(Some(Err(error))) => {
                        self.client.ask_together().await;
                        return Err(self.read_failed(&error));
                    }
                    // Seen again by the next turn.
                    Poll::Ready(None) | Poll::Pending => None,
                }
            } else {
                None
            };
        }
        self.client.ask_together().await;
        if served == MOST_AT_ONCE {
            // There may be more to read, and without this the runtime would let it be read first: then all
            // that waits would be read, stored and answered one after the other, not at the same time.
            yield_now().await;
        }
        let rights_last = self.client.rights_last();
        self.rights_end = rights_last.map(|time| Instant::now() + time);
        Ok(())
    }

    fn read_failed(&mut self, error: &Error) -> End {
        match error {
            Error::Capacity(error) => {
                let refusal = Refusal::new(ErrorCode::PayloadTooLarge, error.to_string());
                self.client.answers.refuse(None, &refusal);
                End::Closed(CloseCode::FrameTooLarge)
            }
            Error::Protocol(_) => End::Closed(CloseCode::ProtocolError),
            Error::Utf8(_) => End::Closed(CloseCode::NotUtf8),
            _ => End::Gone,
        }
    }

    /// What is over by now, and ends the session.
    fn overdue(&self, now: Instant) -> Option<CloseCode> {
        if self.stuck_until().is_some_and(|until| now >= until) {
            return Some(CloseCode::SlowConsumer);
        }
        if self.auth_by().is_some_and(|by| now >= by) {
            return Some(CloseCode::NotAuthenticated);
        }
        self.closes_at.filter(|at| now >= *at).map(|_| CloseCode::GoingAway)
    }

    fn hear_again_within(&mut self, time: Duration) {
        self.pong_by = self.pong_by.map(|_| Instant::now() + time);
    }

    fn has_no_pong(&self) -> bool {
        self.pong_by.is_some_and(|by| Instant::now() >= by)
    }

    fn stuck_until(&self) -> Option<Instant> {
        Some(self.stuck_since? + self.client.gateway.settings.slow_consumer_timeout)
    }

    fn auth_by(&self) -> Option<Instant> {
        let missing = self.client.grant.is_none();
        missing.then(|| self.opened_at + self.client.gateway.settings.auth_timeout)
    }

    fn wake_at(&self) -> Instant {
        let pong_by = self.pong_by.filter(|_| self.may_read());
        let times = [pong_by, self.stuck_until(), self.auth_by(), self.rights_end, self.closes_at];
        times.into_iter().flatten().fold(self.ping_at, Instant::min)
    }

    /// Writes what still waits, answers included, and the reason for closing.
    async fn say_goodbye(&mut self, end: End) {
        let wire = &mut self.socket.wire;
        match end {
            End::Gone => {}
            End::Closed(CloseCode::SlowConsumer) => {
                wire.outgoing.only_close(CloseCode::SlowConsumer);
            }
            End::Closed(code) => {
                let answers = &mut self.client.answers;
                while !answers.is_empty() {
                    poll_fn(|context| answers.poll_write(context, &mut wire.outgoing)).await;
                }
                wire.outgoing.close(code);
            }
        }
        while !wire.outgoing.is_empty() {
            if poll_fn(|context| wire.poll_drain(context)).await.is_err() {
                return;
            }
        }
        // The peer is gone where that fails.
        let _ = wire.end().await;
    }
}
