//! Every session of the document, against a server in this process.

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
use crate::transcript::placeholder::Found;
use crate::transcript::session::{self, Session, Step};

/// Only a server that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// For what is never to come.
const LITTLE_PATIENCE: Duration = Duration::from_millis(200);

struct Conversation {
    socket: WebSocketStream<TcpStream>,
    patience: Duration,
}

#[tokio::test]
async fn every_session_of_the_document_goes_as_written() {
    let sessions = session::all_of(PROTOCOL).unwrap();
    assert!(sessions.len() >= 10, "the document has lost its sessions");
    for session in &sessions {
        if let Err(problem) = replay(session, PATIENCE).await {
            panic!("docs/protocol.md, session at line {}: {problem}", session.line);
        }
    }
}

#[tokio::test]
async fn a_document_that_is_wrong_is_noticed() {
    for (wrong, patience) in [
        // Another answer, one too many, one too few, another order, another goodbye.
        ("> {\"op\":\"LISTEN\"}\n< {\"op\":\"OK\"}", PATIENCE),
        (
            "> {\"op\":\"AUTH\",\"token\":\"\"}\n< {\"op\":\"OK\"}\n< {\"op\":\"OK\"}",
            LITTLE_PATIENCE,
        ),
        ("> {\"op\":\"AUTH\",\"token\":\"\"}", PATIENCE),
        (
            "> {\"op\":\"AUTH\",\"token\":\"\",\"corr\":\"a\"}\n\
             > {\"op\":\"AUTH\",\"token\":\"\",\"corr\":\"b\"}\n\
             < {\"op\":\"OK\",\"corr\":\"b\"}\n< {\"op\":\"OK\",\"corr\":\"a\"}",
            PATIENCE,
        ),
        ("< close 4401 not authenticated in time", LITTLE_PATIENCE),
    ] {
        let sessions = session::all_of(&format!("```session\n{wrong}\n```\n")).unwrap();
        assert!(replay(&sessions[0], patience).await.is_err(), "{wrong}");
    }
}

async fn replay(session: &Session, patience: Duration) -> Result<(), String> {
    let mut set = session.settings.clone();
    let here = ["server.engine=memory", "server.ws=127.0.0.1:0", "server.http=127.0.0.1:0"];
    set.extend(here.map(str::to_owned));
    let sources = Sources { set, ..Sources::default() };
    let config = Config::load(&sources).map_err(|error| error.to_string())?;
    let server = Server::start(&config).await.map_err(|error| error.to_string())?;
    let socket = connect(server.ws()).await;
    let result = Conversation { socket, patience }.goes_as(session).await;
    server.stop().await.map_err(|refusal| refusal.to_string())?;
    result
}

async fn connect(address: SocketAddr) -> WebSocketStream<TcpStream> {
    let stream = TcpStream::connect(address).await.expect("it listens");
    let (socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/"), stream)
        .await
        .expect("it becomes a WebSocket");
    socket
}

impl Conversation {
    async fn goes_as(&mut self, session: &Session) -> Result<(), String> {
        let mut found = Found::default();
        for step in &session.steps {
            match step {
                Step::Send(line, frame) => {
                    let sent = self.socket.send(Message::text(found.fill(frame))).await;
                    sent.map_err(|error| format!("line {line}: cannot send: {error}"))?;
                }
                Step::Receive(frames) => self.receive(frames, &mut found).await?,
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
        self.nothing_else_waits().await
    }

    async fn receive(
        &mut self,
        frames: &[(usize, Value)],
        found: &mut Found,
    ) -> Result<(), String> {
        let mut expected: Vec<_> = frames.iter().collect();
        while let Some((line, _)) = expected.first() {
            let actual = self.next_frame().await.map_err(|why| format!("line {line}: {why}"))?;
            let fits = |(_, frame): &&(usize, Value)| found.clone().fits(frame, &actual);
            let place = expected.iter().position(fits);
            let (_, frame) =
                expected.remove(place.ok_or_else(|| format!("line {line}: got {actual}"))?);
            // Learns what varies.
            found.fits(frame, &actual);
        }
        Ok(())
    }

    /// The next answer is that to a frame sent now: there were no more than the document says.
    async fn nothing_else_waits(&mut self) -> Result<(), String> {
        let last = r#"{"op":"PAUSE","topic":"end","group":"end","corr":"nothing else"}"#;
        self.socket.send(Message::text(last)).await.map_err(|error| error.to_string())?;
        let actual = self.next_frame().await?;
        match actual["corr"].as_str() {
            Some("nothing else") => Ok(()),
            _ => Err(format!("at its end there is one more frame: {actual}")),
        }
    }

    async fn next_frame(&mut self) -> Result<Value, String> {
        match self.next_message().await? {
            Message::Text(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
            other => Err(format!("got {other:?} in place of a frame")),
        }
    }

    async fn next_message(&mut self) -> Result<Message, String> {
        loop {
            match timeout(self.patience, self.socket.next()).await {
                Err(_) => return Err(format!("nothing came for {:?}", self.patience)),
                Ok(None) => return Err("the connection ended".to_owned()),
                Ok(Some(Err(error))) => return Err(error.to_string()),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(Some(Ok(message))) => return Ok(message),
            }
        }
    }
}
