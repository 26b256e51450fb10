//! Text of others, for one line of a terminal.

/// Replaces control characters, which a terminal may take for commands, and cuts text that is too long.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    let is_long = text.chars().count() > max_chars;
    let kept = if is_long { max_chars.saturating_sub(1) } else { max_chars };
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(kept).map(printable).collect();
    if is_long {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_one_line() {
        for (text, line) in [
            ("", ""),
            ("déjà vu", "déjà vu"),
            ("too long by far", "too lon…"),
            ("a\n\tb\x1b[2", "a  b [2"),
            ("\u{9b}2J", " 2J"),
        ] {
            assert_eq!(one_line(text, 8), line, "{text:?}");
        }
    }
}
