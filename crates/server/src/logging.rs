//! Logging to stderr: text for people, JSON for programs.

use std::env;
use std::io::{self, IsTerminal};
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;

/// A log level, optionally with overrides per module.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter(Targets);

impl LogFilter {
    /// Parses `info`, or `info,prombus_server::gateway=debug`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut targets = Targets::new().with_default(LevelFilter::OFF);
        for part in text.split(',').map(str::trim) {
            targets = match part.split_once('=') {
                Some((module, level)) => targets.with_target(module, parse_level(level)?),
                None => targets.with_default(parse_level(part)?),
            };
        }
        Some(Self(targets))
    }
}

/// Accepts lower-case names only; `LevelFilter` would also accept numbers and the empty string.
fn parse_level(text: &str) -> Option<LevelFilter> {
    let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
    is_name.then(|| LevelFilter::from_str(text).ok()).flatten()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    Text,
    /// One JSON object per line.
    Json,
}

/// The format of log lines, [`LogFormat::Auto`] resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    Text,
    Json,
}

/// The target of the lines that say that the server is ready, and that it has stopped. They are logged whatever
/// the level is: programs wait for them.
pub const LIFECYCLE: &str = "lifecycle";

/// The process has a logger already.
pub type AlreadyStarted = dispatcher::SetGlobalDefaultError;

/// Starts logging to stderr, for the whole process. Returns the format of the lines.
pub fn start(filter: &LogFilter, format: LogFormat) -> Result<LineFormat, AlreadyStarted> {
    let terminal = io::stderr().is_terminal();
    let format = match format {
        LogFormat::Auto if terminal => LineFormat::Text,
        LogFormat::Auto => LineFormat::Json,
        LogFormat::Text => LineFormat::Text,
        LogFormat::Json => LineFormat::Json,
    };
    let no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let style = match (format, terminal && !no_color) {
        (LineFormat::Json, _) => Style::Json,
        (LineFormat::Text, true) => Style::Colored,
        (LineFormat::Text, false) => Style::Plain,
    };
    dispatcher::set_global_default(dispatch(filter, style, io::stderr))?;
    Ok(format)
}

#[derive(Clone, Copy)]
enum Style {
    Colored,
    Plain,
    Json,
}

fn dispatch<W>(filter: &LogFilter, style: Style, writer: W) -> Dispatch
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = fmt::layer().with_writer(writer);
    let layer = match style {
        Style::Colored => lines.with_ansi(true).boxed(),
        Style::Plain => lines.with_ansi(false).boxed(),
        Style::Json => lines.json().flatten_event(true).boxed(),
    };
    let filter = filter.0.clone().with_target(LIFECYCLE, LevelFilter::INFO);
    Dispatch::new(Registry::default().with(layer.with_filter(filter)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(filter: &str, style: Style) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let filter = LogFilter::parse(filter).unwrap();
        let dispatch = dispatch(&filter, style, move || writer.clone());
        dispatcher::with_default(&dispatch, || {
            tracing::info!(target: "prombus_server::gateway", connections = 3, "listening");
            tracing::debug!(target: "prombus_server::gateway", "frame");
            tracing::debug!(target: "prombus_engine", "checkpoint");
            tracing::info!(target: LIFECYCLE, "ready");
        });
        let bytes = buffer.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_is_one_object_per_line() {
        let log = written("debug", Style::Json);
        let lines: Vec<serde_json::Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[0]["message"], "listening");
        assert_eq!(lines[0]["connections"], 3);
        assert_eq!(lines[0]["target"], "prombus_server::gateway");
        assert!(lines[0]["timestamp"].is_string());
    }

    #[test]
    fn text_is_colored_only_on_request() {
        let plain = written("info", Style::Plain);
        assert!(plain.contains("INFO prombus_server::gateway: listening connections=3"), "{plain}");
        assert!(!plain.contains('\x1b'), "{plain:?}");
        assert!(written("info", Style::Colored).contains('\x1b'));
    }

    #[test]
    fn levels_apply_globally_or_per_module() {
        let lines = |filter| written(filter, Style::Plain).lines().count();
        // The last line is always logged.
        assert_eq!(lines("off"), 1);
        assert_eq!(lines("warn"), 1);
        assert_eq!(lines("info"), 2);
        assert_eq!(lines("info,prombus_server=debug"), 3);
        assert_eq!(lines("trace"), 4);
        assert_eq!(lines("prombus_engine=debug"), 2);
    }

    #[test]
    fn rejects_invalid_levels() {
        for bad in ["", "inof", "INFO", "3", "info,", "a=", "a=loud", "prombus_server"] {
            assert_eq!(LogFilter::parse(bad), None, "{bad:?}");
        }
    }
}
