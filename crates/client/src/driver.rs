//! The task that runs a session: it connects, reads, writes, starts handlers and keeps the time.
//!
//! It takes in everything that is available before it writes, so that frames leave together.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Sink, Stream, StreamExt};
use prombus_proto::RandomSource;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::connection_state::ConnectionState;
use crate::session::requests::Request;
use crate::session::{Command, Completion, HandlerCall, Session};
use crate::transport::{
    BackOff, ServerAddress, WebSocket, WebSocketError, full_jitter, may_reconnect, open_websocket,
};
use crate::{Error, Result};

/// How long the closing handshake may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How many frames or requests are taken in before frames are written.
const READ_BATCH: usize = 256;
/// Handlers that finish wait for room in this queue.
const COMPLETION_QUEUE: usize = 1024;

type Opening = Pin<Box<dyn Future<Output = Result<WebSocket, WebSocketError>> + Send>>;

enum Link {
    BackingOff(Pin<Box<Sleep>>),
    Opening(Opening),
    Open(Box<WebSocket>),
}

/// The driver's ends of the channels that it shares with the client's handles.
pub(crate) struct Channels {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) state: watch::Sender<ConnectionState>,
    /// Resolves when the first connection is ready. While it is set, a failure ends the client.
    pub(crate) first_connected: Option<oneshot::Sender<Result<()>>>,
}

pub(crate) struct Driver {
    session: Session,
    address: Arc<ServerAddress>,
    link: Link,
    back_off: BackOff,
    random: Arc<dyn RandomSource>,
    channels: Channels,
    /// Set when every handle was dropped.
    is_abandoned: bool,
    request_buffer: Vec<Request>,
    completions: (mpsc::Sender<Completion>, mpsc::Receiver<Completion>),
    timer: Pin<Box<Sleep>>,
    /// What `timer` is set to, if it is needed.
    timer_at: Option<Instant>,
}

impl Driver {
    pub(crate) fn new(
        session: Session,
        address: ServerAddress,
        back_off: BackOff,
        random: Arc<dyn RandomSource>,
        channels: Channels,
    ) -> Self {
        let address = Arc::new(address);
        Self {
            session,
            link: Link::Opening(open(&address)),
            address,
            back_off,
            random,
            channels,
            is_abandoned: false,
            request_buffer: Vec::new(),
            completions: mpsc::channel(COMPLETION_QUEUE),
            timer: Box::pin(sleep_until(tokio::time::Instant::now())),
            timer_at: None,
        }
    }

    pub(crate) async fn run(mut self) {
        let result = poll_fn(|context| self.poll(context)).await;
        let error = result.err().unwrap_or(Error::Ended);
        self.channels.state.send_replace(ConnectionState::Ended(error.clone()));
        self.session.end(&error);
        if let Some(first_connected) = self.channels.first_connected.take() {
            let _ = first_connected.send(Err(error));
        }
        if let Link::Open(mut socket) = self.link {
            let closing = async {
                // The server may be gone already.
                let _ = socket.close(None).await;
                while let Some(Ok(_)) = socket.next().await {}
            };
            let _ = timeout(CLOSE_TIMEOUT, closing).await;
        }
    }

