//! The close codes that the gateway sends.

/// Why the gateway closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// The server is shutting down. Clients should reconnect: another server may be up already.
    GoingAway,
    /// The client violated the WebSocket protocol. Reconnecting does not help.
    ProtocolError,
    /// A text message was not UTF-8. Reconnecting does not help.
    NotUtf8,
    /// A frame exceeded the size limit. Clients may reconnect and send smaller frames.
    FrameTooLarge,
    /// The client did not read what was sent to it. Clients may reconnect and read faster, or ask
    /// for less.
    SlowConsumer,
    /// The client did not authenticate in time. Clients may reconnect with a token.
    NotAuthenticated,
    /// The client's token has expired, and it sent no other one in time. Clients may reconnect with a new
    /// token.
    TokenExpired,
    /// No pong arrived in time. Clients should reconnect.
    NoPong,
}

impl CloseCode {
    pub const ALL: &'static [CloseCode] = &[
        CloseCode::GoingAway,
        CloseCode::ProtocolError,
        CloseCode::NotUtf8,
        CloseCode::FrameTooLarge,
        CloseCode::SlowConsumer,
        CloseCode::NotAuthenticated,
        CloseCode::TokenExpired,
        CloseCode::NoPong,
    ];

    /// Returns the number on the wire: the one of RFC 6455 where it defines one.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            CloseCode::GoingAway => 1001,
            CloseCode::ProtocolError => 1002,
            CloseCode::NotUtf8 => 1007,
            CloseCode::FrameTooLarge => 1009,
            CloseCode::SlowConsumer => 4008,
            CloseCode::NoPong => 4009,
            CloseCode::NotAuthenticated | CloseCode::TokenExpired => 4401,
        }
    }

    /// Returns the reason on the wire.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            CloseCode::GoingAway => "the server is shutting down",
            CloseCode::ProtocolError => "WebSocket protocol violation",
            CloseCode::NotUtf8 => "text message is not UTF-8",
            CloseCode::FrameTooLarge => "frame exceeds the size limit",
            CloseCode::SlowConsumer => "slow consumer: sent data was not read in time",
            CloseCode::NoPong => "no pong received in time",
            CloseCode::NotAuthenticated => "not authenticated in time",
            CloseCode::TokenExpired => "the token has expired",
        }
    }
}
