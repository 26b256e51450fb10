//! A line on stderr that shows the progress of a command.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// A line on stderr that is redrawn in place. Draws nothing when stderr is not a terminal.
pub(super) struct StatusLine {
    is_visible: bool,
    started: Instant,
    updated: Instant,
}

impl StatusLine {
    /// Hides the line if the output of the command goes to the same terminal.
    pub(super) fn new(output_is_terminal: bool) -> Self {
        let now = Instant::now();
        let is_visible = io::stderr().is_terminal() && !output_is_terminal;
        Self { is_visible, started: now, updated: now }
    }

    pub(super) fn is_visible(&self) -> bool {
        self.is_visible
    }

    /// Seconds since the start; never zero, so rates can divide by it.
    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64().max(0.001)
    }

    /// Redraws the line, at most once per interval.
    pub(super) fn update(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.is_visible && self.updated.elapsed() >= UPDATE_INTERVAL {
            self.updated = Instant::now();
            self.set(&line(self));
        }
    }

    /// Redraws the line now.
    pub(super) fn set(&self, line: &str) {
        if self.is_visible {
            // Return to the start of the line, and erase what is left of the old one.
            eprint!("\r{line}\x1b[K");
            // A closed terminal is not an error.
            let _ = io::stderr().flush();
        }
    }

    /// Draws the line for the last time and moves below it.
    pub(super) fn finish(&self, line: &str) {
        if self.is_visible {
            self.set(line);
            eprintln!();
        }
    }

    /// Prints a message on a line of its own, even when stderr is not a terminal.
    pub(super) fn println(&self, message: &str) {
        let (start, end) = if self.is_visible { ("\r", "\x1b[K") } else { ("", "") };
        eprintln!("{start}prombus: {message}{end}");
    }
}
