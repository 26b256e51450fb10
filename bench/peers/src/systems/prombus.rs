//! Prombus over WebSocket: one text frame per publish and per acknowledgement.

use std::net::SocketAddr;
use std::ops::Range;

use futures_util::{FutureExt, SinkExt, StreamExt};
use memchr::memmem;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::{GROUP, TOPIC};
use crate::client::{Publisher, Result, Subscriber};
use crate::event;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const READ_BYTES: usize = 32 << 10;
const OK: &[u8] = br#"{"op":"OK""#;
const EVENT: &[u8] = br#"{"op":"EVENT""#;

async fn connect(address: SocketAddr) -> Result<Socket> {
    // The library clears the buffer before every read, so it should not be much larger than a read.
    let config = WebSocketConfig::default().read_buffer_size(READ_BYTES);
    let url = format!("ws://{address}/");
    let (socket, _) = connect_async_with_config(url, Some(config), true).await?;
    Ok(socket)
}

/// Returns the next text message. The library answers pings.
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

pub(crate) struct PrombusPublisher {
    socket: Socket,
    /// Events per publish, the same for all unconfirmed ones.
    batch: u64,
}

impl PrombusPublisher {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self { socket: connect(address).await?, batch: 1 })
    }
}

impl Publisher for PrombusPublisher {
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

    async fn confirmed(&mut self) -> Result<u64> {
        expect_ok(&next_text(&mut self.socket).await?)?;
        let mut events = self.batch;
        while let Some(frame) = next_text(&mut self.socket).now_or_never() {
            expect_ok(&frame?)?;
            events += self.batch;
        }
        Ok(events)
    }
}

pub(crate) struct PrombusSubscriber {
    socket: Socket,
    /// Unacknowledged EVENT frames, with the positions of their ids.
    events: Vec<(Bytes, Range<usize>)>,
    unconfirmed_acks: u64,
}

impl PrombusSubscriber {
    /// Subscribes with at most `window` leased events.
    pub(crate) async fn connect(address: SocketAddr, window: u64) -> Result<Self> {
        let mut socket = connect(address).await?;
        let subscribe = format!(
            r#"{{"op":"SUBSCRIBE","topic":"{TOPIC}","group":"{GROUP}","opts":{{"from":"earliest","maxInFlight":{window}}}}}"#
        );
        socket.send(Message::text(subscribe)).await?;
        expect_ok(&next_text(&mut socket).await?)?;
        Ok(Self { socket, events: Vec::new(), unconfirmed_acks: 0 })
    }

    fn take(&mut self, frame: Bytes, numbers: &mut Vec<u64>) -> Result<()> {
        if !frame.starts_with(EVENT) {
            self.unconfirmed_acks -= 1;
            return expect_ok(&frame);
        }
        let (id, number) = id_and_number(&frame)
            .ok_or_else(|| format!("not an event: {}", String::from_utf8_lossy(&frame)))?;
        self.events.push((frame, id));
        numbers.push(number);
        Ok(())
    }
}

/// Returns the position of the event's id in its frame, and the event's number.
fn id_and_number(frame: &[u8]) -> Option<(Range<usize>, u64)> {
    const ID: &[u8] = br#""id":""#;
    let start = memmem::find(frame, ID)? + ID.len();
    let end = start + memchr::memchr(b'"', &frame[start..])?;
    Some((start..end, event::number_in(frame)?))
}

impl Subscriber for PrombusSubscriber {
    async fn receive(&mut self, numbers: &mut Vec<u64>) -> Result<()> {
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
            self.unconfirmed_acks += 1;
        }
        Ok(self.socket.flush().await?)
    }

    async fn wait_for_acks(&mut self) -> Result<()> {
        let mut ignored = Vec::new();
        while self.unconfirmed_acks > 0 {
            let frame = next_text(&mut self.socket).await?;
            self.take(frame, &mut ignored)?;
        }
        Ok(())
    }
}
