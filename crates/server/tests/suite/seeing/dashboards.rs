//! `deploy/grafana/prombus.json` and `deploy/prometheus/alerts.yml` use only metrics and labels that exist, and the
//! alerts name sections of `docs/operations.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use yaml_rust2::{Yaml, YamlLoader};

use super::observed::Observed;

/// The sections of `docs/operations.md` for incidents.
const RUNBOOKS: [&str; 7] = [
    "poison-message",
    "stuck-group",
    "full-disk",
    "lost-disk",
    "lost-mongodb-primary",
    "leaked-token",
    "slow-consumer",
];
/// What is neither a metric nor a label in these files.
const WORDS: [&str; 22] = [
    "absent",
    "by",
    "delta",
    "deriv",
    "group_left",
    "histogram_quantile",
    "increase",
    "label_values",
    "max",
    "min",
    "on",
    "or",
    "and",
    "predict_linear",
    "rate",
    "sum",
    "time",
    "topk",
    "unless",
    "without",
    "avg",
    "count",
];
/// What Prometheus adds to every series.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

/// The metric families, each with its labels.
type Families = BTreeMap<String, BTreeSet<String>>;

fn repository_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The families that a server with a topic and a group exposes.
async fn exposed() -> Families {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let observed = Observed::start(&["--data", &path], &[]);
    let mut client = observed.connect().await;
    client.subscribe("orders", "billing", json!({})).await;
    client.publish("orders", json!(1)).await;
    client.event().await;
    let reply = observed.client().await.get("/metrics").await;
    let text = std::str::from_utf8(&reply.body).unwrap();
    let mut families = Families::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            families.insert(family.split(' ').next().unwrap().to_owned(), BTreeSet::new());
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let labels = line.split_once('{').map_or("", |(_, rest)| rest);
            let labels = labels.split('}').next().unwrap().split(',');
            let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            families.get_mut(family_of(name)).unwrap().extend(labels.filter(|it| it != "le"));
        }
    }
    families
}

/// Returns the family of a sample.
fn family_of(name: &str) -> &str {
    let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    histogram
        .filter(|family| family.ends_with("_seconds") || family.ends_with("_events"))
        .unwrap_or(name)
}

/// What an expression uses.
#[derive(Debug, Default)]
struct Used {
    metrics: BTreeSet<String>,
    /// Labels anywhere in it, such as after `by`.
    labels: BTreeSet<String>,
}

/// Checks an expression of PromQL: every word in it is a function, a metric of `families`, or one of their labels.
fn check(expression: &str, families: &Families) -> Result<Used, String> {
    let mut used = Used::default();
    let mut loose = Vec::new();
    let mut selector: Option<BTreeSet<String>> = None;
    let mut known: BTreeSet<String> = TARGET_LABELS.map(str::to_owned).into();
    let mut last: BTreeSet<String> = known.clone();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let end = rest[1..].find('"').ok_or("a string without an end")?;
            rest = &rest[end + 2..];
            continue;
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        // A number with its unit, or a variable of Grafana.
        if first.is_ascii_digit() || first == '$' {
            rest = rest[1..].trim_start_matches(|c: char| is_word(c) || c == '.');
            continue;
        }
        if !is_word(first) {
            match first {
                '{' => selector = Some(last.clone()),
                '}' => selector = None,
                _ => {}
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        if let Some(allowed) = &selector {
            if !allowed.contains(word) {
                return Err(format!(
                    "the selector of {:?} has no label {word}",
                    used.metrics.last()
                ));
            }
            used.labels.insert(word.to_owned());
        } else if WORDS.contains(&word) {
        } else if word == "up" {
            used.metrics.insert(word.to_owned());
            last = TARGET_LABELS.map(str::to_owned).into();
        } else if let Some(labels) = families.get(family_of(word)) {
            used.metrics.insert(word.to_owned());
            last = labels.iter().cloned().chain(TARGET_LABELS.map(str::to_owned)).collect();
            if word.ends_with("_bucket") {
                last.insert("le".to_owned());
            }
            known.extend(last.iter().cloned());
        } else {
            loose.push(word.to_owned());
        }
    }
    if let Some(unknown) = loose.iter().find(|word| !known.contains(*word)) {
        return Err(format!("{unknown} is no metric of the server and no label of one"));
    }
    if used.metrics.is_empty() {
        return Err("it uses no metric".to_owned());
    }
    used.labels = known;
    Ok(used)
}

fn checked(expression: &str, families: &Families) -> Used {
    check(expression, families).unwrap_or_else(|error| panic!("{expression}\n{error}"))
}

/// The words between double braces in a template.
fn braced(template: &str) -> Vec<&str> {
    let parts = template.split("{{").skip(1).map(|part| part.split("}}").next().unwrap().trim());
    parts.collect()
}

#[tokio::test]
async fn every_panel_of_the_dashboard_shows_what_exists() {
    let families = exposed().await;
    let dashboard: Value =
        serde_json::from_str(&repository_file("deploy/grafana/prombus.json")).unwrap();
    let (mut checked_panels, mut shown) = (0, BTreeSet::new());
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        if panel["type"] == "row" {
            continue;
        }
        assert!(!panel["title"].as_str().unwrap().is_empty());
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let used = checked(target["expr"].as_str().unwrap(), &families);
            for label in braced(target["legendFormat"].as_str().unwrap()) {
                assert!(used.labels.contains(label), "{label} in {target}");
            }
            shown.extend(used.metrics.iter().map(|name| family_of(name).to_owned()));
        }
        checked_panels += 1;
    }
    assert!(checked_panels > 30, "only {checked_panels} panels");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            checked(variable["query"]["query"].as_str().unwrap(), &families);
        }
    }
    // The rest is of no use on a dashboard.
    let hidden: Vec<_> = families.keys().filter(|name| !shown.contains(*name)).collect();
    let expected = ["process_virtual_memory_bytes", "prombus_store_incidents"];
    assert_eq!(hidden, expected, "neither shown nor known to be of no use there");
}

