//! Counts for people.

/// Formats a count with thousands separators, such as `1,234,567`.
pub(super) fn human_count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_thousands() {
        let counts = [0, 999, 1000, 1_234_567].map(human_count);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
    }
}
