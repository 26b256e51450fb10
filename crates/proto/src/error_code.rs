//! What can go wrong, as every wire says it.

use std::fmt;

macro_rules! error_codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $status:literal, $retry:ident;)*) => {
        /// A stable code: the same word on the WebSocket, in HTTP and in the clients.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$doc])* $variant,)*
        }

        impl ErrorCode {
            /// Every code there is.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $code,)* }
            }

            /// The code that `word` is, if this version knows it.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($code => Some(ErrorCode::$variant),)* _ => None }
            }

            /// The HTTP status it is answered with.
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(ErrorCode::$variant => $status,)* }
            }

            /// Whether the same request may succeed later.
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
    /// The text is no JSON.
    BadJson = "bad_json", 400, final;
    /// JSON, but not what this operation takes.
    BadFrame = "bad_frame", 400, final;
    /// No operation of this name.
    UnknownOp = "unknown_op", 400, final;
    /// Not a topic name.
    BadTopic = "bad_topic", 400, final;
    /// Not a group name.
    BadGroup = "bad_group", 400, final;
    /// Larger than the limit.
    PayloadTooLarge = "payload_too_large", 413, final;
    /// Nobody has said who they are.
    Unauthorized = "unauthorized", 401, final;
    /// A token that is unknown, expired or damaged.
    BadToken = "bad_token", 401, final;
    /// Known, but not allowed to.
    Forbidden = "forbidden", 403, final;
    /// A token bucket is empty.
    RateLimited = "rate_limited", 429, retry;
    /// This connection subscribes to that topic and group already.
    AlreadySubscribed = "already_subscribed", 409, final;
    /// This connection does not subscribe to that topic and group.
    NotSubscribed = "not_subscribed", 409, final;
    /// The topic holds no event of this id.
    UnknownId = "unknown_id", 404, final;
    /// The lease went to somebody else in the meantime.
    LeaseLost = "lease_lost", 409, final;
    /// Nothing was ever published there and nobody configured it.
    UnknownTopic = "unknown_topic", 404, final;
    /// The payload does not fit the topic's schema.
    SchemaViolation = "schema_violation", 422, final;
    /// A precondition does not hold.
    Conflict = "conflict", 409, final;
    /// The store cannot take it now: full, failed or out of reach.
    StorageUnavailable = "storage_unavailable", 503, retry;
    /// The server is about to stop.
    ShuttingDown = "shutting_down", 503, retry;
    /// A fault of ours.
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
    fn is_the_list_the_protocol_names() {
        let words: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(
            words.join(" "),
            "bad_json bad_frame unknown_op bad_topic bad_group payload_too_large unauthorized \
             bad_token forbidden rate_limited already_subscribed not_subscribed unknown_id \
             lease_lost unknown_topic schema_violation conflict storage_unavailable \
             shutting_down internal"
        );
        assert_eq!(words.iter().collect::<HashSet<_>>().len(), words.len());
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::parse(code.as_str()), Some(*code));
        }
        assert_eq!(ErrorCode::parse("BAD_JSON"), None);
    }

    #[test]
    fn what_can_be_retried_is_never_the_callers_fault() {
        for code in ErrorCode::ALL {
            let status = code.http_status();
            assert!((400..600).contains(&status));
            if code.is_retryable() {
                assert!(status == 429 || status == 503, "{code}");
            }
        }
    }
}
