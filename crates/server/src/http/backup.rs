//! `GET /backup`: a consistent copy of the store, as one stream.
//!
//! What is removed while a backup runs takes space until the backup has read it, so a client that reads too
//! slowly is not waited for.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use prombus_bus::{BACKUP_BYTES, Backup, BackupChunk, BackupError, OnDamage, Refusal, Share};
use prombus_proto::ErrorCode;
use tokio::time::Instant;

use super::error::HttpError;
use super::query::{QueryParams, invalid};
use super::request_grant::{RequestGrant, WatchedGrant};
use super::{HttpState, Peer, response};
use crate::auth::Action;

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    Extension(peer): Extension<Arc<Peer>>,
    grant: RequestGrant,
    method: Method,
    uri: Uri,
) -> Result<Response, HttpError> {
    let query = QueryParams::parse(&uri, &["damaged"])?;
    let on_damage = match query.text("damaged") {
        None | Some("stop") => OnDamage::Stop,
        Some("include") => OnDamage::Include,
        Some(_) => return Err(invalid("damaged", "must be stop or include")),
    };
    grant.require(Action::Admin)?;
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let backup = http.bus().backup(on_damage).await.map_err(refused)?;
        grant.administered("backup");
        let (files, bytes) = (backup.files(), backup.bytes());
        tracing::info!(files, bytes, "a backup has started");
        let running = RunningBackup::new(http, peer, backup, grant.into_watched());
        Body::from_stream(stream::try_unfold(running, |mut running| async move {
            let next = running.next().await.inspect_err(|refusal| {
                tracing::warn!("the backup is not complete: {refusal}");
            })?;
            Ok::<_, Refusal>(next.map(|bytes| (bytes, running)))
        }))
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/vnd.prombus.backup"));
    let name = HeaderValue::from_static("attachment; filename=\"prombus.backup\"");
    headers.insert(CONTENT_DISPOSITION, name);
    Ok(response)
}

fn refused(error: BackupError) -> HttpError {
    let is_unsupported = matches!(error, BackupError::Unsupported(_));
    let error = HttpError::from(Refusal::from(error));
    if is_unsupported { error.with_status(StatusCode::NOT_IMPLEMENTED) } else { error }
}

/// A backup on its way to the client.
struct RunningBackup {
    http: Arc<HttpState>,
    peer: Arc<Peer>,
    backup: Backup,
    /// The backup ends with the rights of its request.
    grant: WatchedGrant,
    pace: Pace,
    /// When the client was given the last chunk.
    given: Option<Instant>,
    /// The memory of the backup, without the chunks that wait for the client.
    _room: Share,
}

impl RunningBackup {
    fn new(http: Arc<HttpState>, peer: Arc<Peer>, backup: Backup, grant: WatchedGrant) -> Self {
        let mut room = http.bus().memory().responses.share();
        room.set(BACKUP_BYTES);
        Self { http, peer, backup, grant, pace: Pace::default(), given: None, _room: room }
    }

    /// Returns the next bytes of the response, or `None` at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        if let Some(given) = self.given.take() {
            self.pace.waited(given.elapsed());
        }
        self.check()?;
        match self.backup.next().await {
            BackupChunk::Bytes(bytes) => {
                self.pace.sent(bytes.len());
                self.given = Some(Instant::now());
                let room = self.http.bus().memory().responses.share();
                Ok(Some(response::counted(bytes, room)))
            }
            BackupChunk::Complete => {
                tracing::info!(bytes = self.pace.sent, "the backup is complete");
                Ok(None)
            }
            BackupChunk::Failed(error) => {
                // The client gets the reason, which is in the last bytes.
                self.peer.accepted.flushed.wait().await;
                Err(error.into())
            }
        }
    }

    fn check(&mut self) -> Result<(), Refusal> {
        if self.http.phases.borrow().is_stopping() {
            return Err(Refusal::shutting_down());
        }
        if self.grant.has_ended(Action::Admin) {
            let message = "the token has expired or was removed";
            return Err(Refusal::new(ErrorCode::Unauthorized, message));
        }
        if self.pace.is_too_slow() {
            let message =
                format!("the client takes less than {LEAST_BYTES_PER_SEC} bytes per second");
            return Err(Refusal::new(ErrorCode::RateLimited, message));
        }
        Ok(())
    }
}

/// The least that a client takes on average, beside the limit that all responses have.
const LEAST_BYTES_PER_SEC: u64 = 64 << 10;
/// How long the server waits for a client in any case.
const GRACE: Duration = Duration::from_secs(60);

/// How fast a client takes a backup.
#[derive(Debug, Default)]
struct Pace {
    sent: u64,
    /// How long the server waited for the client.
    waited: Duration,
}

impl Pace {
    fn sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    fn is_too_slow(&self) -> bool {
        let expected = self.waited.saturating_sub(GRACE).as_secs() * LEAST_BYTES_PER_SEC;
        self.sent < expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_take_its_time_but_not_for_ever() {
        let mut pace = Pace::default();
        pace.sent(1 << 20);
        pace.waited(GRACE);
        assert!(!pace.is_too_slow());
        pace.waited(Duration::from_secs(16));
        assert!(!pace.is_too_slow(), "as fast as it has to be");
        pace.waited(Duration::from_secs(1));
        assert!(pace.is_too_slow());
        pace.sent(1 << 20);
        assert!(!pace.is_too_slow());
    }
}
