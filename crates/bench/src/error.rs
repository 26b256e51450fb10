//! Why a bench failed.

use prombus_bus::Refusal;
use prombus_client::transport::{AddressError, HttpFailure, WebSocketError};
use prombus_proto::{ErrorCode, InvalidPayload};
use thiserror::Error;

/// Why a bench failed.
#[derive(Debug, Error)]
pub enum BenchError {
    /// An option of the load is not valid.
    #[error("{0}")]
    Load(String),
    /// The server's URL, or its certificates, cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The server cannot be reached.
    #[error(transparent)]
    NotReached(#[from] WebSocketError),
    /// An HTTP request failed.
    #[error(transparent)]
    Http(#[from] HttpFailure),
    /// The bus refused a frame.
    #[error("the bus refused: {code}: {message}{}", advice(*code))]
    Refused { code: ErrorCode, message: String },
    /// The connection was lost.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server sent something unexpected.
    #[error("unexpected data from the server: {0}")]
    NotUnderstood(String),
    /// The measurement is not valid.
    #[error("{0}")]
    Invalid(String),
    /// A call of the operating system failed.
    #[error("{what}: {source}")]
    System { what: String, source: std::io::Error },
}

/// A bench ends at the first refusal, because it would measure refusals instead of the bus.
const fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RateLimited => {
            "; start the server with --set limits.enabled=false, or stay below its limits with --rate"
        }
        _ => "",
    }
}

impl From<Refusal> for BenchError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { code: refusal.code, message: refusal.message }
    }
}

impl From<InvalidPayload> for BenchError {
    fn from(error: InvalidPayload) -> Self {
        Self::NotUnderstood(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_setting_that_lifts_the_limit() {
        let refused = |code| BenchError::Refused { code, message: "no".to_owned() }.to_string();
        assert!(refused(ErrorCode::RateLimited).contains("limits.enabled=false"));
        assert_eq!(refused(ErrorCode::Forbidden), "the bus refused: forbidden: no");
    }
}
