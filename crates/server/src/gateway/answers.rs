//! The pending answers of one connection, in the order of the frames they answer.
//!
//! Frames that were submitted as one batch are answered by one [`PendingAnswer`].

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use prombus_bus::{
    Acked, Bus, GroupInfo, GroupReply, MemberId, Nacked, PendingCommit, Position, Refusal,
};
use prombus_proto::frame::{Corr, JoinedGroup, answer};
use prombus_proto::{EventId, Group, Topic};

use super::outgoing::Outgoing;

/// A queue of pending answers, oldest first.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Each with the bytes of the frames it answers.
    pending: VecDeque<(PendingAnswer, usize)>,
    /// Frames answered by `pending`.
    frames: usize,
    /// Ids in the ACKs and NACKs that `pending` answers.
    ids: usize,
    /// Bytes of all frames that were received and are not answered.
    frame_bytes: usize,
    /// The part of `frame_bytes` that belongs to the next pending answer.
    unassigned_bytes: usize,
}

/// Answers that become ready together.
#[derive(Debug)]
pub(super) enum PendingAnswer {
    /// The JSON of an answer that is ready.
    Ready(Vec<u8>),
    Published {
        commit: PendingCommit,
        frames: Vec<PublishedFrame>,
    },
    Acked {
        reply: GroupReply<Acked>,
        frames: Vec<AckedFrame>,
    },
    AckedAndMarked {
        acked: LaterAnswer<Acked>,
        frames: Vec<AckedFrame>,
    },
    AckedAndPublished {
        reply: GroupReply<Acked>,
        corr: Option<Corr>,
        ids: Vec<EventId>,
    },
    Marked {
        commit: PendingCommit,
        corr: Option<Corr>,
    },
    Seen {
        seen: LaterAnswer<Vec<EventId>>,
        corr: Option<Corr>,
    },
    Subscribed {
        joined: GroupReply<GroupInfo>,
        corr: Option<Corr>,
        membership: Membership,
    },
    Nacked {
        reply: GroupReply<Nacked>,
        ids: usize,
        corr: Option<Corr>,
    },
    Done {
        reply: GroupReply<()>,
        corr: Option<Corr>,
    },
}

/// An answer for which something has to be looked up. The lookup starts when all earlier frames are
/// answered, so it sees their effects.
pub(super) struct LaterAnswer<T>(Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send>>);

/// A subscription, and which of several in a row it is.
pub(super) type Membership = ((Topic, Group), MemberId);

/// A SUBSCRIBE whose answer has been written.
#[derive(Debug)]
pub(super) struct AnsweredSubscribe {
    pub(super) membership: Membership,
    pub(super) has_joined: bool,
}

/// One PUBLISH of a batch.
#[derive(Debug)]
pub(super) struct PublishedFrame {
    pub(super) corr: Option<Corr>,
    pub(super) ids: PublishedIds,
}

/// The event ids of a PUBLISH. They decide the shape of its answer: one result, or a list.
#[derive(Debug)]
pub(super) enum PublishedIds {
    One(EventId),
    Many(Vec<EventId>),
}

/// One ACK of a batch.
#[derive(Debug)]
pub(super) struct AckedFrame {
    pub(super) corr: Option<Corr>,
    /// How many ids it acknowledges.
    pub(super) ids: usize,
}

impl<T> LaterAnswer<T> {
    pub(super) fn new(answer: impl Future<Output = Result<T, Refusal>> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }
}

impl<T> fmt::Debug for LaterAnswer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaterAnswer")
    }
}

impl Answers {
    /// Counts a frame of `bytes` that a later [`PendingAnswer`] answers.
    pub(super) fn received(&mut self, bytes: usize) {
        self.frame_bytes += bytes;
        self.unassigned_bytes += bytes;
    }

    pub(super) fn push(&mut self, answer: PendingAnswer) {
        self.frames += answer.frames();
        self.ids += answer.ids();
        self.pending.push_back((answer, std::mem::take(&mut self.unassigned_bytes)));
    }

    pub(super) fn ok(&mut self, corr: Option<&Corr>) {
        let mut json = Vec::new();
        answer::write_ok(&mut json, corr);
        self.push(PendingAnswer::Ready(json));
    }

    pub(super) fn refuse(&mut self, corr: Option<&Corr>, refusal: &Refusal) {
        let mut json = Vec::new();
        write_refusal(&mut json, corr, refusal);
        self.push(PendingAnswer::Ready(json));
    }

    /// Returns the number of frames with a pending answer.
    pub(super) const fn frames(&self) -> usize {
        self.frames
    }

    /// Returns the number of ids in ACKs and NACKs with a pending answer.
    pub(super) const fn ids(&self) -> usize {
        self.ids
    }

    /// Returns the bytes of all unanswered frames.
    pub(super) const fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Writes the oldest answer when it is ready, and returns the SUBSCRIBE if it answers one. Stays pending
    /// when there is none.
    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Outgoing,
        bus: &Bus,
    ) -> Poll<Option<AnsweredSubscribe>> {
        let Some((oldest, bytes)) = self.pending.front_mut() else { return Poll::Pending };
        let answered = ready!(oldest.poll_write(context, out, bus));
        self.frames -= oldest.frames();
        self.ids -= oldest.ids();
        self.frame_bytes -= *bytes;
        self.pending.pop_front();
        Poll::Ready(answered)
    }
}

impl PendingAnswer {
    fn frames(&self) -> usize {
        match self {
            Self::Published { frames, .. } => frames.len(),
            Self::Acked { frames, .. } | Self::AckedAndMarked { frames, .. } => frames.len(),
            _ => 1,
        }
    }

