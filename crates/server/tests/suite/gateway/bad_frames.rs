//! Malformed frames are refused without closing the connection, where possible.

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::gateway::client::parsed;
use crate::gateway::running::started;

#[tokio::test]
async fn a_bad_frame_does_not_close_the_connection() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    for (frame, code) in [
        ("[]", "bad_frame"),
        ("{}", "bad_frame"),
        (r#"{"op":1}"#, "bad_frame"),
        (r#"{"op":"AUTH","token":5}"#, "bad_frame"),
        (r#"{"op":"ACK","topic":"t","group":"g"}"#, "bad_frame"),
        (r#"{"op":"ACK","topic":"t","group":"g","id":"a","ids":["a"]}"#, "bad_frame"),
        (r#"{"op":"NACK","topic":"t","group":"g","id":"a","delay_ms":-1}"#, "bad_frame"),
        (r#"{"op":"MODACK","topic":"t","group":"g","id":"a"}"#, "bad_frame"),
        (r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"x"}}"#, "bad_frame"),
        (r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"ts"}}"#, "bad_frame"),
        (r#"{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"maxInFlight":10001}}"#, "bad_frame"),
        (r#"{"op":"PAUSE","topic":"t"}"#, "bad_frame"),
        (r#"{"op":"RESUME","topic":"a..b","group":"g"}"#, "bad_topic"),
        (r#"{"op":"UNSUBSCRIBE","topic":"t","group":"G"}"#, "bad_group"),
    ] {
        client.send_text(frame).await;
        let answer = client.answer().await;
        assert_eq!(parsed(&answer)["code"], code, "{frame}: {answer}");
    }
    let long_corr = json!({"op": "AUTH", "token": "", "corr": "x".repeat(129)});
    assert_eq!(parsed(&client.ask(long_corr).await)["code"], "bad_frame");
    // The name of its dead-letter topic would be too long.
    let long_topic = json!({"op": "SUBSCRIBE", "topic": "x".repeat(200), "group": "g"});
    assert_eq!(parsed(&client.ask(long_topic).await)["code"], "bad_topic");
    client.assert_lives().await;
}

#[tokio::test]
async fn a_payload_nests_at_most_100_levels() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    client.publish("t", json!(0)).await;
    let id = client.event().await["event"]["id"].clone();
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let frames = |payload: String| {
        [
            format!(r#"{{"op":"PUBLISH","topic":"u","payload":{payload}}}"#),
            format!(
                r#"{{"op":"PUBLISH","topic":"u","events":[{{"payload":1}},{{"payload":{payload}}}]}}"#
            ),
            format!(
                r#"{{"op":"ACK","topic":"t","group":"g","id":{id},"publish":[{{"topic":"u","payload":{payload}}}]}}"#
            ),
        ]
    };
    for depth in [101, 127, 1000, 100_000] {
        for frame in frames(nested(depth)) {
            client.send_text(&frame).await;
            let answer = client.answer().await;
            assert_eq!(parsed(&answer)["code"], "bad_frame", "{depth}: {answer}");
        }
    }
    assert_eq!(running.last_of("u").await.0, 0, "nothing was stored");
    for frame in frames(nested(100)) {
        client.send_text(&frame).await;
        let answer = client.answer().await;
        assert_eq!(parsed(&answer)["op"], "OK", "{answer}");
    }
    // Members that nobody reads are scanned with the same limit.
    for member in ["more", "corr", "opts", "topic"] {
        client.send_text(&format!(r#"{{"op":"PUBLISH","{member}":{}}}"#, nested(100_000))).await;
        assert_eq!(parsed(&client.answer().await)["code"], "bad_frame");
    }
    let deep_headers = format!(
        r#"{{"op":"PUBLISH","topic":"t","payload":1,"opts":{{"headers":{{"a":{}}}}}}}"#,
        nested(125)
    );
    client.send_text(&deep_headers).await;
    assert_eq!(parsed(&client.answer().await)["code"], "bad_frame");
}

#[tokio::test]
async fn a_binary_frame_is_refused_in_order() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.send(&json!({"op": "PUBLISH", "corr": "1", "topic": "t", "payload": 1})).await;
    client.send_message(Message::binary(r#"{"op":"AUTH","token":""}"#)).await;
    client.send(&json!({"op": "PUBLISH", "corr": "2", "topic": "t", "payload": 1})).await;
    assert_eq!(parsed(&client.answer().await)["corr"], "1");
    assert_eq!(
        client.answer().await,
        r#"{"op":"ERR","code":"bad_frame","msg":"send text frames, not binary"}"#
    );
    assert_eq!(parsed(&client.answer().await)["corr"], "2");
}

#[tokio::test]
async fn a_frame_above_the_limit_is_refused_and_the_connection_closed() {
    let running = started(&["gateway.max_frame_bytes=2000"]).await;
    for fragments in [1, 3] {
        let mut client = running.connect().await;
        let shell = json!({"op": "PUBLISH", "topic": "t", "payload": ""}).to_string().len();
        let fitting = "x".repeat(2000 - shell);
        client.publish("t", json!(fitting)).await;
        client.send(&json!({"op": "PUBLISH", "corr": "1", "topic": "t", "payload": 1})).await;
        let large = json!({"op": "PUBLISH", "topic": "t", "payload": fitting + "x"}).to_string();
        send_in_fragments(&mut client, &large, fragments).await;
        assert_eq!(parsed(&client.answer().await)["corr"], "1", "earlier frames are answered");
        let refused = parsed(&client.answer().await);
        assert_eq!(
            (&refused["op"], &refused["code"]),
            (&json!("ERR"), &json!("payload_too_large"))
        );
        assert!(refused["msg"].as_str().unwrap().contains("2000"), "names the limit: {refused}");
        assert_eq!(client.close_code().await, 1009);
    }
}

/// Larger than all buffers in between: the close frame arrives although the client is still sending.
#[tokio::test]
async fn a_huge_frame_is_not_buffered() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let huge = "x".repeat(60 << 20);
    client.send_text(&huge).await;
    assert_eq!(parsed(&client.answer().await)["code"], "payload_too_large");
    assert_eq!(client.close_code().await, 1009);
}

async fn send_in_fragments(client: &mut crate::gateway::client::Client, text: &str, count: usize) {
    let size = text.len().div_ceil(count);
    let pieces: Vec<_> = text.as_bytes().chunks(size).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let data = if index == 0 { Data::Text } else { Data::Continue };
        let is_last = index + 1 == pieces.len();
        let frame = Frame::message(Bytes::copy_from_slice(piece), OpCode::Data(data), is_last);
        client.send_message(Message::Frame(frame)).await;
        if !is_last {
            client.send_message(Message::Ping("between".into())).await;
        }
    }
}

#[tokio::test]
async fn fragments_with_control_frames_in_between_are_one_frame() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let publish =
        json!({"op": "PUBLISH", "topic": "t", "payload": "äöü".repeat(50), "opts": {"id": "a"}});
    // Fragments may split a character.
    send_in_fragments(&mut client, &publish.to_string(), 37).await;
    assert_eq!(client.answer().await, r#"{"op":"OK","id":"a","seq":1}"#);
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Sends bytes in the same write as the upgrade request, and returns the bytes after the response.
async fn raw(frames: &[u8]) -> Vec<u8> {
    let running = started(&[]).await;
    let mut stream = running.tcp().await;
    stream.write_all(&[UPGRADE.as_bytes(), frames].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    assert!(all.starts_with(b"HTTP/1.1 101 "));
    all.split_off(end)
}

/// A client text frame with a mask of zeros.
fn text_frame(text: &[u8]) -> Vec<u8> {
    let length = u8::try_from(text.len()).ok().filter(|length| *length < 126).unwrap();
    [&[0x81, 0x80 | length, 0, 0, 0, 0], text].concat()
}

#[tokio::test]
async fn protocol_violations_close_the_connection_with_their_code() {
    let good = text_frame(br#"{"op":"AUTH","token":""}"#);
    for (bad, code) in [
        (b"\x81\x02{}".to_vec(), 1002_u16),   // not masked
        (b"\xC1\x80\0\0\0\0".to_vec(), 1002), // a reserved bit
        (b"\x83\x80\0\0\0\0".to_vec(), 1002), // a reserved opcode
        (text_frame(b"\"\xFF\xFE\""), 1007),  // not UTF-8
    ] {
        let answered = raw(&[&good[..], &bad].concat()).await;
        let (ok, close) = answered.split_at(2 + 11);
        assert_eq!(ok, b"\x81\x0b{\"op\":\"OK\"}", "earlier frames are answered");
        assert_eq!(close[0], 0x88);
        assert_eq!(close[2..4], code.to_be_bytes(), "{bad:?}");
    }
}

/// Frames in the same packet as the request are not lost, and a peer that has shut down its side still
/// gets its answers.
#[tokio::test]
async fn frames_sent_with_the_request_are_answered() {
    let answered = raw(&text_frame(br#"{"op":"AUTH","token":"","corr":"first"}"#)).await;
    let expected = br#"{"op":"OK","corr":"first"}"#;
    assert_eq!(answered[2..2 + expected.len()], expected[..]);
}

#[tokio::test]
async fn a_close_frame_is_echoed_with_its_code() {
    use tokio_tungstenite::tungstenite::protocol::CloseFrame;
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let close = CloseFrame { code: 4123.into(), reason: "bye".into() };
    client.send_message(Message::Close(Some(close))).await;
    assert_eq!(client.close_code().await, 4123);
}
