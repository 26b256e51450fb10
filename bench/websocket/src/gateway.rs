//! A session as the gateway needs it: bursts are answered in one write, deliveries come from a bounded
//! outbox, a peer that does not read is closed with a code of its own, and silence is noticed.

use std::{future::poll_fn, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    time::{Instant, interval_at, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        protocol::{
            CloseFrame,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

use crate::work::{ANSWER, Ask, GROUP, MAX_BURST, ask, cut, event};

/// A peer that has taken nothing for so long is closed.
#[derive(Clone, Copy)]
pub struct Patience {
    pub ping_every: Duration,
    pub pong_within: Duration,
    pub write_within: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(25),
            pong_within: Duration::from_secs(10),
            write_within: Duration::from_secs(10),
        }
    }
}

/// Why a session ends.
#[derive(Debug, PartialEq)]
pub enum End {
    /// The peer closed, or is gone.
    Gone,
    /// We close, and say why.
    Close { code: u16, reason: &'static str },
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(_) => Self::Close { code: 1009, reason: "frame above the limit" },
            Error::Utf8(_) => Self::Close { code: 1007, reason: "text is not UTF-8" },
            Error::Protocol(_) => Self::Close { code: 1002, reason: "protocol error" },
            Error::WriteBufferFull(_) => Self::Close { code: 4008, reason: "slow consumer" },
            _ => Self::Gone,
        }
    }
}

/// What a turn of the session is about.
enum Turn {
    Flushed(Result<(), Error>),
    Received(Option<Result<Message, Error>>),
}

struct Session<S> {
    socket: WebSocketStream<S>,
    buffer: BytesMut,
    event: String,
    /// Since when something waits to be written.
    unflushed: Option<Instant>,
    /// When a pong is missed.
    pong_due: Option<Instant>,
    patience: Patience,
}

/// Runs a session to its end. What comes out of `outbox` is sent as text.
pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    mut outbox: mpsc::Receiver<Bytes>,
    patience: Patience,
) -> End {
    let mut session = Session {
        socket,
        buffer: BytesMut::new(),
        event: event(),
        unflushed: None,
        pong_due: None,
        patience,
    };
    let end = session.turns(&mut outbox).await;
    if let End::Close { code, reason } = end {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
        // A peer that does not read does not get it, and is not waited for.
        let _ = timeout(Duration::from_secs(1), session.socket.close(Some(frame))).await;
    }
    end
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    async fn turns(&mut self, outbox: &mut mpsc::Receiver<Bytes>) -> End {
        let every = self.patience.ping_every;
        let mut ping = interval_at(Instant::now() + every, every);
        let mut deliveries = Vec::new();
        loop {
            let stuck = self.unflushed.map(|since| since + self.patience.write_within);
            let (pong_due, blocked) = (self.pong_due, self.unflushed.is_some());
            let result = tokio::select! {
                turn = self.turn() => match turn {
                    Turn::Flushed(done) => {
                        self.unflushed = None;
                        done.map_err(End::from)
                    }
                    Turn::Received(None) => Err(End::Gone),
                    Turn::Received(Some(first)) => self.burst(first).await,
                },
                // Delivery stops while the peer has not taken what was written.
                received = outbox.recv_many(&mut deliveries, GROUP), if !blocked => match received {
                    0 => Err(End::Close { code: 1001, reason: "shutting down" }),
                    _ => self.deliver(&mut deliveries).await,
                },
                _ = ping.tick() => self.ping().await,
                () = at(pong_due) => Err(End::Close { code: 4001, reason: "no pong" }),
                () = at(stuck) => Err(End::Close { code: 4008, reason: "slow consumer" }),
            };
            if let Err(end) = result {
                return end;
            }
        }
    }

    /// Goes on writing what waits, and reads. Both may be dropped at any time without a loss.
    async fn turn(&mut self) -> Turn {
        poll_fn(|context| {
            if self.unflushed.is_some()
                && let Poll::Ready(done) = self.socket.poll_flush_unpin(context)
            {
                return Poll::Ready(Turn::Flushed(done));
            }
            self.socket.poll_next_unpin(context).map(Turn::Received)
        })
        .await
    }

    /// Handles all that has already arrived; the answers leave together.
    async fn burst(&mut self, first: Result<Message, Error>) -> Result<(), End> {
        let mut next = Some(first?);
        for _ in 0..MAX_BURST {
            let Some(message) = next.take() else { break };
            self.handle(message).await?;
            // Each message is done with before the next is read, so that the read buffer is used again.
            // Reading does not write what is fed.
            next = self.socket.next().now_or_never().flatten().transpose()?;
        }
        if let Some(message) = next {
            self.handle(message).await?;
        }
        self.flush()
    }

    async fn handle(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Text(text) => match ask(text.as_bytes()) {
                Ask::Answer => {
                    let answer = cut(&mut self.buffer, ANSWER);
                    self.feed(answer).await?;
                }
                Ask::Events(number) => {
                    for sent in 1..=number {
                        let event = cut(&mut self.buffer, &self.event);
                        self.feed(event).await?;
                        if sent % GROUP == 0 {
                            self.socket.flush().await?;
                        }
                    }
                }
            },
            Message::Binary(_) => {
                return Err(End::Close { code: 1003, reason: "text frames only" });
            }
            Message::Pong(_) => self.pong_due = None,
            // Both are answered by the library, with the next flush.
            Message::Ping(_) | Message::Close(_) => {}
            Message::Frame(_) => unreachable!("is never read"),
        }
        Ok(())
    }

    async fn deliver(&mut self, deliveries: &mut Vec<Bytes>) -> Result<(), End> {
        for text in deliveries.drain(..) {
            self.feed(text).await?;
        }
        self.flush()
    }

    async fn ping(&mut self) -> Result<(), End> {
        self.socket.feed(Message::Ping(Bytes::new())).await?;
        self.pong_due.get_or_insert(Instant::now() + self.patience.pong_within);
        self.flush()
    }

    /// Queues a frame; waits only where the write buffer is full and the peer takes nothing.
    async fn feed(&mut self, text: Bytes) -> Result<(), End> {
        // The clock is asked only where there is something to wait for.
        if let Some(ready) = self.ready().now_or_never() {
            ready?;
        } else {
            let within = self.patience.write_within;
            match timeout(within, self.ready()).await {
                Ok(ready) => ready?,
                Err(_) => return Err(End::Close { code: 4008, reason: "slow consumer" }),
            }
        }
        // Our own JSON is not checked for being UTF-8 again.
        let frame = Message::Frame(Frame::message(text, OpCode::Data(Data::Text), true));
        Ok(self.socket.start_send_unpin(frame)?)
    }

    async fn ready(&mut self) -> Result<(), Error> {
        poll_fn(|context| self.socket.poll_ready_unpin(context)).await
    }

    /// Writes what the socket takes now. The rest is written by later turns.
    fn flush(&mut self) -> Result<(), End> {
        match self.socket.flush().now_or_never() {
            Some(done) => {
                self.unflushed = None;
                done?;
            }
            None => {
                self.unflushed.get_or_insert_with(Instant::now);
            }
        }
        Ok(())
    }
}

/// Never, if there is no such time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
