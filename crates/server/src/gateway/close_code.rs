//! Why the gateway closes a connection, as the close frame says it.

/// A close code, and whether it makes sense to connect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCode {
    /// The server is about to stop. Connect again: another one may be there already.
    GoingAway,
    /// The client broke the WebSocket protocol. Connecting again helps only a repaired client.
    ProtocolError,
    /// A text was not UTF-8. Connecting again helps only a repaired client.
    NotUtf8,
    /// A frame was larger than the limit. Connect again, and send smaller ones.
    FrameTooLarge,
    /// The client did not read what was sent to it. Connect again, and read faster or ask for less.
    SlowConsumer,
    /// Nobody authenticated in time. Connect again with a token.
    NotAuthenticated,
    /// No pong came. Connect again.
    NoPong,
}

impl CloseCode {
    /// Every code there is.
    pub const ALL: &'static [CloseCode] = &[
        CloseCode::GoingAway,
        CloseCode::ProtocolError,
        CloseCode::NotUtf8,
        CloseCode::FrameTooLarge,
        CloseCode::SlowConsumer,
        CloseCode::NotAuthenticated,
        CloseCode::NoPong,
    ];

    /// The number on the wire. Where the WebSocket standard has one, it is that.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            CloseCode::GoingAway => 1001,
            CloseCode::ProtocolError => 1002,
            CloseCode::NotUtf8 => 1007,
            CloseCode::FrameTooLarge => 1009,
            CloseCode::SlowConsumer => 4008,
            CloseCode::NoPong => 4009,
            CloseCode::NotAuthenticated => 4401,
        }
    }

    /// The reason on the wire.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            CloseCode::GoingAway => "the server is about to stop",
            CloseCode::ProtocolError => "not the WebSocket protocol",
            CloseCode::NotUtf8 => "a text that is not UTF-8",
            CloseCode::FrameTooLarge => "a frame above the limit",
            CloseCode::SlowConsumer => "what was sent was not read in time",
            CloseCode::NoPong => "no pong came in time",
            CloseCode::NotAuthenticated => "not authenticated in time",
        }
    }
}
