//! What is made of the measurements: medians, ratios, a page with tables, and charts.

mod chart;
mod page;
mod results;

pub use page::write_docs;
pub use results::{
    Disk, Facts, Machine, Measurement, Missing, Outcome, Plan, Results, US, Work, median,
};

#[cfg(test)]
mod tests;
