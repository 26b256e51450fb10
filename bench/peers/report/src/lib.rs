//! The report on the measurements: medians and ratios, the section of `docs/benchmarks.md`, and charts.

mod chart;
mod page;
mod results;
mod steal;

pub use page::write_docs;
pub use results::{
    DiskLatency, Machine, Measurement, MissingSystem, Outcome, PROMBUS, Plan, Results, StealFree,
    SystemInfo, Workload, median,
};
pub use steal::{Span, StealSamples};

#[cfg(test)]
mod tests;
