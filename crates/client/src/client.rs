//! The handle that programs hold.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prombus_proto::frame::{Membership, Outcome, Token};
use prombus_proto::{ErrorCode, EventId, IdSource, RandomSource, Topic};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::builder::Builder;
use crate::connection_state::ConnectionState;
use crate::names::{IntoTopic, group_named};
use crate::session::Command;
use crate::session::frames::{self, MOST_IDS};
use crate::session::requests::Request;
use crate::transport::{BackOff, HttpClient, ServerAddress};
use crate::{Error, Result};

/// A client of one server. Clones share its connection and cost nothing.
///
/// It lives in the Tokio runtime that it was made in, and ends when it is [closed](Client::close),
/// or when the last clone and the last [`Subscription`](crate::Subscription) are dropped. It ends
/// with an error where the server says not to come back; every call then answers that error.
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
    pub(crate) token: Mutex<Option<Token>>,
    pub(crate) back_off: BackOff,
    pub(crate) random: Arc<dyn RandomSource>,
}

impl Client {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Connects to the gateway at `url`, such as `ws://127.0.0.1:8090`, without a token.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// A client of the gateway at `url` that is to be told more before it connects.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    /// How it stands with the connection now, and from now on: what is received changes with it.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<ConnectionState> {
        self.shared.state.clone()
    }

    /// Authenticates anew, as before a token expires. Used at later connections, too. Fails where the
    /// server does not take it; then the token before stays.
    pub async fn authenticate(&self, token: impl Into<String>) -> Result<()> {
        let token = Token::new(token.into());
        let (reply, answer) = oneshot::channel();
        self.command(Command::Authenticate { token: token.clone(), reply }).await?;
        answer.await.map_err(|_| self.ended())??;
        *self.shared.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(())
    }

    /// Closes the client: subscriptions [stop](crate::Subscription::stop), publishes are answered,
    /// and then the connection ends. So does every clone.
    pub async fn close(self) {
        // One that ended is closed.
        let _ = self.command(Command::Close).await;
        let mut state = self.state();
        let _ = state.wait_for(|state| matches!(state, ConnectionState::Ended(_))).await;
    }

    /// Which of these events of `topic` are marked as handled by `group`; see
    /// [`Client::subscribe_exactly_once`].
    pub async fn seen(
        &self,
        topic: impl IntoTopic,
        group: &str,
        ids: &[EventId],
    ) -> Result<Vec<EventId>> {
        let which = Membership { topic: topic.into_topic()?, group: group_named(group)? };
        let mut marked = Vec::new();
        for ids in ids.chunks(MOST_IDS) {
            match self.ask(frames::seen(&which, ids), None).await?.await? {
                Outcome::Seen(seen) => marked.extend(seen),
                other => return Err(not_answered("SEEN", &other)),
            }
        }
        Ok(marked)
    }

    /// Marks these events of `topic` as handled by `group`, for so long (1 second to 365 days).
    pub async fn mark(
        &self,
        topic: impl IntoTopic,
        group: &str,
        ids: &[EventId],
        ttl: Duration,
    ) -> Result<()> {
        let which = Membership { topic: topic.into_topic()?, group: group_named(group)? };
        let mut waiting: Vec<_> = ids.chunks(MOST_IDS).rev().collect();
        while let Some(ids) = waiting.pop() {
            match self.ask(frames::mark(&which, ids, ttl), None).await?.await {
                Ok(_) => {}
                Err(Error::Refused(refusal)) if refusal.is_too_much_at_once() && ids.len() > 1 => {
                    let (first, behind) = ids.split_at(ids.len() / 2);
                    waiting.extend([behind, first]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a frame when there is room for it in the window. `topic` is what it publishes to.
    pub(crate) async fn ask(&self, frame: Utf8Bytes, topic: Option<Topic>) -> Result<Asking> {
        let shared = &self.shared;
        let (size, most) = (frame.len(), shared.max_frame_bytes);
        if size > most {
            let msg = format_args!("a frame of {size} bytes, above the {most} that are allowed");
            return Err(Error::refused(ErrorCode::PayloadTooLarge, msg));
        }
        let deadline = shared.timeout.map(|timeout| now() + timeout);
        let permit = self.permit(deadline).await?;
        let (reply, answer) = oneshot::channel();
        let request = Request::new(frame, topic, reply, deadline, permit);
        // There is as much room as there are permits, unless nobody listens any more.
        shared.requests.try_send(request).map_err(|_| self.ended())?;
        Ok(Asking { answer, state: shared.state.clone() })
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

    pub(crate) fn ended(&self) -> Error {
        why_ended(&self.shared.state)
    }

    pub(crate) fn http_client(&self) -> Result<HttpClient> {
        let address = self.shared.http.clone().ok_or(Error::NoHttpAddress)?;
        let token = self.shared.token.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(HttpClient::new(address, token.as_ref().map(Token::secret))?)
    }
}

/// An answer to come.
pub(crate) struct Asking {
    answer: oneshot::Receiver<Result<Outcome>>,
    state: watch::Receiver<ConnectionState>,
}

impl Future for Asking {
    type Output = Result<Outcome>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        let answer = std::pin::Pin::new(&mut self.answer).poll(context);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(why_ended(&self.state))))
    }
}

fn why_ended(state: &watch::Receiver<ConnectionState>) -> Error {
    match &*state.borrow() {
        ConnectionState::Ended(error) => error.clone(),
        _ => Error::Ended,
    }
}

pub(crate) fn not_answered(op: &str, outcome: &Outcome) -> Error {
    Error::NotUnderstood(format!("{op} is answered by {outcome:?}"))
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &*self.shared.state.borrow())
            .finish_non_exhaustive()
    }
}
