//! Text of others, for one line of a terminal.

/// Replaces control characters, which a terminal may take for commands, and cuts text that is too long.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    let is_long = text.chars().count() > max_chars;
    let kept = if is_long { max_chars.saturating_sub(1) } else { max_chars };
    let printable = |c: char| if c.is_control() || is_direction(c) { ' ' } else { c };
    let mut line: String = text.chars().take(kept).map(printable).collect();
    if is_long {
        line.push('…');
    }
    line
}

/// Returns `true` for marks that change the direction of the text after them.
const fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
            ("a\u{202e}b", "a b"),
        ] {
            assert_eq!(one_line(text, 8), line, "{text:?}");
        }
    }
}
