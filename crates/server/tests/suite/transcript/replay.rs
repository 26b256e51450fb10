//! Replays every session of `docs/protocol.md` against a server in this process.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use prombus_server::config::{Config, Sources};
use prombus_server::server::Server;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::transcript::PROTOCOL;
use crate::transcript::placeholder::Placeholders;
use crate::transcript::session::{self, Session, Step};

/// Only a server that hangs takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);
/// For frames that must not arrive.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

struct Conversation {
    socket: WebSocketStream<TcpStream>,
    time_limit: Duration,
}

#[tokio::test]
async fn every_session_is_as_documented() {
    let sessions = session::all_of(PROTOCOL).unwrap();
    assert!(sessions.len() >= 10, "the document has lost its sessions");
    for session in &sessions {
        if let Err(problem) = replay(session, TIMEOUT).await {
            panic!("docs/protocol.md, session at line {}: {problem}", session.line);
        }
    }
}

#[tokio::test]
async fn a_wrong_session_is_detected() {
    for (wrong, time_limit) in [
        // A wrong answer, one too many, one too few, a wrong order, a wrong close frame.
        ("> {\"op\":\"LISTEN\"}\n< {\"op\":\"OK\"}", TIMEOUT),
        ("> {\"op\":\"AUTH\",\"token\":\"\"}\n< {\"op\":\"OK\"}\n< {\"op\":\"OK\"}", SHORT_TIMEOUT),
        ("> {\"op\":\"AUTH\",\"token\":\"\"}", TIMEOUT),
        (
            "> {\"op\":\"AUTH\",\"token\":\"\",\"corr\":\"a\"}\n\
             > {\"op\":\"AUTH\",\"token\":\"\",\"corr\":\"b\"}\n\
             < {\"op\":\"OK\",\"corr\":\"b\"}\n< {\"op\":\"OK\",\"corr\":\"a\"}",
            TIMEOUT,
        ),
        ("< close 4401 not authenticated in time", SHORT_TIMEOUT),
    ] {
        let sessions = session::all_of(&format!("```session\n{wrong}\n```\n")).unwrap();
        assert!(replay(&sessions[0], time_limit).await.is_err(), "{wrong}");
    }
}

async fn replay(session: &Session, time_limit: Duration) -> Result<(), String> {
    let mut set = session.settings.clone();
    let here = ["server.engine=memory", "server.ws=127.0.0.1:0", "server.http=127.0.0.1:0"];
    set.extend(here.map(str::to_owned));
    let sources = Sources { set, ..Sources::default() };
    let config = Config::load(&sources).map_err(|error| error.to_string())?;
    let server = Server::start(&config).await.map_err(|error| error.to_string())?;
    let socket = connect(server.ws()).await;
    let result = Conversation { socket, time_limit }.follow(session).await;
    server.stop().await.map_err(|refusal| refusal.to_string())?;
    result
}

async fn connect(address: SocketAddr) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    let (socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/"), stream)
        .await
        .expect("the server accepts the handshake");
    socket
}

impl Conversation {
    async fn follow(&mut self, session: &Session) -> Result<(), String> {
        let mut placeholders = Placeholders::default();
        for step in &session.steps {
            match step {
                Step::Send(line, frame) => {
                    let sent = self.socket.send(Message::text(placeholders.fill(frame))).await;
                    sent.map_err(|error| format!("line {line}: cannot send: {error}"))?;
                }
                Step::Receive(frames) => self.receive(frames, &mut placeholders).await?,
                Step::Closed(line, code, reason) => {
                    let closed = self.next_message().await?;
                    let Message::Close(Some(close)) = &closed else {
                        return Err(format!("line {line}: got {closed:?}"));
                    };
                    if (u16::from(close.code), close.reason.as_str()) != (*code, reason.as_str()) {
                        return Err(format!("line {line}: got {close:?}"));
                    }
                    return Ok(());
                }
            }
        }
        self.expect_end().await
    }

    async fn receive(
        &mut self,
        frames: &[(usize, Value)],
        placeholders: &mut Placeholders,
    ) -> Result<(), String> {
        let mut expected: Vec<_> = frames.iter().collect();
        while let Some((line, _)) = expected.first() {
            let actual = self.next_frame().await.map_err(|why| format!("line {line}: {why}"))?;
            let matches =
                |(_, frame): &&(usize, Value)| placeholders.clone().matches(frame, &actual);
            let index = expected.iter().position(matches);
            let (_, frame) =
                expected.remove(index.ok_or_else(|| format!("line {line}: got {actual}"))?);
            // Takes the values of new placeholders.
            placeholders.matches(frame, &actual);
        }
        Ok(())
    }

    /// Sends one more frame, whose answer has to be the next: there are no undocumented frames.
    async fn expect_end(&mut self) -> Result<(), String> {
        let last = r#"{"op":"PAUSE","topic":"end","group":"end","corr":"nothing else"}"#;
        self.socket.send(Message::text(last)).await.map_err(|error| error.to_string())?;
        let actual = self.next_frame().await?;
        match actual["corr"].as_str() {
            Some("nothing else") => Ok(()),
            _ => Err(format!("an undocumented frame at the end: {actual}")),
        }
    }

    async fn next_frame(&mut self) -> Result<Value, String> {
        match self.next_message().await? {
            Message::Text(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            other => Err(format!("expected a frame, got {other:?}")),
        }
    }

    async fn next_message(&mut self) -> Result<Message, String> {
        loop {
            match timeout(self.time_limit, self.socket.next()).await {
                Err(_) => return Err(format!("no message within {:?}", self.time_limit)),
                Ok(None) => return Err("the connection ended".to_owned()),
                Ok(Some(Err(error))) => return Err(error.to_string()),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(Some(Ok(message))) => return Ok(message),
            }
        }
    }
}