    /// Makes all progress that is possible. Ready when the client has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let now = now();
            let mut has_progressed = self.poll_timer(context, now);
            has_progressed |= self.poll_link(context, now)?;
            has_progressed |= self.poll_handles(context);
            has_progressed |= self.start_handlers();
            if self.session.is_done() {
                return Poll::Ready(Ok(()));
            }
            has_progressed |= self.poll_write(context, now)?;
            if !has_progressed {
                return Poll::Pending;
            }
        }
    }

    fn poll_timer(&mut self, context: &mut Context<'_>, now: Instant) -> bool {
        let mut has_progressed = false;
        if self.timer_at.is_some_and(|at| at <= now) {
            self.timer_at = None;
            self.session.wake(now);
            has_progressed = true;
        }
        let next = self.session.next_wake(now);
        if next != self.timer_at {
            self.timer_at = next;
            if let Some(at) = next {
                self.timer.as_mut().reset(at.into());
            }
        }
        if self.timer_at.is_some() && self.timer.as_mut().poll(context).is_ready() {
            // The next iteration wakes the session.
            has_progressed = true;
        }
        has_progressed
    }

    fn poll_handles(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_progressed = false;
        while !self.is_abandoned {
            let Poll::Ready(command) = self.channels.commands.poll_recv(context) else { break };
            self.is_abandoned = command.is_none();
            self.session.command(command.unwrap_or(Command::Close));
            has_progressed = true;
        }
        while let Poll::Ready(Some(completion)) = self.completions.1.poll_recv(context) {
            self.session.completed(completion);
            has_progressed = true;
        }
        while let Poll::Ready(1..) =
            self.channels.requests.poll_recv_many(context, &mut self.request_buffer, READ_BATCH)
        {
            for request in self.request_buffer.drain(..) {
                self.session.request(request);
            }
            has_progressed = true;
        }
        has_progressed
    }

    fn start_handlers(&mut self) -> bool {
        let mut has_progressed = false;
        while let Some(call) = self.session.next_handler_call() {
            let HandlerCall { membership, id, delivery, handler } = call;
            let completions = self.completions.0.clone();
            tokio::spawn(async move {
                let handled = handler(delivery).await;
                // The receiver is gone if the client has ended.
                let _ = completions.send(Completion { membership, id, handled }).await;
            });
            has_progressed = true;
        }
        has_progressed
    }

    /// Connects or reads. Fails with the error that ends the client.
    fn poll_link(&mut self, context: &mut Context<'_>, now: Instant) -> Result<bool> {
        match &mut self.link {
            Link::BackingOff(sleep) => {
                if sleep.as_mut().poll(context).is_pending() {
                    return Ok(false);
                }
                self.link = Link::Opening(open(&self.address));
            }
            Link::Opening(opening) => match opening.as_mut().poll(context) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(socket)) => self.connected(socket),
                Poll::Ready(Err(error)) => {
                    let error = Error::from(error);
                    let is_permanent = matches!(error, Error::BadAddress(_));
                    if is_permanent || self.channels.first_connected.is_some() {
                        return Err(error);
                    }
                    self.back_off(error.to_string());
                }
            },
            Link::Open(_) => return self.poll_read(context, now),
        }
        Ok(true)
    }

    fn connected(&mut self, mut socket: WebSocket) {
        if let Some(frame) = self.session.connected() {
            // If sending fails, so does the next read, which reports the loss.
            let _ = Pin::new(&mut socket).start_send(Message::Text(frame));
        }
        self.link = Link::Open(Box::new(socket));
        self.report_if_ready();
    }

    fn report_if_ready(&mut self) {
        if !self.session.is_ready() {
            return;
        }
        if let Some(first_connected) = self.channels.first_connected.take() {
            let _ = first_connected.send(Ok(()));
        }
        self.channels.state.send_if_modified(|state| {
            let is_new = *state != ConnectionState::Connected;
            *state = ConnectionState::Connected;
            is_new
        });
    }

    fn poll_read(&mut self, context: &mut Context<'_>, now: Instant) -> Result<bool> {
        for count in 0..READ_BATCH {
            let Link::Open(socket) = &mut self.link else { return Ok(true) };
            let lost_because = match Pin::new(socket).poll_next(context) {
                Poll::Pending => return Ok(count > 0),
                Poll::Ready(Some(Ok(Message::Text(text)))) => match self.receive(text, now) {
                    Ok(()) => continue,
                    Err(Error::NotUnderstood(reason)) => reason,
                    // A token that the server had no time for: only the first connection has to succeed.
                    Err(error)
                        if error.is_retryable() && self.channels.first_connected.is_none() =>
                    {
                        error.to_string()
                    }
                    Err(error) => return Err(error),
                },
                Poll::Ready(Some(Ok(Message::Close(Some(close))))) => {
                    let (code, reason) = (close.code.into(), close.reason.to_string());
                    if !may_reconnect(code, self.session.has_token()) {
                        return Err(Error::Closed { code, reason });
                    }
                    format!("{code} {reason}")
                }
                // The library answers pings; the protocol has no other kinds of messages.
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Ready(Some(Err(error))) => error.to_string(),
                Poll::Ready(None) => "closed by the server".to_owned(),
            };
            self.disconnected(lost_because)?;
            return Ok(true);
        }
        Ok(true)
    }

    fn receive(&mut self, text: Utf8Bytes, now: Instant) -> Result<()> {
        let was_ready = self.session.is_ready();
        self.session.received(&Bytes::from(text), now)?;
        self.back_off.reset();
        if !was_ready {
            self.report_if_ready();
        }
        Ok(())
    }

    fn disconnected(&mut self, reason: String) -> Result<()> {
        self.session.disconnected();
        let url = self.address.url();
        if self.channels.first_connected.is_some() {
            return Err(Error::NotReached(format!("{url}: {reason}")));
        }
        tracing::debug!("connection to {url} lost: {reason}; reconnecting");
        self.back_off(reason);
        Ok(())
    }

    fn back_off(&mut self, reason: String) {
        let wait = full_jitter(self.back_off.next_wait(), &*self.random);
        let failures = self.back_off.failures();
        self.channels.state.send_replace(ConnectionState::Disconnected { reason, failures });
        self.link = Link::BackingOff(Box::pin(tokio::time::sleep(wait)));
    }

    /// Writes as much as the socket takes.
    fn poll_write(&mut self, context: &mut Context<'_>, now: Instant) -> Result<bool> {
        let Link::Open(socket) = &mut self.link else { return Ok(false) };
        let mut socket = Pin::new(&mut **socket);
        let mut has_progressed = false;
        while let Poll::Ready(Ok(())) = socket.as_mut().poll_ready(context) {
            let Some(frame) = self.session.next_frame(now) else { break };
            has_progressed = true;
            if let Err(error) = socket.as_mut().start_send(Message::Text(frame)) {
                self.disconnected(error.to_string())?;
                return Ok(true);
            }
        }
        // If flushing fails, so does the next read, which reports the loss.
        let _ = socket.poll_flush(context);
        Ok(has_progressed)
    }
}

fn open(address: &Arc<ServerAddress>) -> Opening {
    let address = Arc::clone(address);
    Box::pin(async move { open_websocket(&address).await })
}

/// Tokio's clock, which tests can pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
