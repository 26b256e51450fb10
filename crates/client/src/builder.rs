//! How a client is made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prombus_proto::frame::Token;
use prombus_proto::limits::MAX_PAYLOAD_BYTES;
use prombus_proto::{IdSource, RandomSource, SystemRandom};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::client::{Client, Shared};
use crate::connection_state::ConnectionState;
use crate::driver::Driver;
use crate::session::requests::Retrying;
use crate::session::{Session, SessionSettings};
use crate::transport::{BackOff, Protocol, ServerAddress};
use crate::{Error, Result};

/// What a client is told before it connects. Made by [`Client::builder`].
#[derive(Clone)]
#[must_use = "nothing is connected before `connect`"]
pub struct Builder {
    url: String,
    http: Option<String>,
    token: Option<Token>,
    ca_file: Option<PathBuf>,
    window: usize,
    timeout: Option<Duration>,
    max_frame_bytes: usize,
    first_wait: Duration,
    longest_wait: Duration,
    waits_for_rate: bool,
    random: Arc<dyn RandomSource>,
}

/// How many pauses, stops and the like may wait to be taken.
const COMMANDS_AT_A_TIME: usize = 64;

impl Builder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            http: None,
            token: None,
            ca_file: None,
            window: 1000,
            timeout: Some(Duration::from_secs(120)),
            max_frame_bytes: MAX_PAYLOAD_BYTES,
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(10),
            waits_for_rate: true,
            random: Arc::new(SystemRandom),
        }
    }

    /// The token to authenticate with, at every connection.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token::new(token.into()));
        self
    }

    /// The server's HTTP address, such as `http://127.0.0.1:8083`: replay and export need it.
    pub fn http(mut self, url: impl Into<String>) -> Self {
        self.http = Some(url.into());
        self
    }

    /// Trusts the certificates in this PEM file beside those that the system trusts.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// How many frames may wait for their answers, 1 or more; 1000 unless said. Where there are
    /// as many, publishing waits.
    pub fn window(mut self, frames: usize) -> Self {
        self.window = frames.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How long a publish is tried before it fails with [`Error::TimedOut`]; two minutes unless
    /// said, and for ever if `None`.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// The largest frame that the server takes (its `gateway.max_frame_bytes`), 1 MiB unless said.
    /// What would be larger is refused before it is sent.
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }

    /// How long to wait before something is tried again, connecting above all: a random time of up
    /// to `first` after the first failure, of up to twice that after the next, and so on up to
    /// `longest`. 100 ms and 10 s unless said.
    pub fn back_off(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_wait, self.longest_wait) = (first, longest);
        self
    }

    /// Whether a publish that is refused as `rate_limited` is sent again when the server says that
    /// it may be, as it is unless said; otherwise it fails, and
    /// [`retry_after`](Error::retry_after) says when.
    pub fn wait_for_rate(mut self, waits: bool) -> Self {
        self.waits_for_rate = waits;
        self
    }

    /// The source of jitter in waits. Tests pass a seeded one so that they repeat.
    pub fn random(mut self, random: impl RandomSource) -> Self {
        self.random = Arc::new(random);
        self
    }

    /// Connects, and authenticates if there is a token. Fails where the server is not there, or
    /// does not take the token; later losses of the connection are made good by the client.
    pub async fn connect(self) -> Result<Client> {
        let (first, connected) = oneshot::channel();
        let client = self.start(Some(first))?;
        connected.await.unwrap_or(Err(Error::Ended))?;
        Ok(client)
    }

    /// The same without waiting: a server that is not there yet is tried until it is. Only what
    /// is wrong with the addresses is an error.
    ///
    /// Has to be called within a Tokio runtime.
    pub fn connect_in_background(self) -> Result<Client> {
        self.start(None)
    }

    fn start(self, first: Option<oneshot::Sender<Result<()>>>) -> Result<Client> {
        let ca_file = self.ca_file.as_deref();
        let address = ServerAddress::new(&self.url, Protocol::WebSocket, ca_file)?;
        let http = self.http.as_deref();
        let http = http.map(|url| ServerAddress::new(url, Protocol::Http, ca_file)).transpose()?;
        let retrying = Retrying {
            first: self.first_wait,
            longest: self.longest_wait,
            waits_for_rate: self.waits_for_rate,
        };
        let max_frame_bytes = self.max_frame_bytes;
        let settings = SessionSettings { retrying, max_frame_bytes };
        let session = Session::new(settings, self.token.clone(), Arc::clone(&self.random));
        let (command_sender, commands) = mpsc::channel(COMMANDS_AT_A_TIME);
        let (request_sender, requests) = mpsc::channel(self.window);
        let (state_sender, state) = watch::channel(ConnectionState::Connecting);
        let back_off = BackOff::new(self.first_wait, self.longest_wait);
        let driver = Driver::new(
            session,
            address,
            back_off.clone(),
            Arc::clone(&self.random),
            commands,
            requests,
            state_sender,
            first,
        );
        tokio::spawn(driver.run());
        Ok(Client::new(Shared {
            commands: command_sender,
            requests: request_sender,
            window: Arc::new(Semaphore::new(self.window)),
            state,
            ids: IdSource::system(),
            timeout: self.timeout,
            max_frame_bytes,
            http,
            token: std::sync::Mutex::new(self.token),
            back_off,
            random: self.random,
        }))
    }
}
