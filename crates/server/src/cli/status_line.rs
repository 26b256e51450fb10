//! One line that says how far a command is, for a person who watches.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the line is written anew.
const INTERVAL: Duration = Duration::from_millis(200);

/// A line on standard error that is written over and over.
pub(super) struct StatusLine {
    /// Whether somebody watches.
    is_shown: bool,
    began: Instant,
    shown_at: Instant,
}

impl StatusLine {
    /// Shown where standard error is a terminal that shows nothing else of this command.
    pub(super) fn beside(output_is_a_terminal: bool) -> Self {
        let now = Instant::now();
        let is_shown = io::stderr().is_terminal() && !output_is_a_terminal;
        Self { is_shown, began: now, shown_at: now }
    }

    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// How long it takes already, in seconds, and never nothing.
    pub(super) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64().max(0.001)
    }

    /// Shows what `line` makes, unless it did so a moment ago.
    pub(super) fn now_and_then(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.is_shown && self.shown_at.elapsed() >= INTERVAL {
            self.shown_at = Instant::now();
            self.show(&line(self));
        }
    }

    pub(super) fn show(&self, line: &str) {
        if self.is_shown {
            // Back to the start of the line, and nothing of the old one behind the new.
            eprint!("\r{line}\x1b[K");
            // A terminal that is gone is nobody's loss.
            let _ = io::stderr().flush();
        }
    }

    /// Shows the line for the last time; what comes then stands below it.
    pub(super) fn finish(&self, line: &str) {
        if self.is_shown {
            self.show(line);
            eprintln!();
        }
    }

    /// Says something that stays, watched or not.
    pub(super) fn say(&self, sentence: &str) {
        let (start, end) = if self.is_shown { ("\r", "\x1b[K") } else { ("", "") };
        eprintln!("{start}prombus: {sentence}{end}");
    }
}

/// Bytes as a person reads them.
pub(super) fn readable_bytes(bytes: f64) -> String {
    let mut rest = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest < 1000.0 {
            let places = usize::from(unit != "B" && rest < 100.0);
            return format!("{rest:.places$} {unit}");
        }
        rest /= 1024.0;
    }
    format!("{rest:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1000.0, "1.0 KiB"),
            (1536.0, "1.5 KiB"),
            (200.0 * 1024.0, "200 KiB"),
            (5.5e9, "5.1 GiB"),
            (2e15, "1819.0 TiB"),
        ] {
            assert_eq!(readable_bytes(bytes), text);
        }
    }
}
