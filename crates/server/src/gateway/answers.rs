//! The answers of one connection, in the order of the frames they answer.
//!
//! Frames that came together are asked together and wait here as one.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use prombus_bus::{Acked, Answer, Nacked, Refusal, Submitted};
use prombus_proto::frame::{Corr, answer};
use prombus_proto::{ErrorCode, EventId};

use super::outgoing::Outgoing;

/// The answers that are still due, oldest first.
#[derive(Debug, Default)]
pub(super) struct Answers {
    due: VecDeque<(Due, usize)>,
    /// How many frames they answer.
    frames: usize,
    /// How many bytes those frames have.
    frame_bytes: usize,
    /// How many of these belong to what is due next.
    owed_bytes: usize,
    /// How many frames were ever answered.
    answered: u64,
}

/// Answers that become ready together.
#[derive(Debug)]
pub(super) enum Due {
    /// Ready as it is: the JSON of the answer.
    Ready(Vec<u8>),
    Published {
        submitted: Submitted,
        frames: Vec<PublishedFrame>,
    },
    Acked {
        answer: Answer<Acked>,
        frames: Vec<AckedFrame>,
    },
    AckedAndPublished {
        answer: Answer<Acked>,
        corr: Option<Corr>,
        ids: Vec<EventId>,
    },
    Marked {
        submitted: Submitted,
        corr: Option<Corr>,
    },
    /// Looked up when all before it is answered: it tells of what those did.
    Seen {
        looking: Looking,
        corr: Option<Corr>,
    },
    Nacked {
        answer: Answer<Nacked>,
        corr: Option<Corr>,
    },
    Done {
        answer: Answer<()>,
        corr: Option<Corr>,
    },
}

/// Marks being looked up.
pub(super) struct Looking(Pin<Box<dyn Future<Output = Result<Vec<EventId>, Refusal>> + Send>>);

/// A PUBLISH among others.
#[derive(Debug)]
pub(super) struct PublishedFrame {
    pub(super) corr: Option<Corr>,
    pub(super) ids: PublishedIds,
}

/// The events of a PUBLISH, and with that the form of its answer.
#[derive(Debug)]
pub(super) enum PublishedIds {
    One(EventId),
    Many(Vec<EventId>),
}

/// An ACK among others, of so many ids.
#[derive(Debug)]
pub(super) struct AckedFrame {
    pub(super) corr: Option<Corr>,
    pub(super) ids: usize,
}

impl Looking {
    pub(super) fn new(
        looking: impl Future<Output = Result<Vec<EventId>, Refusal>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(looking))
    }
}

impl fmt::Debug for Looking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Looking")
    }
}

impl Answers {
    /// A frame of so many bytes will be answered.
    pub(super) fn owe(&mut self, bytes: usize) {
        self.frame_bytes += bytes;
        self.owed_bytes += bytes;
    }

    pub(super) fn push(&mut self, due: Due) {
        self.frames += due.frames();
        self.due.push_back((due, std::mem::take(&mut self.owed_bytes)));
    }

    pub(super) fn ok(&mut self, corr: Option<&Corr>) {
        let mut json = Vec::new();
        answer::write_ok(&mut json, corr);
        self.push(Due::Ready(json));
    }

    pub(super) fn refuse(&mut self, corr: Option<&Corr>, refusal: &Refusal) {
        let mut json = Vec::new();
        write_refusal(&mut json, corr, refusal);
        self.push(Due::Ready(json));
    }

    /// How many frames wait for their answer.
    pub(super) const fn frames(&self) -> usize {
        self.frames
    }

    /// How many bytes the frames have that wait for their answer.
    pub(super) const fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// How many frames will have been answered when all that is due now is.
    pub(super) const fn last(&self) -> u64 {
        self.answered + self.frames as u64
    }

    pub(super) const fn answered(&self) -> u64 {
        self.answered
    }

    /// Writes the oldest answers if they are ready.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>, out: &mut Outgoing) -> Poll<()> {
        let Some((oldest, bytes)) = self.due.front_mut() else { return Poll::Pending };
        ready!(oldest.poll_write(context, out));
        let frames = oldest.frames();
        self.frame_bytes -= *bytes;
        self.due.pop_front();
        self.frames -= frames;
        self.answered += frames as u64;
        Poll::Ready(())
    }
}

