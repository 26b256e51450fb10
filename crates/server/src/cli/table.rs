//! A plain-text table whose columns fit their content.

use std::fmt::Write;

pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&name| name.to_owned()).collect()] }
    }

    pub(super) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Renders the table. The first `left` columns are aligned left, the others right.
    pub(super) fn render(&self, left: usize) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let written = if column < left {
                    write!(line, "{cell:<width$}  ")
                } else {
                    write!(line, "{cell:>width$}  ")
                };
                written.expect("writing to a String never fails");
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_names_left_and_numbers_right() {
        let mut table = Table::new(&["topic", "group", "lag"]);
        table.push(vec!["a".to_owned(), "billing".to_owned(), "12".to_owned()]);
        table.push(vec!["orders.é".to_owned(), "b".to_owned(), "1234".to_owned()]);
        let expected =
            "topic     group     lag\na         billing    12\norders.é  b        1234\n";
        assert_eq!(table.render(2), expected);
    }
}
