//! What is made of the measurements: medians, ratios, a page with tables, and charts.

mod chart;
mod page;
mod results;
mod stolen;

pub use page::write_docs;
pub use results::{
    Disk, Facts, Machine, Measurement, Missing, Outcome, Plan, Results, Spared, US, Work, median,
};
pub use stolen::{Span, Stolen};

#[cfg(test)]
mod tests;
