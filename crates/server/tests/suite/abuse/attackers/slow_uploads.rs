//! Uploads NDJSON a line at a time, which keeps the room of a whole request.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::Attacker;
use crate::abuse::connection::tcp;
use crate::abuse::server::ATTACKER;

pub(super) async fn upload(attacker: Attacker) {
    attacker
        .repeat(16, Duration::from_millis(200), |attacker, _| async move {
            let http = attacker.target.http;
            let mut stream = tcp(attacker.from, http).await?;
            let head = format!(
                "POST /publish/evil.slow HTTP/1.1\r\nhost: {http}\r\nauthorization: Bearer {ATTACKER}\r\n\
                 content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
                32 << 20
            );
            stream.write_all(head.as_bytes()).await?;
            loop {
                stream.write_all(b"{\"payload\":1}\n").await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
}
