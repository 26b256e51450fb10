//! tokio-websockets on any stream.

use bytes::BytesMut;
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_websockets::{Config, Error, Limits, Message, ServerBuilder, WebSocketStream};

use crate::work::{ANSWER, Ask, GROUP, MAX_BURST, MAX_MESSAGE, ask, cut, event};

/// A session on a stream whose handshake is done.
pub fn serve<S: AsyncRead + AsyncWrite + Unpin>(io: S) -> WebSocketStream<S> {
    ServerBuilder::new()
        .limits(Limits::default().max_payload_len(Some(MAX_MESSAGE)))
        .config(Config::default().flush_threshold(usize::MAX))
        .serve(io)
}

pub async fn session<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<S>,
) -> Result<(), Error> {
    let mut burst = Vec::new();
    let mut buffer = BytesMut::new();
    let event = event();
    while let Some(message) = socket.next().await {
        burst.push(message?);
        while burst.len() < MAX_BURST
            && let Some(Some(message)) = socket.next().now_or_never()
        {
            burst.push(message?);
        }
        for message in burst.drain(..).filter(Message::is_text) {
            match ask(message.as_payload()) {
                Ask::Answer => socket.feed(Message::text(cut(&mut buffer, ANSWER))).await?,
                Ask::Events(number) => {
                    for sent in 1..=number {
                        socket.feed(Message::text(cut(&mut buffer, &event))).await?;
                        if sent % GROUP == 0 {
                            socket.flush().await?;
                        }
                    }
                }
            }
        }
        socket.flush().await?;
    }
    Ok(())
}
