//! Where reading a topic starts.

use prombus_engine::Engine;
use prombus_proto::{ErrorCode, EventId, Seq, Timestamp, Topic};

use crate::error::Refusal;

/// Where a new group, a replay or a follower starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the first event published from now on.
    Latest,
    /// At the oldest retained event.
    Earliest,
    /// At the first event of this time or later.
    Time(Timestamp),
    /// After the event with this id.
    AfterId(EventId),
    /// At this position, or at the oldest retained event behind it.
    Seq(Seq),
}

impl StartAt {
    /// Returns the `seq` of the first event, which may not exist yet.
    pub(crate) async fn first(&self, engine: &dyn Engine, topic: &Topic) -> Result<Seq, Refusal> {
        match self {
            StartAt::Latest => Ok(engine.bounds(topic).await?.next),
            StartAt::Earliest => Ok(engine.bounds(topic).await?.first),
            StartAt::Time(ts) => Ok(engine.seek_time(topic, *ts).await?),
            StartAt::Seq(seq) => Ok(*seq),
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
