//! The results as a table.

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 5]>,
}

impl Report {
    /// Adds a result, the baseline it is compared with, their ratio and the goal for it.
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

/// Returns the median, which is robust against the noise of shared machines.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn million(per_second: f64) -> String {
    format!("{:.2} M/s", per_second / 1e6)
}
