//! File operations that the standard library lacks.

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

/// Reads `bytes` bytes at `offset`, or fewer if the file ends before that. Reading at or past the
/// end is an `UnexpectedEof` error.
pub(crate) fn read_available(file: &File, offset: u64, bytes: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(bytes);
    while buffer.len() < bytes {
        // Reads into uninitialized memory: zeroing it took as long as verifying what was read.
        let next = offset + buffer.len() as u64;
        match pread(file, spare_capacity(&mut buffer), next) {
            Ok(0) if buffer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have returned more capacity than requested.
    buffer.truncate(bytes);
    Ok(Bytes::from(buffer))
}

/// Fsyncs a folder, which makes created, renamed and removed entries durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Maps `NotFound` to success, for removing a file that may already be gone.
pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
