//! Text within HTML. Everything that is not a tag goes through here.

/// The text, so that it means nothing but itself, within quotes, too.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// The text, with what is between backticks as code.
pub(super) fn with_code(text: &str) -> String {
    let parts = text.split('`').map(escaped).enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { format!("<code>{part}</code>") } else { part }).collect()
}

/// The same, where an empty line begins a paragraph.
pub(super) fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").filter(|paragraph| !paragraph.is_empty());
    paragraphs.map(|paragraph| format!("<p>{}</p>\n", with_code(paragraph))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_markup() {
        assert_eq!(escaped(r#"<a href="x">'&'"#), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;");
        assert_eq!(with_code("a `<b>` c"), "a <code>&lt;b&gt;</code> c");
        assert_eq!(paragraphs("a\n\n`b`"), "<p>a</p>\n<p><code>b</code></p>\n");
        assert_eq!(paragraphs(""), "");
    }
}
