//! The pending answers of one connection, in the order of the frames they answer.
//!
//! Frames that were submitted as one batch are answered by one [`PendingAnswer`].

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use prombus_bus::{
    Acked, AckedAndMarked, Bus, GroupInfo, GroupReply, MemberId, Nacked, PendingCommit, Position,
    Refusal,
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
    /// The SUBSCRIBEs that `pending` answers.
    subscribes: usize,
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
        acked: LaterAnswer<AckedAndMarked>,
        frames: Vec<AckedFrame>,
    },
    AckedAndPublished {
        reply: GroupReply<Acked>,
        corr: Option<Corr>,
        /// How many ids it acknowledges.
        acked: usize,
        published: Vec<EventId>,
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
        key: (Topic, Group),
        member: MemberId,
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

/// What follows from an answer that has been written.
#[derive(Debug)]
pub(super) struct Written {
    /// The SUBSCRIBE that it answers.
    pub(super) subscribe: Option<AnsweredSubscribe>,
    /// The frames that it refuses. Those of [`Answers::refuse`] are not among them.
    pub(super) refused: Option<RefusedFrames>,
}

#[derive(Debug)]
pub(super) struct AnsweredSubscribe {
    pub(super) key: (Topic, Group),
    /// Which of several subscriptions in a row it is.
    pub(super) member: MemberId,
    pub(super) has_joined: bool,
}

/// Frames that were refused after something was tried.
#[derive(Debug)]
pub(super) struct RefusedFrames {
    pub(super) refusal: Refusal,
    pub(super) frames: usize,
    pub(super) bytes: usize,
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
        self.subscribes += usize::from(answer.is_subscribe());
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

    /// Returns `true` if the answer to a SUBSCRIBE is pending.
    pub(super) const fn has_subscribe(&self) -> bool {
        self.subscribes > 0
    }

    /// Returns the bytes of all unanswered frames.
    pub(super) const fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Writes the oldest answer when it is ready. Stays pending when there is none.
    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Outgoing,
        bus: &Bus,
    ) -> Poll<Written> {
        let Some((oldest, _)) = self.pending.front_mut() else { return Poll::Pending };
        let outcome = ready!(oldest.poll_write(context, out, bus));
        let (answer, bytes) = self.pending.pop_front().expect("it was just written");
        let frames = answer.frames();
        self.frames -= frames;
        self.ids -= answer.ids();
        self.subscribes -= usize::from(answer.is_subscribe());
        self.frame_bytes -= bytes;
        let refused = outcome.err().map(|refusal| RefusedFrames { refusal, frames, bytes });
        let subscribe = match answer {
            PendingAnswer::Subscribed { key, member, .. } => {
                Some(AnsweredSubscribe { key, member, has_joined: refused.is_none() })
            }
            _ => None,
        };
        Poll::Ready(Written { subscribe, refused })
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
            Self::AckedAndPublished { acked, .. } => *acked,
            _ => 0,
        }
    }

    const fn is_subscribe(&self) -> bool {
        matches!(self, Self::Subscribed { .. })
    }

    /// Writes the answer when it is ready. The error is why its frames are refused.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        out: &mut Outgoing,
        bus: &Bus,
    ) -> Poll<Result<(), Refusal>> {
        Poll::Ready(match self {
            Self::Ready(json) => {
                out.text(|text| text.extend_from_slice(json));
                Ok(())
            }
            Self::Published { commit, frames } => {
                let outcome = ready!(pin!(commit.stored()).poll(context));
                refuse_or(out, frames.iter().map(|it| &it.corr), outcome, |out, positions| {
                    write_published(out, frames, positions);
                })
            }
            Self::Acked { reply, frames } => {
                let outcome = ready!(poll_reply(reply, context, bus));
                refuse_or(out, frames.iter().map(|it| &it.corr), outcome, |out, acked| {
                    write_acked(out, frames, &acked, &Ok(()));
                })
            }
            Self::AckedAndMarked { acked, frames } => {
                let outcome = ready!(acked.0.as_mut().poll(context));
                refuse_or(out, frames.iter().map(|it| &it.corr), outcome, |out, outcome| {
                    write_acked(out, frames, &outcome.acked, &outcome.stale_marked);
                })
            }
            Self::AckedAndPublished { reply, corr, published, .. } => {
                let outcome = ready!(poll_reply(reply, context, bus));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, acked| {
                    answer::write_results(text, corr, results(published, acked.published));
                })
            }
            Self::Marked { commit, corr } => {
                let outcome = ready!(pin!(commit.stored()).poll(context));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, _| {
                    answer::write_ok(text, corr);
                })
            }
            Self::Seen { seen, corr } => {
                let outcome = ready!(seen.0.as_mut().poll(context));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, seen| {
                    answer::write_seen(text, corr, &seen);
                })
            }
            Self::Subscribed { joined, corr, .. } => {
                let outcome = ready!(poll_reply(joined, context, bus));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, group| {
                    let GroupInfo { max_attempts, created } = group;
                    answer::write_subscribed(text, corr, JoinedGroup { max_attempts, created });
                })
            }
            Self::Nacked { reply, corr, .. } => {
                let outcome = ready!(poll_reply(reply, context, bus));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, Nacked { stale }| {
                    write_ok_or_stale(text, corr, stale);
                })
            }
            Self::Done { reply, corr } => {
                let outcome = ready!(poll_reply(reply, context, bus));
                write_outcome(out, corr.as_ref(), outcome, |text, corr, ()| {
                    answer::write_ok(text, corr);
                })
            }
        })
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
) -> Result<(), Refusal> {
    let mut written = Ok(());
    out.text(|text| match outcome {
        Ok(value) => write(text, corr, value),
        Err(refusal) => {
            write_refusal(text, corr, &refusal);
            written = Err(refusal);
        }
    });
    written
}

