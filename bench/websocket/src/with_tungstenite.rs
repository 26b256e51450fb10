//! tokio-tungstenite on any stream.

use bytes::BytesMut;
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        protocol::frame::{
            Frame,
            coding::{Data, OpCode},
        },
    },
};

use crate::work::{ANSWER, Ask, GROUP, MAX_BURST, ask, cut, event};

/// A text frame of bytes that are known to be text.
fn text(buffer: &mut BytesMut, text: &str) -> Message {
    Message::Frame(Frame::message(cut(buffer, text), OpCode::Data(Data::Text), true))
}

pub async fn session<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<S>,
) -> Result<(), Error> {
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
