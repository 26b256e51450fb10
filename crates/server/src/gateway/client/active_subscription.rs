//! One subscription of a client, from its SUBSCRIBE on.

use prombus_bus::{GroupReply, Subscription};

pub(super) struct ActiveSubscription {
    pub(super) subscription: Subscription,
    stage: Stage,
    /// Whether the client paused it. An expired token pauses subscriptions as well, which this does not
    /// record.
    is_paused: bool,
}

/// How far a SUBSCRIBE has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Joining,
    /// The group has a place in the topic, or refused the member. Nothing is delivered before the OK.
    Placed,
    Answered,
}

impl ActiveSubscription {
    pub(super) const fn joining(subscription: Subscription) -> Self {
        Self { subscription, stage: Stage::Joining, is_paused: false }
    }

    pub(super) const fn is_joining(&self) -> bool {
        matches!(self.stage, Stage::Joining)
    }

    /// Returns `true` if the client has been told that it is subscribed.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.stage, Stage::Answered)
    }

    /// Waits until the group has a place in its topic, or has refused the member.
    pub(super) async fn placed(&mut self) {
        // It is paused already. The group answers its commands in order, and drops them if it ends.
        let _ = self.subscription.pause().await;
        self.stage = Stage::Placed;
    }

    pub(super) fn pause(&mut self) -> GroupReply<()> {
        self.is_paused = true;
        self.subscription.pause()
    }

    /// Resumes deliveries. Before the OK of its SUBSCRIBE, that is left to [`ActiveSubscription::confirm`].
    pub(super) fn resume(&mut self) -> GroupReply<()> {
        self.is_paused = false;
        match self.stage {
            // Changes nothing: the reply says that the member has joined.
            Stage::Joining | Stage::Placed => self.subscription.pause(),
            Stage::Answered => self.subscription.resume(),
        }
    }

    /// Begins deliveries after the OK of its SUBSCRIBE, unless the client has paused it or lost its rights.
    pub(super) fn confirm(&mut self, may_deliver: bool) {
        self.stage = Stage::Answered;
        if may_deliver {
            self.resume_unless_paused();
        }
    }

    /// Lets the group deliver if the client wants deliveries.
    pub(super) fn resume_unless_paused(&self) {
        if self.stage == Stage::Answered && !self.is_paused {
            // No one waits for the reply.
            drop(self.subscription.resume());
        }
    }
}
