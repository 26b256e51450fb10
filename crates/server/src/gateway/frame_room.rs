//! The memory of the frames of one connection that have not arrived completely, or are not answered yet.
//!
//! The first bytes of every connection are free: usually there is no more than a part of a small frame.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use prombus_bus::{Memory, Share};
use tokio::time::Instant;

use super::wire::READ_BYTES;

pub(super) struct FrameRoom {
    share: Share,
    /// Set while nothing is read because other connections have most of the budget.
    freed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Since when the message that is arriving has more than the free bytes.
    large_since: Option<Instant>,
}

/// How long a large message may take to arrive, or to get room.
const ARRIVAL_TIME: Duration = Duration::from_secs(10);
/// How far each byte of it moves that deadline: 16 KiB per second are enough.
const TIME_PER_BYTE: Duration = Duration::from_nanos(1_000_000_000 / (16 << 10));

impl FrameRoom {
    pub(super) const fn new(share: Share) -> Self {
        Self { share, freed: None, large_since: None }
    }

    /// Returns how much may be read when `held` bytes are in memory and a whole read takes up to `growth`.
    /// Pending while there is no room.
    pub(super) fn poll_grow(
        &mut self,
        context: &mut Context<'_>,
        held: usize,
        growth: usize,
    ) -> Poll<usize> {
        if held < Memory::MINIMUM {
            self.share.set(0);
            self.freed = None;
            return Poll::Ready(READ_BYTES.min(self.share.allowance() - held));
        }
        self.share.set(held);
        loop {
            if self.share.try_grow_to(held + growth) {
                self.freed = None;
                return Poll::Ready(READ_BYTES);
            }
            match self.freed.as_mut().map(|freed| freed.as_mut().poll(context)) {
                Some(Poll::Pending) => return Poll::Pending,
                Some(Poll::Ready(())) => self.freed = None,
                None => {
                    let mut freed = Box::pin(self.share.budget().freed());
                    // Tries again before it waits: from now on it notices room.
                    if freed.as_mut().poll(context).is_pending() {
                        self.freed = Some(freed);
                    }
                }
            }
        }
    }

    /// Returns whether nothing is read for lack of room.
    pub(super) const fn is_waiting(&self) -> bool {
        self.freed.is_some()
    }

    /// Notes that `partial` bytes of a message have arrived.
    pub(super) fn arriving(&mut self, partial: usize) {
        if partial <= Memory::MINIMUM {
            self.large_since = None;
        } else {
            self.large_since.get_or_insert_with(Instant::now);
        }
    }

    /// Restarts the time of the message: we do not read it.
    pub(super) const fn restart(&mut self) {
        self.large_since = None;
    }

    /// Returns when a message of which `partial` bytes have arrived has to be complete.
    pub(super) fn complete_by(&self, partial: usize) -> Option<Instant> {
        let bytes = u32::try_from(partial).unwrap_or(u32::MAX);
        self.large_since.map(|since| since + ARRIVAL_TIME + TIME_PER_BYTE * bytes)
    }
}

#[cfg(test)]
mod tests {
    use prombus_bus::Budget;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_large_message_gets_time_by_its_size_and_only_while_it_is_read() {
        let mut room = FrameRoom::new(Budget::new(1 << 20, Memory::MINIMUM).share());
        let start = Instant::now();
        room.arriving(Memory::MINIMUM);
        assert_eq!(room.complete_by(Memory::MINIMUM), None);
        room.arriving(2 * Memory::MINIMUM);
        tokio::time::advance(Duration::from_secs(5)).await;
        room.arriving(3 * Memory::MINIMUM);
        let by = room.complete_by(3 * Memory::MINIMUM).unwrap();
        assert_eq!((by - start).as_secs(), 12);
        room.restart();
        room.arriving(3 * Memory::MINIMUM);
        let by = room.complete_by(3 * Memory::MINIMUM).unwrap();
        assert_eq!((by - start).as_secs(), 17);
    }
}
