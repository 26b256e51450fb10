//! The error codes of the protocol.

use std::fmt;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:literal, $retry:ident;)*) => {
        /// A stable error code: the same on the WebSocket, in HTTP and in the clients.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the protocol's documentation.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// Returns the code as written on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $code,)* }
            }

            /// Parses a code from the wire. Returns `None` for one that this version does not know.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($code => Some(ErrorCode::$variant),)* _ => None }
            }

            /// Returns the status of an HTTP answer with this code.
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(ErrorCode::$variant => $status,)* }
            }

            /// Returns `true` if the same request may succeed later.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(ErrorCode::$variant => error_codes!(@$retry),)* }
            }
        }
    };
    (@retry) => { true };
    (@final) => { false };
}

error_codes! {
    /// The text is not valid JSON.
    BadJson = "bad_json", 400, final;
    /// The JSON is not a valid request for this operation.
    BadFrame = "bad_frame", 400, final;
    /// The operation does not exist.
    UnknownOp = "unknown_op", 400, final;
    /// The topic name is invalid.
    BadTopic = "bad_topic", 400, final;
    /// The group name is invalid.
    BadGroup = "bad_group", 400, final;
    /// A payload, frame or batch exceeds its limit.
    PayloadTooLarge = "payload_too_large", 413, final;
    /// The request carries no credentials.
    Unauthorized = "unauthorized", 401, final;
    /// The token is unknown, expired or malformed.
    BadToken = "bad_token", 401, final;
    /// The token does not grant this operation.
    Forbidden = "forbidden", 403, final;
    /// A rate limit is exceeded.
    RateLimited = "rate_limited", 429, retry;
    /// Something would be created of which there are as many as the server allows.
    LimitExceeded = "limit_exceeded", 429, final;
    /// The connection already has a subscription for this topic and group.
    AlreadySubscribed = "already_subscribed", 409, final;
    /// The connection has no subscription for this topic and group.
    NotSubscribed = "not_subscribed", 409, final;
    /// The topic has no event with this id.
    UnknownId = "unknown_id", 404, final;
    /// The lease has expired or belongs to another member by now.
    LeaseLost = "lease_lost", 409, final;
    /// Nothing was ever published to the topic, and it is not configured.
    UnknownTopic = "unknown_topic", 404, final;
    /// The topic has no such consumer group.
    UnknownGroup = "unknown_group", 404, final;
    /// The payload violates the topic's schema.
    SchemaViolation = "schema_violation", 422, final;
    /// A precondition does not hold.
    Conflict = "conflict", 409, final;
    /// The store is full, failed or unreachable.
    StorageUnavailable = "storage_unavailable", 503, retry;
    /// The server is shutting down.
    ShuttingDown = "shutting_down", 503, retry;
    /// A fault of the server.
    Internal = "internal", 500, final;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn lists_the_codes_that_the_protocol_documents() {
        let words: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(
            words.join(" "),
            "bad_json bad_frame unknown_op bad_topic bad_group payload_too_large unauthorized \
             bad_token forbidden rate_limited limit_exceeded already_subscribed not_subscribed \
             unknown_id lease_lost unknown_topic unknown_group schema_violation conflict \
             storage_unavailable shutting_down internal"
        );
        assert_eq!(words.iter().collect::<HashSet<_>>().len(), words.len());
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
        }
        assert_eq!(ErrorCode::parse("BAD_JSON"), None);
    }

    #[test]
    fn only_throttling_and_unavailability_are_retryable() {
        for code in ErrorCode::ALL {
            let status = code.http_status();
            assert!((400..600).contains(&status));
            if code.is_retryable() {
                assert!(status == 429 || status == 503, "{code}");
            }
        }
    }
}