    fn ids(&self) -> usize {
        match self {
            Self::Acked { frames, .. } | Self::AckedAndMarked { frames, .. } => {
                frames.iter().map(|frame| frame.ids).sum()
            }
            Self::Nacked { ids, .. } => *ids,
            _ => 0,
        }
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Outgoing,
        bus: &Bus,
    ) -> Poll<Option<AnsweredSubscribe>> {
        match self {
            Self::Ready(json) => out.text(|text| text.extend_from_slice(json)),
            Self::Published { commit, frames } => {
                match ready!(pin!(commit.stored()).poll(context)) {
                    Ok(positions) => write_published(out, frames, positions),
                    Err(refusal) => refuse_all(out, frames.iter().map(|it| &it.corr), &refusal),
                }
            }
            Self::Acked { reply, frames } => {
                write_acked(out, frames, ready!(poll_reply(reply, context, bus)));
            }
            Self::AckedAndMarked { acked, frames } => {
                write_acked(out, frames, ready!(acked.0.as_mut().poll(context)));
            }
            Self::AckedAndPublished { reply, corr, ids } => {
                let outcome = ready!(poll_reply(reply, context, bus));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, acked| {
                    answer::write_results(text, corr, results(ids, acked.published));
                });
            }
            Self::Marked { commit, corr } => {
                let outcome = ready!(pin!(commit.stored()).poll(context));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, _| {
                    answer::write_ok(text, corr);
                });
            }
            Self::Seen { seen, corr } => {
                let outcome = ready!(seen.0.as_mut().poll(context));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, seen| {
                    answer::write_seen(text, corr, &seen);
                });
            }
            Self::Subscribed { joined, corr, membership } => {
                let outcome = ready!(poll_reply(joined, context, bus));
                let has_joined = outcome.is_ok();
                write_outcome(out, corr.as_ref(), outcome, |text, corr, group| {
                    let GroupInfo { max_attempts, created } = group;
                    answer::write_subscribed(text, corr, JoinedGroup { max_attempts, created });
                });
                let membership = membership.clone();
                return Poll::Ready(Some(AnsweredSubscribe { membership, has_joined }));
            }
            Self::Nacked { reply, corr, .. } => {
                let outcome = ready!(poll_reply(reply, context, bus));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, Nacked { stale }| {
                    write_ok_or_stale(text, corr, stale);
                });
            }
            Self::Done { reply, corr } => {
                let outcome = ready!(poll_reply(reply, context, bus));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, ()| {
                    answer::write_ok(text, corr);
                });
            }
        }
        Poll::Ready(None)
    }
}

fn poll_reply<T>(
    reply: &mut GroupReply<T>,
    context: &mut Context<'_>,
    bus: &Bus,
) -> Poll<Result<T, Refusal>> {
    let reply = ready!(pin!(reply).poll(context));
    Poll::Ready(reply.unwrap_or_else(|_| Err(bus.dropped_reply())))
}

fn write_outcome<T>(
    out: &mut Outgoing,
    corr: Option<&Corr>,
    outcome: Result<T, Refusal>,
    write: impl FnOnce(&mut Vec<u8>, Option<&Corr>, T),
) {
    out.text(|text| match outcome {
        Ok(value) => write(text, corr, value),
        Err(refusal) => write_refusal(text, corr, &refusal),
    });
}

/// `positions` are those of all events of `frames`, in order.
fn write_published(out: &mut Outgoing, frames: &[PublishedFrame], positions: Vec<Position>) {
    let mut positions = positions.into_iter();
    for PublishedFrame { corr, ids } in frames {
        let corr = corr.as_ref();
        match ids {
            PublishedIds::One(id) => {
                let Some(Position { seq, duplicate }) = positions.next() else { return };
                out.text(|text| answer::write_published(text, corr, id, seq, duplicate));
            }
            PublishedIds::Many(ids) => out.text(|text| {
                answer::write_results(text, corr, results(ids, positions.by_ref()));
            }),
        }
    }
}

fn results(
    ids: &[EventId],
    positions: impl IntoIterator<Item = Position>,
) -> impl Iterator<Item = (&EventId, prombus_proto::Seq, bool)> {
    ids.iter().zip(positions).map(|(id, position)| (id, position.seq, position.duplicate))
}

fn write_acked(out: &mut Outgoing, frames: &[AckedFrame], acked: Result<Acked, Refusal>) {
    let acked = match acked {
        Ok(acked) => acked,
        Err(refusal) => return refuse_all(out, frames.iter().map(|it| &it.corr), &refusal),
    };
    let mut stale = acked.stale.iter().copied().peekable();
    let mut end = 0;
    for AckedFrame { corr, ids } in frames {
        end += ids;
        let mut is_stale = false;
        while stale.next_if(|index| *index < end).is_some() {
            is_stale = true;
        }
        out.text(|text| write_ok_or_stale(text, corr.as_ref(), is_stale));
    }
}

fn write_ok_or_stale(text: &mut Vec<u8>, corr: Option<&Corr>, is_stale: bool) {
    match is_stale {
        true => answer::write_stale(text, corr),
        false => answer::write_ok(text, corr),
    }
}

fn refuse_all<'a>(
    out: &mut Outgoing,
    corrs: impl Iterator<Item = &'a Option<Corr>>,
    refusal: &Refusal,
) {
    for corr in corrs {
        out.text(|text| write_refusal(text, corr.as_ref(), refusal));
    }
}

fn write_refusal(text: &mut Vec<u8>, corr: Option<&Corr>, refusal: &Refusal) {
    // Rounded up: a client that waits this long must not be too early.
    let retry_after_ms = refusal.retry_after.map(|time| time.as_nanos().div_ceil(1_000_000));
    let retry_after_ms = retry_after_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX));
    answer::write_err(text, refusal.code, &refusal.message, corr, retry_after_ms);
}
