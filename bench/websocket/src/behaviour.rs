//! What each library makes of input that matters to a server: pieces, limits and broken frames.

use std::{fmt::Debug, time::Duration};

use fastwebsockets::{FragmentCollector, WebSocket};
use futures_util::StreamExt;
use tokio::{
    io::{AsyncWriteExt, DuplexStream, duplex},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use crate::{
    accept,
    client::{frame, header},
    with_tokio_websockets,
    work::MAX_MESSAGE,
};

/// Long enough for everything that is there to be read.
const PAUSE: Duration = Duration::from_millis(50);

/// Something that messages are read from.
trait Reader {
    async fn read(&mut self) -> String;
}

fn said<E: Debug>(read: Result<(usize, &str), E>) -> String {
    match read {
        Ok((length, kind)) => format!("{kind} of {length} bytes"),
        Err(error) => format!("error {error:?}"),
    }
}

impl Reader for WebSocketStream<DuplexStream> {
    async fn read(&mut self) -> String {
        self.next()
            .await
            .map_or("end".into(), |message| said(message.map(|m| (m.len(), "message"))))
    }
}

impl Reader for tokio_websockets::WebSocketStream<DuplexStream> {
    async fn read(&mut self) -> String {
        let message = self.next().await;
        message.map_or("end".into(), |m| said(m.map(|m| (m.as_payload().len(), "message"))))
    }
}

impl Reader for FragmentCollector<DuplexStream> {
    async fn read(&mut self) -> String {
        said(self.read_frame().await.map(|frame| (frame.payload.len(), "message")))
    }
}

/// Hands in the pieces one by one and drops a read after each, as another branch of a `select!` would.
async fn see(mut peer: DuplexStream, mut reader: impl Reader, pieces: &[Vec<u8>]) -> String {
    let mut seen = None;
    for piece in pieces {
        peer.write_all(piece).await.expect("there is room");
        if let Ok(read) = timeout(PAUSE, reader.read()).await {
            seen.get_or_insert(read);
        }
    }
    seen.unwrap_or_else(|| "nothing, waits".into())
}

async fn all(title: &str, pieces: &[Vec<u8>]) {
    println!("\n{title}");
    let room = 8 * MAX_MESSAGE;
    let (peer, io) = duplex(room);
    let config = Some(accept::config(16 * 1024));
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, config).await;
    println!("  tungstenite       {}", see(peer, socket, pieces).await);
    let (peer, io) = duplex(room);
    let socket = with_tokio_websockets::serve(io);
    println!("  tokio-websockets  {}", see(peer, socket, pieces).await);
    let (peer, io) = duplex(room);
    let mut socket = WebSocket::after_handshake(io, fastwebsockets::Role::Server);
    socket.set_max_message_size(MAX_MESSAGE);
    println!("  fastwebsockets    {}", see(peer, FragmentCollector::new(socket), pieces).await);
}

pub fn run() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let text = frame(0x81, &[b'x'; 300]);
        let (head, rest) = text.split_at(3);
        all("a frame of 300 bytes, cut in its head", &[head.to_vec(), rest.to_vec()]).await;
        let (head, rest) = text.split_at(100);
        all("a frame of 300 bytes, cut in its payload", &[head.to_vec(), rest.to_vec()]).await;
        let half = vec![b'x'; MAX_MESSAGE - 1];
        let fragments = [0x01, 0x00, 0x00, 0x80].map(|first| frame(first, &half));
        all("four fragments of the limit each", &fragments).await;
        let mut large = header(0x81, 10 * MAX_MESSAGE as u64, true);
        large.extend([0; 4]);
        all("the head of a frame of ten times the limit", &[large]).await;
        let mut bare = header(0x81, 2, false);
        bare.extend(b"{}");
        all("a client's frame without a mask", &[bare]).await;
        all("text that is not UTF-8", &[frame(0x81, b"\xff\xfe")]).await;
    });
}
