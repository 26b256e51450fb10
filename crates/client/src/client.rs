//! The handle that programs hold.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prombus_proto::frame::{Membership, Outcome, Token};
use prombus_proto::{ErrorCode, EventId, IdSource, RandomSource, Topic};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::builder::Builder;
use crate::connection_state::ConnectionState;
use crate::driver::now;
use crate::names::{IntoTopic, parse_group};
use crate::session::Command;
use crate::session::frames::{self, MAX_IDS};
use crate::session::requests::Request;
use crate::transport::{BackOff, HttpClient, ServerAddress};
use crate::{Error, Result};

/// A client of one server. Clones are cheap and share its connection.
///
/// A client lives in the Tokio runtime in which it was created. It ends when it is
/// [closed](Client::close), or when the last clone and the last
/// [`Subscription`](crate::Subscription) are dropped. It also ends if the server closes the
/// connection permanently or rejects the token; every call then returns that error.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) window: Arc<Semaphore>,
    pub(crate) state: watch::Receiver<ConnectionState>,
    pub(crate) ids: IdSource,
    pub(crate) timeout: Option<Duration>,
    pub(crate) max_frame_bytes: usize,
    pub(crate) http: Option<ServerAddress>,
    /// For HTTP; the session has its own copy.
    pub(crate) token: Mutex<Option<Token>>,
    pub(crate) back_off: BackOff,
    pub(crate) random: Arc<dyn RandomSource>,
}

impl Client {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Connects to the gateway at `url`, such as `ws://127.0.0.1:8090`, without a token.
    ///
    /// # Errors
    ///
    /// [`Error::BadAddress`] if the URL is not valid, [`Error::NotReached`] if no gateway answers
    /// there.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Returns a builder for a client of the gateway at `url`.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// Returns a receiver of the connection's state, for reading it or waiting for changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.shared.state.clone()
    }

    /// Authenticates again, for example before a token expires. Later connections use the new
    /// token.
    ///
    /// # Errors
    ///
    /// Fails if the server rejects the token; the client then keeps the old one.
    pub async fn authenticate(&self, token: impl Into<String>) -> Result<()> {
        let token = Token::new(token.into());
        let (reply, answer) = oneshot::channel();
        self.command(Command::Authenticate { token: token.clone(), reply }).await?;
        answer.await.map_err(|_| self.ended())??;
        *self.shared.token.lock() = Some(token);
        Ok(())
    }

    /// Closes this client and all its clones: [stops](crate::Subscription::stop) subscriptions,
    /// waits for pending publishes, and then closes the connection.
    pub async fn close(self) {
        // Fails if the client has ended already.
        let _ = self.command(Command::Close).await;
        let mut state = self.state();
        let _ = state.wait_for(|state| matches!(state, ConnectionState::Ended(_))).await;
    }

    /// Returns those of `ids` that are marked as handled by `group`; see
    /// [`Client::subscribe_exactly_once`].
    ///
    /// # Errors
    ///
    /// Fails if a name is not valid, or if the server refuses the request or does not answer.
    pub async fn seen(
        &self,
        topic: impl IntoTopic,
        group: &str,
        ids: &[EventId],
    ) -> Result<Vec<EventId>> {
        let membership = Membership { topic: topic.into_topic()?, group: parse_group(group)? };
        let mut marked = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            match self.send(frames::seen(&membership, ids), None).await?.await? {
                Outcome::Seen(seen) => marked.extend(seen),
                other => return Err(unexpected_answer("SEEN", &other)),
            }
        }
        Ok(marked)
    }

    /// Marks these events of `topic` as handled by `group` for `ttl`, 1 second to 365 days.
    ///
    /// # Errors
    ///
    /// Fails if a name is not valid, or if the server refuses the request or does not answer. Some
    /// of the events may be marked then.
    pub async fn mark(
        &self,
        topic: impl IntoTopic,
        group: &str,
        ids: &[EventId],
        ttl: Duration,
    ) -> Result<()> {
        let membership = Membership { topic: topic.into_topic()?, group: parse_group(group)? };
        let mut waiting: Vec<_> = ids.chunks(MAX_IDS).rev().collect();
        while let Some(ids) = waiting.pop() {
            match self.send(frames::mark(&membership, ids, ttl), None).await?.await {
                Ok(_) => {}
                Err(Error::Refused(refusal)) if refusal.is_too_much_at_once() && ids.len() > 1 => {
                    let (first, second) = ids.split_at(ids.len() / 2);
                    waiting.extend([second, first]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands a frame to the session as soon as the window has room. `topic` is the topic of a
    /// publish.
    pub(crate) async fn send(
        &self,
        frame: Utf8Bytes,
        topic: Option<Topic>,
    ) -> Result<PendingResponse> {
        let shared = &self.shared;
        let (size, max) = (frame.len(), shared.max_frame_bytes);
        if size > max {
            let msg = format_args!("a frame of {size} bytes exceeds the limit of {max}");
            return Err(Error::refused(ErrorCode::PayloadTooLarge, msg));
        }
        let deadline = shared.timeout.map(|timeout| now() + timeout);
        let permit = self.permit(deadline).await?;
        let (reply, answer) = oneshot::channel();
        let request = Request::new(frame, topic, reply, deadline, permit);
        // The channel has as much room as there are permits, so this fails only if it is closed.
        shared.requests.try_send(request).map_err(|_| self.ended())?;
        Ok(PendingResponse { answer, state: shared.state.clone() })
    }

    async fn permit(&self, deadline: Option<Instant>) -> Result<OwnedSemaphorePermit> {
        let window = &self.shared.window;
        if let Ok(permit) = Arc::clone(window).try_acquire_owned() {
            return Ok(permit);
        }
        let permit = Arc::clone(window).acquire_owned();
        let permit = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline.into(), permit)
                .await
                .map_err(|_| Error::TimedOut)?,
            None => permit.await,
        };
        permit.map_err(|_| self.ended())
    }

    pub(crate) async fn command(&self, command: Command) -> Result<()> {
        self.shared.commands.send(command).await.map_err(|_| self.ended())
    }

    /// The error that ended the client.
    pub(crate) fn ended(&self) -> Error {
        why_ended(&self.shared.state)
    }

    pub(crate) fn http_client(&self) -> Result<HttpClient> {
        let address = self.shared.http.clone().ok_or(Error::NoHttpAddress)?;
        let token = self.shared.token.lock();
        Ok(HttpClient::new(address, token.as_ref().map(Token::secret))?)
    }
}

/// Resolves to the server's answer to a frame.
pub(crate) struct PendingResponse {
    answer: oneshot::Receiver<Result<Outcome>>,
    state: watch::Receiver<ConnectionState>,
}

impl Future for PendingResponse {
    type Output = Result<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(why_ended(&self.state))))
    }
}

fn why_ended(state: &watch::Receiver<ConnectionState>) -> Error {
    match &*state.borrow() {
        ConnectionState::Ended(error) => error.clone(),
        _ => Error::Ended,
    }
}

pub(crate) fn unexpected_answer(op: &str, outcome: &Outcome) -> Error {
    Error::NotUnderstood(format!("unexpected answer to {op}: {outcome:?}"))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &*self.shared.state.borrow())
            .finish_non_exhaustive()
    }
}
