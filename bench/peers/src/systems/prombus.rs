//! Prombus over WebSocket: one text frame for each publish and for each acknowledgement.

use std::net::SocketAddr;
use std::ops::Range;

use futures_util::{FutureExt, SinkExt, StreamExt};
use memchr::memmem;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::{GROUP, TOPIC};
use crate::event;
use crate::session::{Publisher, Result, Subscriber};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const READ_BYTES: usize = 32 << 10;
const OK: &[u8] = br#"{"op":"OK""#;
const EVENT: &[u8] = br#"{"op":"EVENT""#;

async fn connected(address: SocketAddr) -> Result<Socket> {
    // What is read at a time is cleared each time: enough for what comes at once, not ten times as much.
    let config = WebSocketConfig::default().read_buffer_size(READ_BYTES);
    let url = format!("ws://{address}/");
    let (socket, _) = connect_async_with_config(url, Some(config), true).await?;
    Ok(socket)
}

/// The text of the next frame; pings are answered by the library.
async fn next_text(socket: &mut Socket) -> Result<Bytes> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.into()),
            Some(Ok(Message::Close(reason))) => return Err(format!("closed: {reason:?}").into()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.into()),
            None => return Err("the server closed the connection".into()),
        }
    }
}

fn expect_ok(frame: &[u8]) -> Result<()> {
    if frame.starts_with(OK) {
        return Ok(());
    }
    Err(format!("not OK: {}", String::from_utf8_lossy(frame)).into())
}

/// Publishes on one connection.
pub(crate) struct Publishing {
    socket: Socket,
    /// Events in each publish that is not answered. All have the same number of them.
    batch: u64,
}

impl Publishing {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self { socket: connected(address).await?, batch: 1 })
    }
}

impl Publisher for Publishing {
    async fn publish(&mut self, numbers: Range<u64>) -> Result<()> {
        self.batch = numbers.end - numbers.start;
        let mut frame =
            String::with_capacity(usize::try_from(self.batch)? * (event::BYTES + 16) + 64);
        frame.push_str(r#"{"op":"PUBLISH","topic":""#);
        frame.push_str(TOPIC);
        if self.batch == 1 {
            frame.push_str(r#"","payload":"#);
            event::write(numbers.start, &mut frame);
            frame.push('}');
        } else {
            frame.push_str(r#"","events":["#);
            for number in numbers.clone() {
                let comma = if number == numbers.start { "" } else { "," };
                frame.push_str(comma);
                frame.push_str(r#"{"payload":"#);
                event::write(number, &mut frame);
                frame.push('}');
            }
            frame.push_str("]}");
        }
        Ok(self.socket.feed(Message::text(frame)).await?)
    }

    async fn flush(&mut self) -> Result<()> {
        Ok(self.socket.flush().await?)
    }

    async fn answered(&mut self) -> Result<u64> {
        expect_ok(&next_text(&mut self.socket).await?)?;
        let mut events = self.batch;
        while let Some(frame) = next_text(&mut self.socket).now_or_never() {
            expect_ok(&frame?)?;
            events += self.batch;
        }
        Ok(events)
    }
}

/// Consumes on one connection.
pub(crate) struct Subscribing {
    socket: Socket,
    /// Frames of events that are delivered and not acknowledged, and where their ids are.
    events: Vec<(Bytes, Range<usize>)>,
    /// Acknowledgements that are not answered.
    unanswered: u64,
}

impl Subscribing {
    /// With at most `window` events on lease.
    pub(crate) async fn connect(address: SocketAddr, window: u64) -> Result<Self> {
        let mut socket = connected(address).await?;
        let subscribe = format!(
            r#"{{"op":"SUBSCRIBE","topic":"{TOPIC}","group":"{GROUP}","opts":{{"from":"earliest","maxInFlight":{window}}}}}"#
        );
        socket.send(Message::text(subscribe)).await?;
        expect_ok(&next_text(&mut socket).await?)?;
        Ok(Self { socket, events: Vec::new(), unanswered: 0 })
    }

    fn take(&mut self, frame: Bytes, numbers: &mut Vec<u64>) -> Result<()> {
        if !frame.starts_with(EVENT) {
            self.unanswered -= 1;
            return expect_ok(&frame);
        }
        let (id, number) = id_and_number(&frame)
            .ok_or_else(|| format!("not an event: {}", String::from_utf8_lossy(&frame)))?;
        self.events.push((frame, id));
        numbers.push(number);
        Ok(())
    }
}

/// Where the id of an event is in its frame, and the number of the event.
fn id_and_number(frame: &[u8]) -> Option<(Range<usize>, u64)> {
    const ID: &[u8] = br#""id":""#;
    let start = memmem::find(frame, ID)? + ID.len();
    let end = start + memchr::memchr(b'"', &frame[start..])?;
    Some((start..end, event::number_in(frame)?))
}

impl Subscriber for Subscribing {
    async fn delivered(&mut self, numbers: &mut Vec<u64>) -> Result<()> {
        while self.events.is_empty() {
            let frame = next_text(&mut self.socket).await?;
            self.take(frame, numbers)?;
        }
        while let Some(frame) = next_text(&mut self.socket).now_or_never() {
            self.take(frame?, numbers)?;
        }
        Ok(())
    }

    async fn acknowledge(&mut self) -> Result<()> {
        let ack = format!(r#"{{"op":"ACK","topic":"{TOPIC}","group":"{GROUP}","id":""#);
        for (event, id) in self.events.drain(..) {
            let id = std::str::from_utf8(&event[id])?;
            self.socket.feed(Message::text([&ack, id, "\"}"].concat())).await?;
            self.unanswered += 1;
        }
        Ok(self.socket.flush().await?)
    }

    async fn settled(&mut self) -> Result<()> {
        let mut too_late = Vec::new();
        while self.unanswered > 0 {
            let frame = next_text(&mut self.socket).await?;
            self.take(frame, &mut too_late)?;
        }
        Ok(())
    }
}
