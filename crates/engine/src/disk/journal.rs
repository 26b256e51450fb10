//! The journal: the one thread that assigns positions and writes the write-ahead log.
//!
//! It gathers all waiting requests into a [`CommitBatch`], writes it as one frame, syncs once if any
//! of them asked for it, publishes the frame to readers and answers the requests. While a sync
//! runs, the next batch accumulates in the channel.

mod commit_batch;
mod gather_pace;
mod request;
mod retention;
mod staging;
mod wal_writer;

use std::sync::{Arc, mpsc};
use std::{mem, thread};

use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

pub(crate) use self::request::Request;
pub(crate) use self::wal_writer::JournalStart;

use self::commit_batch::CommitBatch;
use self::gather_pace::GatherPace;
use self::request::{CloseReply, Outcome, send};
use self::staging::Staging;
use self::staging::frame::RecordBuffers;
use self::wal_writer::{BackPressure, Persisted, WalWriter};
use super::checkpoint::CheckpointTask;
use super::shared::Shared;
use super::storage::reserve;
use crate::{CommitError, Condition, Unavailable, Version, WriteStats};

/// The journal thread.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    writer: WalWriter,
    buffers: RecordBuffers,
    pace: GatherPace,
}

impl Journal {
    pub(crate) fn new(
        shared: Arc<Shared>,
        requests: Receiver<Request>,
        checkpoints: mpsc::Sender<CheckpointTask>,
        start: &JournalStart,
    ) -> Self {
        Self {
            writer: WalWriter::new(Arc::clone(&shared), checkpoints, start),
            shared,
            requests,
            buffers: RecordBuffers::default(),
            pace: GatherPace::default(),
        }
    }

    /// Runs until it receives a close request or every sender is dropped.
    pub(crate) fn run(mut self) {
        let mut closing = Vec::new();
        while closing.is_empty() {
            let Some(first) = self.next_request() else { break };
            let batch = self.gather(first, &mut closing);
            self.serve(batch);
        }
        self.requests.close();
        let mut rest = self.new_batch();
        while let Ok(request) = self.requests.try_recv() {
            self.admit(request, &mut rest, &mut closing);
        }
        self.serve(rest);
        let result = self.close();
        self.shared.set_condition(Condition::Closed);
        self.shared.end_watches();
        for reply in closing {
            send(reply, result.clone());
        }
    }

    /// Serves `requests` as one batch, for tests that run without threads.
    #[cfg(test)]
    pub(crate) fn serve_all(&mut self, requests: Vec<Request>) {
        let mut batch = self.new_batch();
        for request in requests {
            self.admit(request, &mut batch, &mut Vec::new());
        }
        self.serve(batch);
    }

    /// Waits for a request. After a large batch it polls for a moment before it blocks: committers
    /// that were just answered come back at once, and a blocking wait with its wake-up would delay
    /// all of them.
    fn next_request(&mut self) -> Option<Request> {
        let deadline = self.pace.deadline();
        while self.pace.should_poll(&deadline) {
            match self.requests.try_recv() {
                Ok(request) => return Some(request),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => thread::yield_now(),
            }
        }
        self.requests.blocking_recv()
    }

    /// Gathers all waiting requests, and those of the committers of the last batch if they are about
    /// to come back. Stages each as it arrives.
    fn gather(&mut self, first: Request, closing: &mut Vec<CloseReply>) -> CommitBatch {
        let mut batch = self.new_batch();
        self.admit(first, &mut batch, closing);
        let mut deadline = self.pace.deadline();
        let mut waited = false;
        while closing.is_empty() && !batch.is_full() {
            match self.requests.try_recv() {
                Ok(request) => {
                    self.admit(request, &mut batch, closing);
                    if mem::take(&mut waited) {
                        self.pace.arrived(&mut deadline);
                    }
                }
                Err(_) if self.pace.expects_more(&batch, &deadline) => {
                    waited = true;
                    thread::yield_now();
                }
                Err(_) => break,
            }
        }
        batch
    }

    fn new_batch(&mut self) -> CommitBatch {
        // Nothing is staged yet that continues their numbering.
        self.shared.forget_deleted_topics();
        let now = self.shared.options.clock.now();
        let staging = Staging::new(mem::take(&mut self.buffers), now);
        CommitBatch::new(staging, self.check_condition().err())
    }

    /// Stages a request and adds it to the batch, or answers it at once if nothing is served now.
    fn admit(&mut self, request: Request, batch: &mut CommitBatch, closing: &mut Vec<CloseReply>) {
        if let Request::Close { reply } = request {
            closing.push(reply);
            return;
        }
        if let Some(error) = &batch.refusal {
            request.refuse(error.clone());
            return;
        }
        let outcome = self.stage(&request, &mut batch.staging);
        batch.push(request, outcome);
    }

