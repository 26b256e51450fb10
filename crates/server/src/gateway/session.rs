//! One connection, from its first frame to the close frame.
//!
//! One task does everything: it writes pending output, reads frames, and sends deliveries. A peer
//! that does not read is slowed down in steps: its delivery queue fills up and groups stop delivering
//! to it; then its frames are no longer read; finally the connection is closed as a slow consumer.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prombus_bus::{Delivery, Memory, OpenConnection, Refusal, Share, Transport};
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
use super::deadlines::Deadlines;
use super::frame_room::FrameRoom;
use super::socket::Socket;
use super::wire::Wire;
use crate::accept::Arrival;
use crate::phase::{self, Phase};

pub(super) struct Session<S> {
    socket: Socket<S>,
    client: Client,
    deadlines: Deadlines,
    timer: Pin<Box<Sleep>>,
    /// Completes when the server shuts down or reloads tokens and keys.
    next_phase: NextPhase,
    /// Reused between writes.
    deliveries: Vec<Delivery>,
    /// The memory of the write buffer.
    outbox: Share,
    /// Counts the connection as open until it is dropped.
    _open: OpenConnection,
}

type NextPhase = Pin<Box<dyn Future<Output = (Phase, watch::Receiver<Phase>)> + Send>>;

/// Waits for a phase other than `seen`. Returns the receiver as well, for the phase after that.
fn next_phase(mut phases: watch::Receiver<Phase>, seen: Phase) -> NextPhase {
    Box::pin(async move { (phase::next_phase(&mut phases, seen).await, phases) })
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer closed the connection or is unreachable.
    Gone,
    /// We close the connection.
    Closed(CloseCode),
}

/// Why a session woke up.
enum Wakeup {
    /// A message, or the end of the stream.
    Read(Option<Result<Message, Error>>),
    /// A deadline passed, or deliveries arrived.
    Look,
    Stopping,
    /// Tokens and keys may have changed.
    Reloaded,
    NoPong,
    /// A large frame did not arrive in time.
    FrameTooSlow,
    Lost(io::Error),
}

