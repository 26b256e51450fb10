//! Connections from a chosen address: on loopback, all of 127.0.0.0/8 may be used.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

pub(super) type Socket = WebSocketStream<TcpStream>;

/// The address of everything well-behaved.
pub(super) const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);

pub(super) async fn tcp(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // Attackers that do not read fill the server's buffers rather than their own.
    socket.set_recv_buffer_size(16 << 10)?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(to).await
}

pub(super) async fn websocket(from: Ipv4Addr, to: SocketAddr) -> Result<Socket, Error> {
    let stream = tcp(from, to).await?;
    stream.set_nodelay(true)?;
    Ok(client_async(format!("ws://{to}/"), stream).await?.0)
}

/// Opens a connection that has authenticated with `token`.
pub(super) async fn authenticated(
    from: Ipv4Addr,
    to: SocketAddr,
    token: &str,
) -> Result<Socket, Error> {
    let mut socket = websocket(from, to).await?;
    ask(&mut socket, &json!({"op": "AUTH", "token": token})).await?;
    Ok(socket)
}

pub(super) async fn send(socket: &mut Socket, frame: &Value) -> Result<(), Error> {
    socket.send(Message::text(frame.to_string())).await
}

/// Returns the next text; an error if the connection ends.
pub(super) async fn receive(socket: &mut Socket) -> Result<String, Error> {
    loop {
        match socket.next().await.ok_or(Error::ConnectionClosed)?? {
            Message::Text(text) => return Ok(text.to_string()),
            Message::Close(_) => return Err(Error::ConnectionClosed),
            _ => {}
        }
    }
}

/// Sends a frame and returns its answer. Passes over events.
pub(super) async fn ask(socket: &mut Socket, frame: &Value) -> Result<Value, Error> {
    send(socket, frame).await?;
    loop {
        let text = receive(socket).await?;
        if !text.starts_with(r#"{"op":"EVENT""#) {
            return Ok(serde_json::from_str(&text).expect("the server sends JSON"));
        }
    }
}
