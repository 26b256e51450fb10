//! Guesses tokens, over WebSocket and over HTTP.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Attacker;
use crate::abuse::connection::{receive, send, tcp, websocket};

/// Frames or requests that are sent before the first answer is read.
const AT_ONCE: usize = 100;

pub(super) async fn guess(attacker: Attacker) {
    attacker
        .repeat(8, Duration::from_millis(50), |attacker, number| async move {
            if number % 2 == 0 {
                let mut socket = websocket(attacker.from, attacker.target.ws).await?;
                for guess in 0..AT_ONCE {
                    send(&mut socket, &json!({"op": "AUTH", "token": format!("guess {guess}")}))
                        .await?;
                }
                for _ in 0..AT_ONCE {
                    receive(&mut socket).await?;
                }
            } else {
                let http = attacker.target.http;
                let mut stream = tcp(attacker.from, http).await?;
                let request = format!(
                    "GET /topics HTTP/1.1\r\nhost: {http}\r\nauthorization: Bearer guess\r\n\r\n"
                );
                stream.write_all(request.repeat(AT_ONCE).as_bytes()).await?;
                let mut answers = vec![0; 8 << 10];
                stream.read_buf(&mut answers).await?;
            }
            Ok(())
        })
        .await;
}