/// Deliveries are added to the write buffer while it holds less than this.
const WRITE_BYTES: usize = 64 << 10;
/// The number of frames that are served before their batch is submitted, answers are written, and
/// other connections get their turn.
const MAX_BURST: usize = 128;
/// The bytes of a burst, for the same reasons: another frame is served while it has less.
const MAX_BURST_BYTES: usize = 128 << 10;
/// How long a client may settle its leases when the server shuts down.
const SETTLING_TIME: Duration = Duration::from_millis(500);
/// How long a peer may take to accept the last answers and the close frame.
const CLOSING_TIME: Duration = Duration::from_secs(5);

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    pub(super) fn new(
        stream: S,
        arrival: &Arrival,
        read_ahead: &[u8],
        gateway: Arc<Gateway>,
        phases: watch::Receiver<Phase>,
    ) -> Self {
        let metrics = gateway.bus.metrics();
        let traffic = metrics.traffic(Transport::Ws);
        traffic.received(read_ahead.len());
        let open = metrics.connection(Transport::Ws);
        // Before the client gets its rights: a reload in between is noticed.
        let seen = *phases.borrow();
        let client = Client::new(gateway, arrival);
        let room = FrameRoom::new(client.memory().frames.share());
        let wire = Wire::new(stream, traffic);
        let max_frame_bytes = client.settings().max_frame_bytes;
        let is_authenticated = client.is_authenticated();
        Self {
            socket: Socket::new(wire, read_ahead, room, max_frame_bytes, is_authenticated),
            outbox: client.memory().deliveries.share(),
            deadlines: Deadlines::new(client.settings(), arrival.at, client.is_authenticated()),
            client,
            timer: Box::pin(sleep_until(Instant::now())),
            // A connection may arrive when the server is already stopping.
            next_phase: next_phase(phases, if seen.is_stopping() { Phase::START } else { seen }),
            deliveries: Vec::new(),
            _open: open,
        }
    }

    /// Runs the session until it ends, and closes the connection.
    pub(super) async fn run(mut self) -> End {
        let end = self.serve().await;
        if end == End::Closed(CloseCode::SlowConsumer) {
            self.client.is_slow(self.socket.wire.outgoing.len());
        }
        // Before the close, which may take a while: other members get the leased events.
        self.client.end_subscriptions();
        let _ = timeout(CLOSING_TIME, self.close(end)).await;
        end
    }

    async fn serve(&mut self) -> End {
        loop {
            let now = Instant::now();
            if let Some(code) = self.deadlines.expired(now) {
                return End::Closed(code);
            }
            if self.deadlines.take_ping(now, self.client.settings()) {
                let outgoing = &mut self.socket.wire.outgoing;
                // Only now, not whenever the buffer is empty: a busy connection would reallocate it for
                // every write.
                outgoing.shrink();
                outgoing.ping();
            }
            if self.deadlines.take_rights_end(now) {
                self.client.stop_deliveries();
            }
            match self.next_wakeup().await {
                Wakeup::Look => {}
                Wakeup::Read(Some(Ok(message))) => {
                    let started = Instant::now();
                    if let Err(end) = self.serve_burst(message).await {
                        return end;
                    }
                    // The peer is not responsible for the time that storage takes.
                    self.deadlines.extend_pong(started.elapsed());
                }
                Wakeup::Read(Some(Err(error))) => return self.read_failed(&error),
                Wakeup::Read(None) => return End::Gone,
                Wakeup::Lost(error) => {
                    tracing::debug!("connection lost: {error}");
                    return End::Gone;
                }
                Wakeup::Stopping => self.prepare_to_close(now),
                Wakeup::Reloaded => self.check_rights_again(),
                Wakeup::NoPong => return End::Closed(CloseCode::NoPong),
                Wakeup::FrameTooSlow => {
                    let message = "the frame did not arrive completely in time";
                    let refusal = Refusal::new(ErrorCode::PayloadTooLarge, message);
                    self.client.refuse_unparsed(&refusal);
                    return End::Closed(CloseCode::FrameTooLarge);
                }
            }
        }
    }

    /// Writes until there is something else to do.
    async fn next_wakeup(&mut self) -> Wakeup {
        let queue = Arc::clone(self.client.delivery_queue());
        let mut filled = std::pin::pin!(queue.filled());
        poll_fn(|context| {
            loop {
                self.fill(context);
                match self.drain(context) {
                    Poll::Ready(Ok(0)) | Poll::Pending => break,
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Wakeup::Lost(error)),
                }
            }
            self.settle_outbox();
            // After writing: refused frames are charged when their answers are written.
            self.deadlines.set_read_at(self.client.pays_debt_at().map(Instant::from_std));
            if !self.may_read() {
                self.socket.restart_arrival();
            }
            if !self.may_read() || self.socket.is_waiting_for_room() {
                self.deadlines.restart_pong(self.client.settings().pong_timeout);
            }
            // Before reading: a busy peer always has something to read.
            if !self.deadlines.is_closing()
                && let Poll::Ready((phase, phases)) = self.next_phase.as_mut().poll(context)
            {
                self.next_phase = next_phase(phases, phase);
                return Poll::Ready(match phase {
                    Phase::Stopping => Wakeup::Stopping,
                    Phase::Serving { .. } => Wakeup::Reloaded,
                });
            }
            if self.may_read() {
                let unanswered = self.client.unanswered_bytes();
                if let Poll::Ready(read) = self.socket.poll_message(context, unanswered) {
                    return Poll::Ready(Wakeup::Read(read));
                }
                self.deadlines.set_message_by(self.socket.complete_by());
                if self.deadlines.message_is_overdue() && has_budget_remaining() {
                    return Poll::Ready(Wakeup::FrameTooSlow);
                }
                // After reading: a pong that arrived in time must not count as late because we are.
                if self.deadlines.pong_is_overdue() && has_budget_remaining() {
                    return Poll::Ready(Wakeup::NoPong);
                }
            }
            // After writing, which may have changed the deadlines.
            let wake_at = self.deadlines.next(self.may_read());
            if self.timer.deadline() != wake_at {
                self.timer.as_mut().reset(wake_at);
            }
            if self.timer.as_mut().poll(context).is_ready()
                || filled.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(Wakeup::Look);
            }
            Poll::Pending
        })
        .await
    }

    /// Adds answers that are ready, and deliveries, to the write buffer while it has room.
    fn fill(&mut self, context: &mut Context<'_>) {
        let limit = self.outbox_limit();
        let outgoing = &mut self.socket.wire.outgoing;
        while outgoing.len() < limit && self.client.poll_answer(context, outgoing).is_ready() {}
        if outgoing.len() < limit {
            self.client.write_ended(outgoing);
        }
        let bytes = WRITE_BYTES.min(limit);
        if outgoing.len() >= bytes {
            return;
        }
        self.client.take_deliveries(bytes - outgoing.len(), &mut self.deliveries);
        // Exactly: a buffer that doubles would exceed its part of the budget.
        outgoing.reserve(self.deliveries.iter().map(frame_bytes).sum());
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

    /// Writes as much as the peer accepts, and returns the number of bytes.
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let drained = self.socket.wire.poll_drain(context);
        match &drained {
            Poll::Ready(Ok(count)) => {
                if *count > 0 || self.socket.wire.outgoing.is_empty() {
                    self.deadlines.drained();
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                self.deadlines.stalled(self.client.settings().slow_consumer_timeout);
            }
        }
        drained
    }

    fn may_read(&self) -> bool {
        // No connection may have less than this.
        let waiting = self.socket.wire.outgoing.len();
        let is_small = waiting < Memory::MINIMUM.min(self.client.settings().max_outbox_bytes);
        self.client.may_read()
            && !self.deadlines.reads_later()
            && (is_small || waiting < self.outbox_limit())
    }

    /// Returns the bytes at which the write buffer is full.
    fn outbox_limit(&self) -> usize {
        // A stranger has no deliveries and needs no long answers. A buffer that has more than its part must
        // not grow by an event each time.
        let has_minimum = !self.client.is_authenticated() || self.outbox.exceeds_fair_share();
        let allowance = if has_minimum { Memory::MINIMUM } else { self.outbox.allowance() };
        self.client.settings().max_outbox_bytes.min(allowance)
    }

    /// Counts the memory of the write buffer, after as much as possible was written.
    fn settle_outbox(&mut self) {
        if self.outbox.exceeds_fair_share() {
            self.socket.wire.outgoing.shrink();
        }
        self.outbox.set(self.socket.wire.outgoing.capacity());
    }

    /// Serves the frames that have arrived, up to the bounds of a burst, or until the client owes tokens.
    async fn serve_burst(&mut self, first: Message) -> Result<(), End> {
        let mut message = first;
        let (mut served, mut bytes) = (0, 0);
        let is_full = loop {
            bytes += message.len();
            self.serve_message(message).await;
            served += 1;
            if self.client.is_authenticated() {
                self.socket.authenticated(self.client.settings().max_frame_bytes);
            }
            let is_full = served >= MAX_BURST || bytes >= MAX_BURST_BYTES;
            if is_full || !self.may_read() || self.client.pays_debt_at().is_some() {
                break is_full;
            }
            let unanswered = self.client.unanswered_bytes();
            let polled =
                poll_fn(|context| Poll::Ready(self.socket.poll_message(context, unanswered)));
            message = match polled.await {
                Poll::Ready(Some(Ok(message))) => message,
                Poll::Ready(Some(Err(error))) => {
                    self.client.submit_batch().await;
                    return Err(self.read_failed(&error));
                }
                // The next wakeup sees the end of the stream again.
                Poll::Ready(None) | Poll::Pending => break false,
            };
        };
        self.client.submit_batch().await;
        if is_full {
            // Without this the runtime would poll us again right away if there is more to read, and bursts
            // would be read, stored and answered one after the other instead of concurrently.
            yield_now().await;
        }
        if self.client.is_authenticated() {
            self.deadlines.authenticated();
            self.deadlines.set_rights_end(self.client.rights_last());
        }
        Ok(())
    }

    async fn serve_message(&mut self, message: Message) {
        match message {
            Message::Text(text) => self.client.serve(&text).await,
            Message::Binary(bytes) => {
                let refusal = Refusal::new(ErrorCode::BadFrame, "send text frames, not binary");
                self.client.refuse_frame(None, refusal, bytes.len()).await;
            }
            Message::Pong(_) => self.deadlines.pong_received(),
            // tungstenite answers both.
            Message::Ping(_) | Message::Close(_) => {}
            Message::Frame(_) => unreachable!("tungstenite never returns raw frames"),
        }
    }

    fn read_failed(&mut self, error: &Error) -> End {
        match error {
            Error::Capacity(error) => {
                let refusal = Refusal::new(ErrorCode::PayloadTooLarge, error.to_string());
                self.client.refuse_unparsed(&refusal);
                End::Closed(CloseCode::FrameTooLarge)
            }
            Error::Protocol(_) => End::Closed(CloseCode::ProtocolError),
            Error::Utf8(_) => End::Closed(CloseCode::NotUtf8),
            _ => End::Gone,
        }
    }

    /// The token of the client may have been removed by a reload, or another one may have been added.
    fn check_rights_again(&mut self) {
        self.client.check_rights_again();
        if self.client.is_authenticated() {
            self.deadlines.authenticated();
            self.deadlines.set_rights_end(self.client.rights_last());
            self.socket.authenticated(self.client.settings().max_frame_bytes);
        } else {
            self.deadlines.lost_rights(self.client.settings().expired_token_grace);
        }
    }

    /// Stops deliveries, and gives the client time to settle its leases.
    fn prepare_to_close(&mut self, now: Instant) {
        let time = match self.client.has_subscriptions() {
            true => SETTLING_TIME,
            false => Duration::ZERO,
        };
        self.deadlines.close_at(now + time);
        self.client.stop_deliveries();
    }

    /// Writes the remaining output, pending answers included, and the close frame.
    async fn close(&mut self, end: End) {
        let wire = &mut self.socket.wire;
        match end {
            End::Gone => {}
            End::Closed(CloseCode::SlowConsumer) => {
                wire.outgoing.discard_and_close(CloseCode::SlowConsumer);
            }
            End::Closed(code) => {
                let client = &mut self.client;
                while client.has_pending_answers() {
                    poll_fn(|context| client.poll_answer(context, &mut wire.outgoing)).await;
                }
                wire.outgoing.close(code);
            }
        }
        while !wire.outgoing.is_empty() {
            if poll_fn(|context| wire.poll_drain(context)).await.is_err() {
                return;
            }
        }
        // An error means that the peer is gone.
        let _ = wire.shut_down().await;
    }
}

/// Returns about how many bytes the EVENT frame has.
fn frame_bytes(delivery: &Delivery) -> usize {
    const ENVELOPE: usize = 128;
    let names = delivery.topic.as_str().len() + delivery.group.as_str().len();
    ENVELOPE + names + delivery.event.json_bytes()
}
