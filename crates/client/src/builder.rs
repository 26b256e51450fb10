//! Building a client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prombus_proto::frame::Token;
use prombus_proto::limits::MAX_PAYLOAD_BYTES;
use prombus_proto::{IdSource, RandomSource, SystemRandom};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::client::{Client, Shared};
use crate::connection_state::ConnectionState;
use crate::driver::{Channels, Driver};
use crate::session::requests::RetryPolicy;
use crate::session::{Session, SessionSettings};
use crate::transport::{BackOff, Protocol, ServerAddress};
use crate::{Error, Result};

/// The options of a client. Created by [`Client::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect` is called"]
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

/// Handles wait for room in this queue to subscribe, pause, stop and the like.
const COMMAND_QUEUE: usize = 64;

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

    /// Authenticates every connection with this token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Token::new(token.into()));
        self
    }

    /// Sets the server's HTTP address, such as `http://127.0.0.1:8083`. Replay and export need it.
    pub fn http(mut self, url: impl Into<String>) -> Self {
        self.http = Some(url.into());
        self
    }

    /// Trusts the certificates in this PEM file in addition to the system's.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Sets how many frames may be unanswered at a time, at least 1. Publishing waits while the
    /// window is full. Default: 1000.
    pub fn window(mut self, frames: usize) -> Self {
        self.window = frames.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets how long a publish is tried before it fails with [`Error::TimedOut`]; `None` is
    /// forever. Default: two minutes.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Sets the largest frame that the server accepts (its `gateway.max_frame_bytes`). Larger
    /// frames fail before they are sent. Default: 1 MiB.
    pub fn max_frame_bytes(mut self, bytes: usize) -> Self {
        self.max_frame_bytes = bytes;
        self
    }

    /// Sets the back-off between attempts, of connecting above all: a random wait of up to `first`
    /// after the first failure, up to twice that after the next, and so on up to `longest`.
    /// Default: 100 ms and 10 s.
    pub fn back_off(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_wait, self.longest_wait) = (first, longest);
        self
    }

    /// Sets whether a publish that is refused as `rate_limited` waits and is sent again when the
    /// server allows it. Otherwise it fails, and [`Error::retry_after`] returns the wait.
    /// Default: `true`.
    pub fn wait_for_rate(mut self, waits: bool) -> Self {
        self.waits_for_rate = waits;
        self
    }

    /// Sets the source of randomness for back-off, for reproducible tests.
    pub fn random(mut self, random: impl RandomSource) -> Self {
        self.random = Arc::new(random);
        self
    }

    /// Connects, and authenticates if there is a token. Once connected, the client reconnects on
    /// its own.
    ///
    /// # Errors
    ///
    /// Fails if an address is not valid, if the server cannot be reached, or if it rejects the
    /// token.
    pub async fn connect(self) -> Result<Client> {
        let (first_connected, connected) = oneshot::channel();
        let client = self.start(Some(first_connected))?;
        connected.await.unwrap_or(Err(Error::Ended))?;
        Ok(client)
    }

    /// Returns at once and connects in the background, retrying until the server can be reached.
    ///
    /// # Errors
    ///
    /// Fails if an address or the file of certificates is not valid.
    ///
    /// # Panics
    ///
    /// Panics outside of a Tokio runtime.
    pub fn connect_in_background(self) -> Result<Client> {
        self.start(None)
    }

    fn start(self, first_connected: Option<oneshot::Sender<Result<()>>>) -> Result<Client> {
        let ca_file = self.ca_file.as_deref();
        let address = ServerAddress::new(&self.url, Protocol::WebSocket, ca_file)?;
        let http = self.http.as_deref();
        let http = http.map(|url| ServerAddress::new(url, Protocol::Http, ca_file)).transpose()?;
        let retry = RetryPolicy {
            first: self.first_wait,
            longest: self.longest_wait,
            waits_for_rate: self.waits_for_rate,
        };
        let max_frame_bytes = self.max_frame_bytes;
        let settings = SessionSettings { retry, max_frame_bytes };
        let session = Session::new(settings, self.token.clone(), Arc::clone(&self.random));
        let (command_sender, commands) = mpsc::channel(COMMAND_QUEUE);
        let (request_sender, requests) = mpsc::channel(self.window);
        let (state_sender, state) = watch::channel(ConnectionState::Connecting);
        let back_off = BackOff::new(self.first_wait, self.longest_wait);
        let channels = Channels { commands, requests, state: state_sender, first_connected };
        let random = Arc::clone(&self.random);
        let driver = Driver::new(session, address, back_off.clone(), random, channels);
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
            token: Mutex::new(self.token),
            back_off,
            random: self.random,
        }))
    }
}
