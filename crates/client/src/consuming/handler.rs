//! Handlers and their results.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use prombus_proto::{NewEvent, Topic};
use serde::de::DeserializeOwned;

use crate::consuming::received::{Delivery, Received};

/// Why a handler failed. `?` converts any error into one.
///
/// The event is redelivered; after the last attempt it becomes a dead letter that contains the
/// reason.
#[derive(Debug)]
pub struct HandlerError {
    reason: String,
    delay: Option<Duration>,
}

impl HandlerError {
    /// Creates an error with this reason.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), delay: None }
    }

    /// Sets the time until the redelivery, instead of the server's back-off.
    #[must_use]
    pub const fn again_after(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
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
        Self { reason, delay: None }
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
        delay: Option<Duration>,
    },
}

impl From<HandlerError> for Handled {
    fn from(HandlerError { reason, delay }: HandlerError) -> Self {
        Handled::Failed { reason, delay }
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
