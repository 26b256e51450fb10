//! Receives a backup. A thread writes what arrives and checks it, one block after the other.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, Bytes};
use prombus_client::transport::HttpResponse;
use prombus_engine::disk::backup::{ArchiveError, BackupSummary, check_backup};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::target::Target;
use super::{DownloadError, progress};
use crate::cli::status_line::StatusLine;

/// How many parts of the response wait for the thread.
const PARTS_AHEAD: usize = 16;

pub(super) struct Download {
    parts: mpsc::Sender<Bytes>,
    checked: JoinHandle<Result<BackupSummary, DownloadError>>,
    counts: Arc<Counts>,
}

/// The bytes of content so far, and in total.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    total: AtomicU64,
}

impl Download {
    pub(super) fn start(target: &Target) -> Result<Self, DownloadError> {
        let out = target.writer().map_err(DownloadError::Write)?;
        let (parts, received) = mpsc::channel(PARTS_AHEAD);
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let checked = spawn_blocking(move || {
            let mut failure = None;
            let mut written = Written { received, part: Bytes::new(), out, failure: &mut failure };
            let summary = check_backup(&mut written, &mut |done, total| {
                counted.done.store(done, Ordering::Relaxed);
                counted.total.store(total, Ordering::Relaxed);
            });
            let flushed = written.out.flush();
            match (summary, failure, flushed) {
                (_, Some(error), _) | (Ok(_), None, Err(error)) => Err(DownloadError::Write(error)),
                (summary, None, _) => summary.map_err(DownloadError::Archive),
            }
        });
        Ok(Self { parts, checked, counts })
    }

    /// Receives all of a response.
    pub(super) async fn receive(
        self,
        mut answer: HttpResponse,
        line: &mut StatusLine,
    ) -> Result<BackupSummary, DownloadError> {
        let Self { parts, checked, counts } = self;
        let mut received = 0;
        let lost = loop {
            match answer.next().await {
                Ok(Some(part)) => {
                    received += part.len() as u64;
                    if parts.send(part).await.is_err() {
                        // The thread says why.
                        break None;
                    }
                }
                Ok(None) => break None,
                Err(failure) => break Some(failure),
            }
            line.update(|line| {
                let done = counts.done.load(Ordering::Relaxed);
                progress(line, done, counts.total.load(Ordering::Relaxed), received)
            });
        };
        drop(parts);
        let summary =
            checked.await.map_err(|error| DownloadError::Write(io::Error::other(error)))?;
        match (summary, lost) {
            // The end of the connection explains it.
            (Err(DownloadError::Archive(ArchiveError::Truncated(_))), Some(failure)) => {
                Err(DownloadError::Http(failure))
            }
            (summary, _) => summary,
        }
    }
}

/// The received bytes, each of which is written before it is checked.
struct Written<'a, W> {
    received: mpsc::Receiver<Bytes>,
    part: Bytes,
    out: W,
    failure: &'a mut Option<io::Error>,
}

impl<W: Write> Read for Written<'_, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.part.is_empty() {
            let Some(part) = self.received.blocking_recv() else { return Ok(0) };
            if let Err(error) = self.out.write_all(&part) {
                let kind = error.kind();
                *self.failure = Some(error);
                return Err(kind.into());
            }
            self.part = part;
        }
        let bytes = buffer.len().min(self.part.len());
        self.part.copy_to_slice(&mut buffer[..bytes]);
        Ok(bytes)
    }
}
