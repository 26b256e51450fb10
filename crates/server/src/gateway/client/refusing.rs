//! Refused frames, and what they cost: the server has parsed them.

use prombus_bus::Refusal;
use prombus_proto::ErrorCode;
use prombus_proto::frame::Corr;

use super::{Client, now};
use crate::gateway::answers::RefusedFrames;

/// What a refused frame costs its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cost {
    /// The server could not serve it.
    Nothing,
    /// It came too early, and its client is to send it again: what exceeds a small frame.
    LargeRetry,
    Frame,
}

/// The bytes of a frame that came too early which cost nothing.
const FREE_RETRY_BYTES: usize = 4 << 10;

impl Cost {
    const fn of(refusal: &Refusal) -> Self {
        match refusal.code {
            ErrorCode::RateLimited if refusal.retry_after.is_some() => Self::LargeRetry,
            ErrorCode::StorageUnavailable | ErrorCode::ShuttingDown | ErrorCode::Internal => {
                Self::Nothing
            }
            _ => Self::Frame,
        }
    }
}

impl Client {
    /// Refuses a frame of `bytes`, after the frames before it.
    pub(in crate::gateway) async fn refuse_frame(
        &mut self,
        corr: Option<&Corr>,
        mut refusal: Refusal,
        bytes: usize,
    ) {
        self.charge_refused(&mut refusal, 1, bytes);
        self.submit_batch().await;
        self.answers.refuse(corr, &refusal);
    }

    /// Refuses a message that could not be read. No batch may be pending.
    pub(in crate::gateway) fn refuse_unparsed(&mut self, refusal: &Refusal) {
        self.answers.refuse(None, refusal);
    }

    /// Charges the client for frames whose refusal was written.
    pub(super) fn frames_refused(&self, refused: RefusedFrames) {
        let RefusedFrames { mut refusal, frames, bytes } = refused;
        self.charge_refused(&mut refusal, frames, bytes);
    }

    /// Takes the tokens for refused frames. A client that is to retry waits for these as well.
    fn charge_refused(&self, refusal: &mut Refusal, frames: usize, bytes: usize) {
        let (frames, bytes) = match Cost::of(refusal) {
            Cost::Nothing => return,
            Cost::LargeRetry => (0, bytes.saturating_sub(FREE_RETRY_BYTES)),
            Cost::Frame => (frames, bytes),
        };
        let delay = self.connection.limit.owe_refused_frames(frames, bytes, now());
        if let Some(retry_after) = &mut refusal.retry_after {
            *retry_after += delay;
        }
    }
}
