//! The task that moves a session: it reads, writes, connects, and wakes it in time.
//!
//! Whatever is there is taken before anything is written, so that frames leave together.

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
use crate::session::{Command, Session, Settled, Start};
use crate::transport::{
    BackOff, ServerAddress, WebSocket, WebSocketError, full_jitter, open_websocket,
};
use crate::{Error, Result};

/// How long it may take to say goodbye.
const CLOSING_TIME: Duration = Duration::from_secs(2);
/// How many frames are read before what they bring about is written.
const FRAMES_AT_A_TIME: usize = 256;
/// How many handlers may have an end to tell that nobody took yet.
const SETTLED_AT_A_TIME: usize = 1024;

type Opening = Pin<Box<dyn Future<Output = Result<WebSocket, WebSocketError>> + Send>>;

enum Link {
    Waiting(Pin<Box<Sleep>>),
    Opening(Opening),
    Open(Box<WebSocket>),
}

pub(crate) struct Driver {
    session: Session,
    address: Arc<ServerAddress>,
    link: Link,
    back_off: BackOff,
    random: Arc<dyn RandomSource>,
    commands: mpsc::Receiver<Command>,
    requests: mpsc::Receiver<Request>,
    settled: (mpsc::Sender<Settled>, mpsc::Receiver<Settled>),
    state: watch::Sender<ConnectionState>,
    /// Told about the first try. It is the only one if it fails.
    first: Option<oneshot::Sender<Result<()>>>,
    timer: Pin<Box<Sleep>>,
    timer_at: Option<Instant>,
    /// Whether all handles are gone.
    is_left_alone: bool,
    taken: Vec<Request>,
}

