//! A strict parser of the Prometheus text format 0.0.4, less forgiving than a scraper.

use std::collections::BTreeMap;

/// The labels of a series, sorted by name.
pub(crate) type Labels = BTreeMap<String, String>;

pub(crate) struct Exposition(BTreeMap<String, Family>);

pub(crate) struct Family {
    kind: Kind,
    /// By the sample's name and labels.
    samples: BTreeMap<(String, Labels), f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Exposition {
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n') && !text.contains("\n\n"), "whole lines, none of them empty");
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) = comment(line, "HELP");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            let (typed, kind) = comment(lines.next().unwrap_or_default(), "TYPE");
            assert_eq!(typed, name, "TYPE comes right behind HELP");
            let kind = match kind {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                "histogram" => Kind::Histogram,
                other => panic!("{name}: {other}"),
            };
            assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
            let mut samples = BTreeMap::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let (series, value) = sample(line);
                assert!(kind.has(name, &series), "{line} in {name}");
                assert!(value.is_finite() && (kind == Kind::Gauge || value >= 0.0), "{line}");
                assert!(samples.insert(series, value).is_none(), "twice: {line}");
            }
            let family = Family { kind, samples };
            family.check(name);
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} comes twice");
        }
        Self(families)
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// The label names of a family, without `le`.
    pub(crate) fn label_names(&self, family: &str) -> Vec<&str> {
        let labels = self.0[family].samples.keys().next().map(|(_, labels)| labels);
        let names = labels.into_iter().flat_map(|labels| labels.keys());
        names.map(String::as_str).filter(|name| *name != "le").collect()
    }

    pub(crate) fn kind(&self, family: &str) -> String {
        format!("{:?}", self.0[family].kind).to_lowercase()
    }

    /// Every series of a family.
    pub(crate) fn series(&self, family: &str) -> Vec<(&Labels, f64)> {
        let family = self.0.get(family).map(|family| &family.samples);
        family.into_iter().flatten().map(|((_, labels), value)| (labels, *value)).collect()
    }

    /// The value of a counter or a gauge. Panics if the series does not exist.
    pub(crate) fn value(&self, family: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted = labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let key = (family.to_owned(), wanted.collect());
        let samples = &self.0.get(family).unwrap_or_else(|| panic!("no {family}")).samples;
        *samples.get(&key).unwrap_or_else(|| panic!("no {family} with {labels:?}"))
    }

    /// The number of observations of a histogram without labels.
    pub(crate) fn count(&self, family: &str) -> f64 {
        self.0[family].samples[&(format!("{family}_count"), Labels::new())]
    }

    /// The sum of its observations.
    pub(crate) fn sum(&self, family: &str) -> f64 {
        self.0[family].samples[&(format!("{family}_sum"), Labels::new())]
    }
}

impl Kind {
    fn has(self, family: &str, (name, labels): &(String, Labels)) -> bool {
        match (self, name.strip_prefix(family)) {
            (Kind::Histogram, Some("_bucket")) => labels.contains_key("le"),
            (Kind::Histogram, Some("_sum" | "_count")) => !labels.contains_key("le"),
            (Kind::Counter | Kind::Gauge, Some("")) => true,
            _ => false,
        }
    }
}

impl Family {
    /// Checks that every series of a histogram is complete and its buckets are cumulative.
    fn check(&self, name: &str) {
        if self.kind != Kind::Histogram {
            return;
        }
        let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for ((sample, labels), value) in &self.samples {
            if sample.ends_with("_bucket") {
                let mut labels = labels.clone();
                let bound = labels.remove("le").unwrap();
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                buckets.entry(labels).or_default().push((bound, *value));
            }
        }
        assert_eq!(self.samples.len(), buckets.values().map(|all| all.len() + 2).sum::<usize>());
        for (labels, mut buckets) in buckets {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{name}");
            let last = *buckets.last().unwrap();
            let count = self.samples[&(format!("{name}_count"), labels.clone())];
            assert_eq!(last, (f64::INFINITY, count), "{name}");
            assert!(self.samples.contains_key(&(format!("{name}_sum"), labels)), "{name}");
        }
    }
}

/// Splits a comment of this kind into a name and the rest.
fn comment<'a>(line: &'a str, kind: &str) -> (&'a str, &'a str) {
    let rest = line.strip_prefix(&format!("# {kind} ")).unwrap_or_else(|| panic!("{kind}: {line}"));
    rest.split_once(' ').unwrap_or_else(|| panic!("{line}"))
}

/// Parses a sample into its name, labels and value. Label values contain no quotes.
fn sample(line: &str) -> ((String, Labels), f64) {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => {
            (name, labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}")))
        }
        None => (series, ""),
    };
    assert!(is_name(name), "{line}");
    let mut read = Labels::new();
    for label in labels.split(',').filter(|label| !label.is_empty()) {
        let (label, value) = label.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        let value = value.strip_suffix('"').unwrap_or_else(|| panic!("{line}"));
        assert!(is_name(label) && !value.contains(['"', '\\']), "{line}");
        assert!(read.insert(label.to_owned(), value.to_owned()).is_none(), "{line}");
    }
    ((name.to_owned(), read), value.parse().unwrap_or_else(|_| panic!("{line}")))
}

fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c == '_';
    name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
}
