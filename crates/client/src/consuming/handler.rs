//! Handlers and their results.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use prombus_proto::frame::AfterNack;
use prombus_proto::limits::MAX_NACK_DELAY_MS;
use prombus_proto::{NewEvent, Topic};
use serde::de::DeserializeOwned;

use crate::consuming::received::{Delivery, Received};
use crate::session::frames::millis;

/// Why a handler failed. `?` converts any error into one.
///
/// The event is redelivered; after the last attempt it becomes a dead letter that contains the
/// reason. An error made by [`reject`](Self::reject) makes it one at once.
#[derive(Debug)]
pub struct HandlerError {
    reason: String,
    next: AfterNack,
}

impl HandlerError {
    /// Creates an error with this reason.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), next: AfterNack::BackOff }
    }

    /// Creates an error that rejects the event: it becomes a dead letter with this reason at once,
    /// however many attempts it has left. For events that no retry can help.
    ///
    /// ```
    /// # use prombus_client::{HandlerError, Received};
    /// async fn handle(order: Received<String>) -> Result<(), HandlerError> {
    ///     let cents: u64 = order.payload.parse().map_err(HandlerError::reject)?;
    ///     # let _ = cents;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn reject(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), next: AfterNack::Dead }
    }

    /// Sets the time until the redelivery, instead of the server's back-off. Does not change a
    /// rejection, after which there is none.
    #[must_use]
    pub fn again_after(mut self, delay: Duration) -> Self {
        if self.next != AfterNack::Dead {
            self.next = AfterNack::DelayMs(millis(delay).min(MAX_NACK_DELAY_MS));
        }
        self
    }
}

impl<E: StdError> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut reason = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            reason += &format!(": {error}");
            cause = error.source();
        }
        Self { reason, next: AfterNack::BackOff }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// A handler's result.
#[derive(Debug)]
pub(crate) enum Handled {
    Done,
    /// Done, with output to be published.
    Produced(Vec<(Topic, NewEvent)>),
    Failed {
        reason: String,
        next: AfterNack,
    },
}

impl From<HandlerError> for Handled {
    fn from(HandlerError { reason, next }: HandlerError) -> Self {
        Handled::Failed { reason, next }
    }
}

pub(crate) type Handling = Pin<Box<dyn Future<Output = Handled> + Send>>;
/// A type-erased handler.
pub(crate) type Handler = Arc<dyn Fn(Delivery) -> Handling + Send + Sync>;

/// Returns a handler that decodes the event, calls `handle` and converts its result with
/// `handled`. A panic counts as a failure.
pub(crate) fn handler<T, O, H, F>(
    handle: H,
    handled: impl Fn(O) -> Handled + Send + Sync + 'static,
) -> Handler
where
    T: DeserializeOwned + Send + 'static,
    H: Fn(Received<T>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<O, HandlerError>> + Send + 'static,
{
    let (handle, handled) = (Arc::new(handle), Arc::new(handled));
    Arc::new(move |delivery| {
        let (handle, handled) = (Arc::clone(&handle), Arc::clone(&handled));
        Box::pin(async move {
            let run = async move {
                match delivery.decode() {
                    Ok(event) => handle(event).await.map_or_else(Handled::from, |o| handled(o)),
                    Err(error) => HandlerError::new(error).into(),
                }
            };
            let ran = AssertUnwindSafe(run).catch_unwind().await;
            ran.unwrap_or_else(|panic| HandlerError::new(panic_message(&*panic)).into())
        })
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("no message"))
}