/// Writes the answers to several frames, which have the same outcome.
fn refuse_or<'a, T>(
    out: &mut Outgoing,
    corrs: impl Iterator<Item = &'a Option<Corr>>,
    outcome: Result<T, Refusal>,
    write: impl FnOnce(&mut Outgoing, T),
) -> Result<(), Refusal> {
    match outcome {
        Ok(value) => {
            write(out, value);
            Ok(())
        }
        Err(refusal) => {
            for corr in corrs {
                out.text(|text| write_refusal(text, corr.as_ref(), &refusal));
            }
            Err(refusal)
        }
    }
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

/// `stale_marked` is the outcome of what followed for the stale ids: it concerns the frames with such ids only.
fn write_acked(
    out: &mut Outgoing,
    frames: &[AckedFrame],
    acked: &Acked,
    stale_marked: &Result<(), Refusal>,
) {
    let mut stale = acked.stale.iter().copied().peekable();
    let mut end = 0;
    for AckedFrame { corr, ids } in frames {
        end += ids;
        let mut is_stale = false;
        while stale.next_if(|index| *index < end).is_some() {
            is_stale = true;
        }
        out.text(|text| match stale_marked {
            Err(refusal) if is_stale => write_refusal(text, corr.as_ref(), refusal),
            _ => write_ok_or_stale(text, corr.as_ref(), is_stale),
        });
    }
}

fn write_ok_or_stale(text: &mut Vec<u8>, corr: Option<&Corr>, is_stale: bool) {
    match is_stale {
        true => answer::write_stale(text, corr),
        false => answer::write_ok(text, corr),
    }
}

fn write_refusal(text: &mut Vec<u8>, corr: Option<&Corr>, refusal: &Refusal) {
    // Rounded up: a client that waits this long must not be too early.
    let retry_after_ms = refusal.retry_after.map(|time| time.as_nanos().div_ceil(1_000_000));
    let retry_after_ms = retry_after_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX));
    answer::write_err(text, refusal.code, &refusal.message, corr, retry_after_ms);
}
