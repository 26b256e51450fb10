//! A bar chart as SVG.

use std::fmt::Write;

use crate::page::grouped;

const WIDTH: f64 = 760.0;
const LABELS: f64 = 220.0;
const VALUES: f64 = 110.0;
const ROW: f64 = 28.0;
const HEAD: f64 = 34.0;

pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    pub(crate) is_prombus: bool,
    /// Whether a confirmed publish is on stable storage.
    pub(crate) fsynced: bool,
}

/// Draws horizontal bars. Those of systems that do not sync before they confirm are hollow.
pub(crate) fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let rows = bars.iter().fold(0.0, |rows, _| rows + ROW);
    let height = HEAD + rows + ROW;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif" font-size="13">
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
<text x="8" y="22" font-size="15" font-weight="bold" fill="#222222">{}</text>
"##,
        escaped(title)
    );
    let mut top = HEAD;
    for bar in bars {
        let share = if longest > 0.0 { bar.value / longest } else { 0.0 };
        let length = (share * (WIDTH - LABELS - VALUES)).max(1.0);
        let colour = if bar.is_prombus { "#c2410c" } else { "#475569" };
        let fill = if bar.fsynced { colour } else { "#ffffff" };
        let _ = writeln!(
            svg,
            r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="#222222">{}</text><rect x="{LABELS}" y="{:.1}" width="{length:.1}" height="18" fill="{fill}" stroke="{colour}"/><text x="{:.1}" y="{:.1}" fill="#222222">{}{unit}</text>"##,
            LABELS - 8.0,
            top + 18.0,
            escaped(&bar.label),
            top + 4.0,
            LABELS + length + 6.0,
            top + 18.0,
            grouped(bar.value),
        );
        top += ROW;
    }
    let _ = writeln!(
        svg,
        r##"<text x="{LABELS}" y="{:.1}" font-size="11" fill="#555555">filled: confirmed once on stable storage; hollow: confirmed before</text>
</svg>"##,
        top + 16.0
    );
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
