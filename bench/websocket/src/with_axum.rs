//! axum's own WebSocket: tungstenite on a connection that hyper has upgraded.

use axum::{
    Error, Router,
    extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade},
    routing::get,
};
use bytes::BytesMut;
use futures_util::{FutureExt, SinkExt, StreamExt};

use crate::work::{ANSWER, Ask, GROUP, MAX_BURST, MAX_MESSAGE, ask, cut, event};

/// A server of one path. `room` is the size of the read buffer.
pub fn router(room: usize) -> Router {
    let upgrade = move |upgrade: WebSocketUpgrade| async move {
        upgrade
            .read_buffer_size(room)
            .max_message_size(MAX_MESSAGE)
            .max_frame_size(MAX_MESSAGE)
            .on_upgrade(|socket| async {
                // The client hangs up when it has what it wants.
                let _ = session(socket).await;
            })
    };
    Router::new().route("/ws", get(upgrade))
}

/// axum has no way past the check that the text is text.
fn text(buffer: &mut BytesMut, text: &str) -> Message {
    Message::Text(Utf8Bytes::try_from(cut(buffer, text)).expect("it is text"))
}

async fn session(mut socket: WebSocket) -> Result<(), Error> {
    let mut buffer = BytesMut::new();
    let event = event();
    while let Some(message) = socket.next().await {
        let mut message = Some(message?);
        let mut burst = 0;
        while let Some(received) = message.take() {
            burst += 1;
            if let Message::Text(received) = received {
                match ask(received.as_bytes()) {
                    Ask::Answer => socket.feed(text(&mut buffer, ANSWER)).await?,
                    Ask::Events(number) => {
                        for sent in 1..=number {
                            socket.feed(text(&mut buffer, &event)).await?;
                            if sent % GROUP == 0 {
                                socket.flush().await?;
                            }
                        }
                    }
                }
            }
            // Reading does not write what is fed, so each message is done with before the next is read and
            // the read buffer is used again.
            if burst < MAX_BURST {
                message = socket.next().now_or_never().flatten().transpose()?;
            }
        }
        socket.flush().await?;
    }
    Ok(())
}
