//! Numbers as they appear in tables.

pub(super) const NOT_MEASURED: &str = "–";

/// Formats a ratio.
pub(super) fn times(ratio: Option<f64>) -> String {
    match ratio {
        None => NOT_MEASURED.to_owned(),
        Some(ratio) if ratio >= 10.0 => format!("{ratio:.0}"),
        Some(ratio) => format!("{ratio:.2}"),
    }
}

pub(super) fn milliseconds(microseconds: Option<f64>) -> String {
    microseconds
        .map_or(NOT_MEASURED.to_owned(), |microseconds| format!("{:.2}", microseconds / 1000.0))
}

/// Rounds to a whole number, and separates thousands by commas.
pub(crate) fn grouped(value: f64) -> String {
    group_digits(&format!("{value:.0}"))
}

pub(super) fn with_commas(value: u64) -> String {
    group_digits(&value.to_string())
}

fn group_digits(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
