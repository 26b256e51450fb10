//! Changes that are completed even if the client disconnects meanwhile.

use std::future::Future;

use prombus_proto::ErrorCode;

use super::error::HttpError;

/// Runs `change` in its own task, so that it is neither left half done nor missing in the audit log. `purpose`
/// completes the sentence "cannot …".
pub(super) async fn complete<T: Send + 'static>(
    purpose: &str,
    change: impl Future<Output = Result<T, HttpError>> + Send + 'static,
) -> Result<T, HttpError> {
    tokio::spawn(change).await.unwrap_or_else(|error| {
        Err(HttpError::new(ErrorCode::Internal, format!("cannot {purpose}: {error}")))
    })
}
