//! What an operator sees of the built binary: log lines, metrics, spans.
//!
//! - `log_lines`: each has the right subject and count, and a metric that agrees
//! - `figures`: what the store and the process report
//! - `dashboards`: the files under `deploy` use only what exists
//! - `spans`, `collector`: what arrives at an OpenTelemetry collector

#![expect(clippy::unwrap_used, reason = "test helpers fail like the tests that call them")]

mod collector;
mod dashboards;
mod figures;
mod log_lines;
mod observed;
mod spans;
