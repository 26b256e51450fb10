//! Printing to stdout, and what happens when nobody reads it any more.

use std::error::Error;
use std::io::{self, Write};

/// The exit status of a program that SIGPIPE ended, as shells report it.
pub(crate) const SIGPIPE_STATUS: u8 = 128 + 13;

/// Prints to stdout.
pub(super) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// Returns `true` if the reader closed the pipe, as in `prombus replay … | head -1`. That is no reason to complain.
pub(super) fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
