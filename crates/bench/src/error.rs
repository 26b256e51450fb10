//! Why a bench did not come to its end.

use prombus_bus::Refusal;
use prombus_client::transport::{AddressError, HttpFailure, WebSocketError};
use prombus_proto::{ErrorCode, InvalidPayload};
use thiserror::Error;

/// Why a bench did not come to its end.
#[derive(Debug, Error)]
pub enum BenchError {
    /// There is no such work.
    #[error("{0}")]
    Load(String),
    /// The server's URL, or its certificates, cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// There is no connection to it.
    #[error(transparent)]
    NotReached(#[from] WebSocketError),
    /// HTTP went wrong.
    #[error(transparent)]
    Http(#[from] HttpFailure),
    /// The bus refused something.
    #[error("the bus refused: {code}: {message}{}", advice(*code))]
    Refused {
        /// Why.
        code: ErrorCode,
        /// In its words.
        message: String,
    },
    /// The connection ended.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// It answered something that has no place here.
    #[error("not understood: {0}")]
    NotUnderstood(String),
    /// What was measured is not what was meant.
    #[error("{0}")]
    Meaningless(String),
    /// The operating system said no.
    #[error("{what}: {source}")]
    System {
        /// To what.
        what: String,
        /// In its words.
        source: std::io::Error,
    },
}

/// Refusals would be measured in place of the bus, so they end a bench.
const fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RateLimited => {
            "; refusals are not measured: start the server with --set limits.enabled=false, or stay \
             below its limits by --rate"
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
    fn a_limit_is_named_with_the_setting_to_change() {
        let refused = |code| BenchError::Refused { code, message: "no".to_owned() }.to_string();
        assert!(refused(ErrorCode::RateLimited).contains("limits.enabled=false"));
        assert_eq!(refused(ErrorCode::Forbidden), "the bus refused: forbidden: no");
    }
}