    fn stage(&mut self, request: &Request, staging: &mut Staging) -> Outcome {
        let shared = &self.shared;
        match request {
            Request::Commit { batch, suffix_checksums, .. } => {
                let version = Version(self.writer.last_version + 1);
                match staging.stage(shared, &shared.ids(), (batch, suffix_checksums), version) {
                    Ok(positions) => {
                        self.writer.last_version = version.0;
                        Outcome::Committed { positions, version }
                    }
                    Err(error) => Outcome::Refused(error),
                }
            }
            Request::Trim { topic, below, .. } => {
                staging.stage_trim(shared, topic, *below);
                Outcome::Trimmed(topic.clone())
            }
            Request::Retain { topic, rule, .. } => {
                match staging.stage_retain(shared, topic, rule) {
                    Ok(()) => Outcome::Trimmed(topic.clone()),
                    Err(error) => Outcome::Refused(error),
                }
            }
            Request::Close { .. } => unreachable!("`admit` handles close requests"),
        }
    }

    fn serve(&mut self, batch: CommitBatch) {
        if let Err((waiting, error)) = self.store_and_answer(batch, BackPressure::Wait) {
            let mut requests: Vec<_> = waiting.into_iter().map(|(request, _)| request).collect();
            if matches!(error, CommitError::Full(_)) {
                let trims = requests.extract_if(.., |request| request.is_trim()).collect();
                self.serve_trims(trims);
            }
            requests.into_iter().for_each(|request| request.refuse(error.clone()));
        }
    }

    /// Serves trims on a full disk, in the space that was set aside for them: they free some.
    fn serve_trims(&mut self, trims: Vec<Request>) {
        if trims.is_empty() {
            return;
        }
        reserve::release(&self.shared.layout);
        let mut batch = self.new_batch();
        for request in trims {
            self.admit(request, &mut batch, &mut Vec::new());
        }
        if let Err((waiting, error)) = self.store_and_answer(batch, BackPressure::Ignore) {
            waiting.into_iter().for_each(|(request, _)| request.refuse(error.clone()));
        }
    }

    /// Stores the batch and answers its requests. If it is not stored, returns them unanswered.
    fn store_and_answer(
        &mut self,
        batch: CommitBatch,
        back_pressure: BackPressure,
    ) -> Result<(), (Vec<(Request, Outcome)>, CommitError)> {
        let CommitBatch { waiting, staging, wants_sync, .. } = batch;
        if waiting.is_empty() {
            return Ok(());
        }
        let persisted = match self.store(staging, wants_sync, back_pressure) {
            Ok(persisted) => persisted,
            Err(error) => return Err((waiting, error)),
        };
        self.pace.answered(waiting.len(), wants_sync);
        let events = waiting.iter().map(|(_, outcome)| outcome.events()).sum();
        let mut write = Some(WriteStats { events, sync_time: persisted.sync_time });
        for (request, outcome) in waiting {
            request.answer(&self.shared, outcome, persisted.durability, &mut write);
        }
        if wants_sync {
            self.writer.zero_ahead();
        }
        Ok(())
    }

    /// Writes, syncs and publishes the staged frame. After an error nothing of it is stored, or the
    /// engine is poisoned.
    fn store(
        &mut self,
        staging: Staging,
        sync: bool,
        back_pressure: BackPressure,
    ) -> Result<Persisted, CommitError> {
        if staging.is_empty() {
            return self.writer.sync_if(sync, &mut self.pace);
        }
        let mut frame =
            staging.into_frame(self.writer.next_frame, Version(self.writer.last_version));
        let offset = self.writer.write(&frame, back_pressure)?;
        let persisted = self.writer.sync_if(sync, &mut self.pace)?;
        self.buffers = frame.take_buffers();
        self.writer.publish(frame, offset);
        Ok(persisted)
    }

    fn check_condition(&self) -> Result<(), CommitError> {
        match self.shared.condition() {
            Condition::Poisoned(reason) => Err(Unavailable::Poisoned(reason).into()),
            Condition::Closed => Err(Unavailable::Closed.into()),
            Condition::Healthy | Condition::Full(_) => Ok(()),
        }
    }

    /// Checkpoints everything, so that the next start has nothing to replay.
    fn close(&mut self) -> Result<(), CommitError> {
        self.writer.stop_waiting_for_space();
        self.check_condition()?;
        self.writer.seal_and_stop()?;
        self.check_condition()
    }
}