impl Driver {
    #[expect(clippy::too_many_arguments, reason = "each is one end of something")]
    pub(crate) fn new(
        session: Session,
        address: ServerAddress,
        back_off: BackOff,
        random: Arc<dyn RandomSource>,
        commands: mpsc::Receiver<Command>,
        requests: mpsc::Receiver<Request>,
        state: watch::Sender<ConnectionState>,
        first: Option<oneshot::Sender<Result<()>>>,
    ) -> Self {
        let address = Arc::new(address);
        Self {
            session,
            link: Link::Opening(open(&address)),
            address,
            back_off,
            random,
            commands,
            requests,
            settled: mpsc::channel(SETTLED_AT_A_TIME),
            state,
            first,
            timer: Box::pin(sleep_until(tokio::time::Instant::now())),
            timer_at: None,
            is_left_alone: false,
            taken: Vec::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        let result = poll_fn(|context| self.poll(context)).await;
        let error = result.err().unwrap_or(Error::Ended);
        self.state.send_replace(ConnectionState::Ended(error.clone()));
        self.session.end(&error);
        if let Some(first) = self.first.take() {
            let _ = first.send(Err(error));
        }
        if let Link::Open(mut socket) = self.link {
            let goodbye = async {
                // Who does not take it is gone already.
                let _ = socket.close(None).await;
                while let Some(Ok(_)) = socket.next().await {}
            };
            let _ = timeout(CLOSING_TIME, goodbye).await;
        }
    }

    /// Does all that can be done. Ready when the client has ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let now = now();
            let mut has_moved = self.poll_time(context, now);
            has_moved |= self.poll_link(context, now)?;
            has_moved |= self.poll_handles(context);
            has_moved |= self.start_handlers();
            if self.session.is_done() {
                return Poll::Ready(Ok(()));
            }
            has_moved |= self.poll_write(context, now)?;
            if !has_moved {
                return Poll::Pending;
            }
        }
    }

    fn poll_time(&mut self, context: &mut Context<'_>, now: Instant) -> bool {
        let mut has_moved = false;
        if self.timer_at.is_some_and(|at| at <= now) {
            self.timer_at = None;
            self.session.wake(now);
            has_moved = true;
        }
        let next = self.session.next_wake(now);
        if next != self.timer_at {
            self.timer_at = next;
            if let Some(at) = next {
                self.timer.as_mut().reset(at.into());
            }
        }
        if self.timer_at.is_some() && self.timer.as_mut().poll(context).is_ready() {
            // The next round sees that it is time.
            has_moved = true;
        }
        has_moved
    }

    fn poll_handles(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while !self.is_left_alone {
            let Poll::Ready(command) = self.commands.poll_recv(context) else { break };
            self.is_left_alone = command.is_none();
            self.session.command(command.unwrap_or(Command::Close));
            has_moved = true;
        }
        while let Poll::Ready(Some(settled)) = self.settled.1.poll_recv(context) {
            self.session.settled(settled);
            has_moved = true;
        }
        while let Poll::Ready(1..) =
            self.requests.poll_recv_many(context, &mut self.taken, FRAMES_AT_A_TIME)
        {
            for request in self.taken.drain(..) {
                self.session.request(request);
            }
            has_moved = true;
        }
        has_moved
    }

    fn start_handlers(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(Start { which, id, delivery, handler }) = self.session.start() {
            let settled = self.settled.0.clone();
            tokio::spawn(async move {
                let handled = handler(delivery).await;
                // A client that ended does not care.
                let _ = settled.send(Settled { which, id, handled }).await;
            });
            has_moved = true;
        }
        has_moved
    }

    /// Connects, or reads. Fails with what ends the client.
    fn poll_link(&mut self, context: &mut Context<'_>, now: Instant) -> Result<bool> {
        match &mut self.link {
            Link::Waiting(sleep) => {
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
                    let cannot_get_better = matches!(error, Error::BadAddress(_));
                    if cannot_get_better || self.first.is_some() {
                        return Err(error);
                    }
                    self.wait(error.to_string());
                }
            },
            Link::Open(_) => return self.poll_read(context, now),
        }
        Ok(true)
    }

    fn connected(&mut self, mut socket: WebSocket) {
        if let Some(frame) = self.session.connected() {
            // One that fails fails for the reader, too.
            let _ = Pin::new(&mut socket).start_send(Message::Text(frame));
        }
        self.link = Link::Open(Box::new(socket));
        self.say_if_ready();
    }

    fn say_if_ready(&mut self) {
        if !self.session.is_ready() {
            return;
        }
        if let Some(first) = self.first.take() {
            let _ = first.send(Ok(()));
        }
        self.state.send_if_modified(|state| {
            let is_new = *state != ConnectionState::Connected;
            *state = ConnectionState::Connected;
            is_new
        });
    }

    fn poll_read(&mut self, context: &mut Context<'_>, now: Instant) -> Result<bool> {
        for count in 0..FRAMES_AT_A_TIME {
            let Link::Open(socket) = &mut self.link else { return Ok(true) };
            let lost = match Pin::new(socket).poll_next(context) {
                Poll::Pending => return Ok(count > 0),
                Poll::Ready(Some(Ok(Message::Text(text)))) => match self.take(text, now) {
                    Ok(()) => continue,
                    Err(Error::NotUnderstood(reason)) => reason,
                    Err(error) => return Err(error),
                },
                Poll::Ready(Some(Ok(Message::Close(Some(close))))) => {
                    let (code, reason) = (close.code.into(), close.reason.to_string());
                    if !may_come_back(code, self.session.has_token()) {
                        return Err(Error::Closed { code, reason });
                    }
                    format!("{code} {reason}")
                }
                // The library answers pings. Anything else the protocol does not have.
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Ready(Some(Err(error))) => error.to_string(),
                Poll::Ready(None) => "the server closed it".to_owned(),
            };
            self.lost(lost)?;
            return Ok(true);
        }
        Ok(true)
    }

    fn take(&mut self, text: Utf8Bytes, now: Instant) -> Result<()> {
        self.back_off.reset();
        let was_ready = self.session.is_ready();
        self.session.received(&Bytes::from(text), now)?;
        if !was_ready {
            self.say_if_ready();
        }
        Ok(())
    }

    fn lost(&mut self, reason: String) -> Result<()> {
        self.session.disconnected();
        if self.first.is_some() {
            return Err(Error::NotReached(format!("{}: {reason}", self.address.url())));
        }
        tracing::debug!("the connection to {} is lost: {reason}", self.address.url());
        self.wait(reason);
        Ok(())
    }

    /// Tries again after a while.
    fn wait(&mut self, reason: String) {
        let wait = full_jitter(self.back_off.next_wait(), &*self.random);
        let failures = self.back_off.failures();
        self.state.send_replace(ConnectionState::Disconnected { reason, failures });
        self.link = Link::Waiting(Box::pin(tokio::time::sleep(wait)));
    }

    /// Writes as much as the server takes.
    fn poll_write(&mut self, context: &mut Context<'_>, now: Instant) -> Result<bool> {
        let Link::Open(socket) = &mut self.link else { return Ok(false) };
        let mut socket = Pin::new(&mut **socket);
        let mut has_moved = false;
        while let Poll::Ready(Ok(())) = socket.as_mut().poll_ready(context) {
            let Some(frame) = self.session.next_frame(now) else { break };
            has_moved = true;
            if let Err(error) = socket.as_mut().start_send(Message::Text(frame)) {
                self.lost(error.to_string())?;
                return Ok(true);
            }
        }
        // What goes wrong in there goes wrong for who reads, too.
        let _ = socket.poll_flush(context);
        Ok(has_moved)
    }
}

fn open(address: &Arc<ServerAddress>) -> Opening {
    let address = Arc::clone(address);
    Box::pin(async move { open_websocket(&address).await })
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Whether a connection that is closed with this code is opened again: as `docs/protocol.md` says,
/// and never after a code that it does not know.
const fn may_come_back(code: u16, has_token: bool) -> bool {
    match code {
        // About to stop; a frame too large; too slow; no pong.
        1001 | 1009 | 4008 | 4009 => true,
        // Not authenticated: only a token helps.
        4401 => has_token,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the table of close codes says, line by line.
    #[test]
    fn comes_back_where_the_protocol_says_so() {
        let protocol = include_str!("../../../docs/protocol.md");
        let (_, table) = protocol.split_once("### Close codes").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| ")).map_while(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (code, _, again) = (cells.next()?, cells.next()?, cells.next()?);
            if code == "code" { Some(None) } else { Some(Some((code.parse().ok()?, again))) }
        });
        let rows: Vec<(u16, &str)> = rows.flatten().collect();
        assert_eq!(rows.len(), 7, "{rows:?}");
        for (code, again) in rows {
            assert_eq!(may_come_back(code, true), again.starts_with("yes"), "{code}");
        }
        assert!(!may_come_back(4401, false));
        for unknown in [1000, 1003, 1011, 4000, 4999] {
            assert!(!may_come_back(unknown, true), "{unknown}");
        }
    }
}
