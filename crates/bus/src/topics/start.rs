//! Where reading a topic begins.

use prombus_engine::Engine;
use prombus_proto::{ErrorCode, EventId, Seq, Timestamp, Topic};

use crate::error::Refusal;

/// Where a new group, a replay or a follower begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With what is published from now on.
    Latest,
    /// With the oldest event kept.
    Earliest,
    /// With the first event of this time or later.
    Time(Timestamp),
    /// Behind the event of this id.
    AfterId(EventId),
}

impl StartAt {
    /// The first event there, which may be one that does not exist yet.
    pub(crate) async fn first(&self, engine: &dyn Engine, topic: &Topic) -> Result<Seq, Refusal> {
        match self {
            StartAt::Latest => Ok(engine.bounds(topic).await?.next),
            StartAt::Earliest => Ok(engine.bounds(topic).await?.first),
            StartAt::Time(ts) => Ok(engine.seek_time(topic, *ts).await?),
            StartAt::AfterId(id) => match engine.seek_id(topic, id).await? {
                Some(seq) => Ok(seq.next()),
                None => {
                    let message = format!("{topic} holds no event {id}");
                    Err(Refusal::new(ErrorCode::UnknownId, message))
                }
            },
        }
    }
}