impl Due {
    fn frames(&self) -> usize {
        match self {
            Due::Published { frames, .. } => frames.len(),
            Due::Acked { frames, .. } => frames.len(),
            _ => 1,
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>, out: &mut Outgoing) -> Poll<()> {
        match self {
            Due::Ready(json) => out.text(|text| text.extend_from_slice(json)),
            Due::Published { submitted, frames } => {
                match ready!(pin!(submitted.stored()).poll(context)) {
                    Ok(positions) => {
                        let mut positions = positions.into_iter();
                        for PublishedFrame { corr, ids } in frames {
                            write_published(out, corr.as_ref(), ids, &mut positions);
                        }
                    }
                    Err(refusal) => frames.iter().for_each(|frame| {
                        out.text(|text| write_refusal(text, frame.corr.as_ref(), &refusal));
                    }),
                }
            }
            Due::Acked { answer, frames } => match ready!(poll_answer(answer, context)) {
                Ok(acked) => write_acked(out, frames, &acked),
                Err(refusal) => frames.iter().for_each(|frame| {
                    out.text(|text| write_refusal(text, frame.corr.as_ref(), &refusal));
                }),
            },
            Due::AckedAndPublished { answer, corr, ids } => {
                let corr = corr.as_ref();
                match ready!(poll_answer(answer, context)) {
                    Ok(acked) => out.text(|text| {
                        let places = ids.iter().zip(&acked.published);
                        let results = places.map(|(id, place)| (id, place.seq, place.duplicate));
                        answer::write_results(text, corr, results);
                    }),
                    Err(refusal) => out.text(|text| write_refusal(text, corr, &refusal)),
                }
            }
            Due::Marked { submitted, corr } => {
                let corr = corr.as_ref();
                match ready!(pin!(submitted.stored()).poll(context)) {
                    Ok(_) => out.text(|text| answer::write_ok(text, corr)),
                    Err(refusal) => out.text(|text| write_refusal(text, corr, &refusal)),
                }
            }
            Due::Seen { looking, corr } => {
                let corr = corr.as_ref();
                match ready!(looking.0.as_mut().poll(context)) {
                    Ok(seen) => out.text(|text| answer::write_seen(text, corr, &seen)),
                    Err(refusal) => out.text(|text| write_refusal(text, corr, &refusal)),
                }
            }
            Due::Nacked { answer, corr } => {
                let corr = corr.as_ref();
                match ready!(poll_answer(answer, context)) {
                    Ok(Nacked { stale: true }) => out.text(|text| answer::write_stale(text, corr)),
                    Ok(_) => out.text(|text| answer::write_ok(text, corr)),
                    Err(refusal) => out.text(|text| write_refusal(text, corr, &refusal)),
                }
            }
            Due::Done { answer, corr } => {
                let corr = corr.as_ref();
                match ready!(poll_answer(answer, context)) {
                    Ok(()) => out.text(|text| answer::write_ok(text, corr)),
                    Err(refusal) => out.text(|text| write_refusal(text, corr, &refusal)),
                }
            }
        }
        Poll::Ready(())
    }
}

/// A group that is gone has stopped together with the server.
fn poll_answer<T>(answer: &mut Answer<T>, context: &mut Context<'_>) -> Poll<Result<T, Refusal>> {
    let answer = ready!(pin!(answer).poll(context));
    Poll::Ready(answer.unwrap_or_else(|_| Err(Refusal::shutting_down())))
}

fn write_published(
    out: &mut Outgoing,
    corr: Option<&Corr>,
    ids: &PublishedIds,
    positions: &mut impl Iterator<Item = prombus_bus::Position>,
) {
    match ids {
        PublishedIds::One(id) => {
            let Some(place) = positions.next() else { return };
            out.text(|text| answer::write_published(text, corr, id, place.seq, place.duplicate));
        }
        PublishedIds::Many(ids) => out.text(|text| {
            let places = ids.iter().zip(positions);
            let results = places.map(|(id, place)| (id, place.seq, place.duplicate));
            answer::write_results(text, corr, results);
        }),
    }
}

fn write_acked(out: &mut Outgoing, frames: &[AckedFrame], acked: &Acked) {
    let mut stale = acked.stale.iter().copied().peekable();
    let mut end = 0;
    for AckedFrame { corr, ids } in frames {
        end += ids;
        let mut is_stale = false;
        while stale.next_if(|place| *place < end).is_some() {
            is_stale = true;
        }
        out.text(|text| match is_stale {
            true => answer::write_stale(text, corr.as_ref()),
            false => answer::write_ok(text, corr.as_ref()),
        });
    }
}

pub(super) fn write_refusal(text: &mut Vec<u8>, corr: Option<&Corr>, refusal: &Refusal) {
    // Up, so that who waits that long finds it done.
    let retry_after_ms = refusal.retry_after.map(|time| time.as_nanos().div_ceil(1_000_000));
    let retry_after_ms = retry_after_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX));
    answer::write_err(text, refusal.code, &refusal.message, corr, retry_after_ms);
}

/// A refusal for what this connection does not subscribe to.
pub(super) fn not_subscribed() -> Refusal {
    let message = "this connection does not subscribe to that topic and group";
    Refusal::new(ErrorCode::NotSubscribed, message)
}
