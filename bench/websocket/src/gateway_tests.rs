//! That the session does what the decision record says of it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{
    accept,
    client::{frame, header},
    gateway::{End, Patience, run},
    work::{ANSWER, MAX_MESSAGE},
};

struct Peer {
    io: DuplexStream,
    outbox: mpsc::Sender<Bytes>,
    session: JoinHandle<End>,
}

async fn start(room: usize) -> Peer {
    let (io, server) = duplex(room);
    let (outbox, deliveries) = mpsc::channel(1000);
    let config = Some(accept::config(16 * 1024));
    let socket = WebSocketStream::from_raw_socket(server, Role::Server, config).await;
    let session = tokio::spawn(run(socket, deliveries, Patience::default()));
    Peer { io, outbox, session }
}

async fn read(io: &mut DuplexStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    io.read_exact(&mut bytes).await.unwrap();
    bytes
}

async fn read_close(io: &mut DuplexStream) -> (u16, String) {
    let head = read(io, 4).await;
    assert_eq!(head[0], 0x88, "a close frame");
    let reason = read(io, usize::from(head[1]) - 2).await;
    (u16::from_be_bytes([head[2], head[3]]), String::from_utf8(reason).unwrap())
}

#[tokio::test]
async fn a_frame_that_came_in_pieces_is_answered() {
    let mut peer = start(1 << 20).await;
    let frame = frame(0x81, b"{}");
    let (last, others) = frame.split_last().unwrap();
    for byte in others {
        peer.io.write_all(&[*byte]).await.unwrap();
        // The read is dropped by the delivery.
        peer.outbox.send(Bytes::from_static(b"!")).await.unwrap();
        assert_eq!(read(&mut peer.io, 3).await, [0x81, 1, b'!']);
    }
    peer.io.write_all(&[*last]).await.unwrap();
    let answer = read(&mut peer.io, 2 + ANSWER.len()).await;
    assert_eq!(&answer[2..], ANSWER.as_bytes());
}

#[tokio::test]
async fn a_message_above_the_limit_is_closed_with_1009() {
    let mut peer = start(1 << 20).await;
    peer.io.write_all(&header(0x81, MAX_MESSAGE as u64 + 1, true)).await.unwrap();
    peer.io.write_all(&[0; 4]).await.unwrap();
    assert_eq!(read_close(&mut peer.io).await.0, 1009);

    let mut peer = start(4 << 20).await;
    peer.io.write_all(&frame(0x01, &vec![b'x'; MAX_MESSAGE])).await.unwrap();
    peer.io.write_all(&frame(0x80, b"x")).await.unwrap();
    assert_eq!(read_close(&mut peer.io).await.0, 1009);
}

#[tokio::test]
async fn text_that_is_none_is_closed_with_1007() {
    let mut peer = start(1 << 20).await;
    peer.io.write_all(&frame(0x81, b"\xff")).await.unwrap();
    assert_eq!(read_close(&mut peer.io).await.0, 1007);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_closed_with_4008() {
    let mut peer = start(512).await;
    for _ in 0..100 {
        peer.outbox.send(Bytes::from(vec![b'x'; 100])).await.unwrap();
    }
    let end = (&mut peer.session).await.unwrap();
    assert_eq!(end, End::Close { code: 4008, reason: "slow consumer" });
}

#[tokio::test(start_paused = true)]
async fn a_stuck_peer_is_still_heard() {
    let mut peer = start(512).await;
    for _ in 0..100 {
        peer.outbox.send(Bytes::from(vec![b'x'; 100])).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    peer.io.write_all(&frame(0x82, b"binary")).await.unwrap();
    let end = (&mut peer.session).await.unwrap();
    assert_eq!(end, End::Close { code: 1003, reason: "text frames only" });
}

#[tokio::test(start_paused = true)]
async fn silence_is_closed_and_a_pong_is_not_silence() {
    let mut peer = start(512).await;
    for _ in 0..3 {
        assert_eq!(read(&mut peer.io, 2).await, [0x89, 0], "a ping");
        peer.io.write_all(&frame(0x8a, b"")).await.unwrap();
    }
    assert_eq!(read(&mut peer.io, 2).await, [0x89, 0], "a ping");
    assert_eq!(read_close(&mut peer.io).await, (4001, "no pong".into()));
}

#[tokio::test(start_paused = true)]
async fn pongs_that_nobody_reads_are_bounded() {
    let mut peer = start(512).await;
    let ping = frame(0x89, &[b'x'; 125]);
    for _ in 0..2 * accept::MAX_WRITE_BUFFER / 127 {
        peer.io.write_all(&ping).await.unwrap();
    }
    let mut pongs = 0;
    let mut buffer = [0; 512];
    while let Ok(read) = timeout(Duration::from_secs(1), peer.io.read(&mut buffer)).await {
        pongs += read.unwrap();
    }
    let most = accept::MAX_WRITE_BUFFER + 2 * 512;
    assert!((1..most).contains(&pongs), "{pongs} bytes of pongs");
}

#[tokio::test]
async fn pings_and_closes_are_answered() {
    let (io, server) = duplex(1024);
    let (_outbox, deliveries) = mpsc::channel(1);
    let socket = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
    let session = tokio::spawn(run(socket, deliveries, Patience::default()));
    let mut client = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    client.send(Message::Ping(Bytes::from_static(b"7"))).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong(Bytes::from_static(b"7")));
    client.close(None).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Close(None));
    assert_eq!(session.await.unwrap(), End::Gone);
}

#[tokio::test]
async fn other_pages_and_other_paths_are_refused() {
    for (path, origin, status) in [
        ("/ws", "http://elsewhere", "403"),
        ("/other", "http://bus:8090", "404"),
        ("/ws", "http://bus:8090", "101"),
    ] {
        let (mut io, server) = duplex(4096);
        let accepted = tokio::spawn(accept::on_stream(server, accept::config(4096)));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: bus:8090\r\nOrigin: {origin}\r\nUpgrade: websocket\r\n\
             Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        io.write_all(request.as_bytes()).await.unwrap();
        let answer = read(&mut io, 12).await;
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
        assert_eq!(accepted.await.unwrap().is_ok(), status == "101");
    }
}