#[tokio::test]
async fn every_alert_can_fire_and_names_its_runbook() {
    let families = exposed().await;
    let file = YamlLoader::load_from_str(&repository_file("deploy/prometheus/alerts.yml")).unwrap();
    let Yaml::Array(groups) = &file[0]["groups"] else { panic!("no groups") };
    let mut names = BTreeSet::new();
    let mut runbooks = BTreeSet::new();
    for rule in groups.iter().flat_map(|group| group["rules"].as_vec().unwrap()) {
        let text = |key: &str| rule[key].as_str().unwrap_or_else(|| panic!("no {key}: {rule:?}"));
        let name = text("alert");
        assert!(names.insert(name), "{name} comes twice");
        let used = checked(text("expr"), &families);
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
        for annotation in ["summary", "description"] {
            let text = rule["annotations"][annotation].as_str().unwrap();
            for words in braced(text) {
                let label =
                    words.strip_prefix("$labels.").map(|rest| rest.split(' ').next().unwrap());
                let is_known = label.is_none_or(|label| used.labels.contains(label));
                assert!(is_known, "{name}: {words}");
                assert!(label.is_some() || words.starts_with("$value"), "{name}: {words}");
            }
        }
        let runbook = rule["annotations"]["runbook"].as_str().unwrap();
        let section = runbook.strip_prefix("docs/operations.md#").unwrap();
        assert!(RUNBOOKS.contains(&section), "{name}: {runbook}");
        runbooks.insert(section);
    }
    assert!(names.len() >= 10, "{names:?}");
    assert_eq!(runbooks, BTreeSet::from(RUNBOOKS), "a runbook without an alert");
}

#[tokio::test]
async fn metrics_of_the_documentation_are_those_of_the_server() {
    let families = exposed().await;
    let document = repository_file("docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| Some(row.split_once('`')?.0));
    let written: BTreeSet<_> =
        names.filter(|name| name.starts_with("prombus_") || name.starts_with("process_")).collect();
    // Nothing was lost to retention here, but the series exists with the group.
    assert_eq!(written, families.keys().map(String::as_str).collect());
}

/// The check itself finds mistakes.
#[test]
fn mistakes_are_found() {
    let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let families = Families::from([
        ("prombus_lag_events".to_owned(), labels(&["topic", "group"])),
        ("prombus_fsync_seconds".to_owned(), labels(&[])),
    ]);
    for right in [
        r#"topk(10, prombus_lag_events{topic=~"$topic", job="a b"}) > 1e3"#,
        "histogram_quantile(0.99, sum by (le) (rate(prombus_fsync_seconds_bucket[5m])))",
        "sum by (topic) (prombus_lag_events) / 2",
        "up == 0",
    ] {
        check(right, &families).unwrap();
    }
    for wrong in [
        "prombus_lag",
        "prombus_fsync_seconds_total",
        r#"prombus_lag_events{tpoic="t"}"#,
        r#"prombus_fsync_seconds_sum{le="1"}"#,
        "sum by (tpoic) (prombus_lag_events)",
        "rate_of(prombus_lag_events[5m])",
        r#"prombus_lag_events{topic="t}"#,
        "1 > 2",
    ] {
        assert!(check(wrong, &families).is_err(), "{wrong}");
    }
}
