//! Clients without a token: they hold places, send requests whose answers they never read, and fill buffers.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Error;

use super::Attacker;
use crate::abuse::connection::{tcp, websocket};

/// Waits until the server closes the connection.
async fn until_closed(stream: &mut tokio::net::TcpStream) -> Result<(), Error> {
    let mut byte = [0];
    while stream.read(&mut byte).await? > 0 {}
    Err(Error::ConnectionClosed)
}

/// Connects and sends nothing, again whenever the server hangs up.
pub(super) async fn stay_idle(attacker: Attacker) {
    attacker
        .repeat(400, Duration::from_millis(200), |attacker, number| async move {
            let port = if number % 2 == 0 { attacker.target.ws } else { attacker.target.http };
            until_closed(&mut tcp(attacker.from, port).await?).await
        })
        .await;
}

/// Asks for `/healthz` many times, and reads no answer.
pub(super) async fn pipeline(attacker: Attacker) {
    attacker
        .repeat(200, Duration::from_millis(200), |attacker, _| async move {
            let http = attacker.target.http;
            let mut stream = tcp(attacker.from, http).await?;
            let requests = format!("GET /healthz HTTP/1.1\r\nhost: {http}\r\n\r\n").repeat(100);
            // Blocks once the server no longer reads, until it hangs up.
            loop {
                stream.write_all(requests.as_bytes()).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
}

/// Sends the first megabyte of a frame before AUTH, and then nothing.
pub(super) async fn send_unfinished_frames(attacker: Attacker) {
    attacker
        .repeat(60, Duration::from_millis(500), |attacker, _| async move {
            let socket = websocket(attacker.from, attacker.target.ws).await?;
            let mut stream = socket.into_inner();
            // A masked text frame of 1,048,576 bytes whose mask is zero.
            let head = [0x81, 0xFF, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0];
            stream.write_all(&head).await?;
            stream.write_all(&vec![b' '; (1 << 20) - 1]).await?;
            until_closed(&mut stream).await
        })
        .await;
}
