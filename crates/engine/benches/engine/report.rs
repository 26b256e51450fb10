//! The figures, as a table.

/// Rows of figures.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 5]>,
}

impl Report {
    /// A figure, what it is compared with, and what the ratio has to be.
    pub(crate) fn row(
        &mut self,
        what: &str,
        ours: String,
        baseline: String,
        ratio: String,
        goal: &str,
    ) {
        eprintln!("  {what}: {ours} | {baseline} | {ratio} | {goal}");
        self.rows.push([what.to_owned(), ours, baseline, ratio, goal.to_owned()]);
    }

    pub(crate) fn print(&self) {
        println!("| what | engine | baseline | ratio | goal |");
        println!("|---|---|---|---|---|");
        for row in &self.rows {
            println!("| {} |", row.join(" | "));
        }
    }
}

/// The one in the middle: these machines are noisy.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn million(per_second: f64) -> String {
    format!("{:.2} M/s", per_second / 1e6)
}
