//! What the documents say about the code: files and functions they name exist.

use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The texts between backticks, outside of code blocks.
fn code_spans(document: &str) -> Vec<String> {
    let prose: Vec<_> = document.split("```").step_by(2).collect();
    prose.iter().flat_map(|text| text.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn every_function_on_the_paths_in_architecture_exists() {
    let mut checked = 0;
    for span in code_spans(&read(&repository().join("ARCHITECTURE.md"))) {
        let Some((file, function)) = span.split_once(".rs::") else { continue };
        let path = repository().join("crates").join(format!("{file}.rs"));
        let source = read(&path);
        let is_defined = source.contains(&format!("fn {function}("))
            || source.contains(&format!("fn {function}<"));
        assert!(is_defined, "{file}.rs has no function {function}");
        checked += 1;
    }
    assert!(checked > 30, "only {checked} functions are named");
}

#[test]
fn every_test_that_backs_a_guarantee_exists() {
    let mut checked = 0;
    for span in code_spans(&read(&repository().join("docs/guarantees.md"))) {
        if span.contains('/') && !span.starts_with('/') && !span.contains([' ', '<', '*']) {
            let path = repository().join(&span);
            assert!(path.exists(), "docs/guarantees.md names {span}, which does not exist");
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} tests are named");
}
