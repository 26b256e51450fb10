//! `docs/operations.md`: its examples are run, each in a shell of its own against a server of its own, and the page
//! has the headings that other pages and alerts link to. The examples of `docs/backup.md` are one drill.

mod example;
mod expected;
mod shell;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use example::{Example, Step};
use expected::matches;
use shell::Shell;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(path).expect("the page is readable")
}

/// Runs an example. Returns how it differs from the page.
fn difference(example: &Example) -> Option<String> {
    let mut shell = Shell::start(example);
    let mut found: HashMap<String, String> = HashMap::new();
    for step in &example.steps {
        let command = found
            .iter()
            .fold(step.command.clone(), |command, (name, value)| command.replace(name, value));
        let printed = shell.run(&command);
        if !matches(&step.output, &printed, &mut found) {
            let Step { line, output, .. } = step;
            return Some(format!(
                "line {line}: expected\n{output}\ngot\n{printed}\n{}",
                shell.log()
            ));
        }
    }
    None
}

#[test]
fn every_example_prints_what_the_page_says() {
    let examples = Example::all_of(&page("operations.md"));
    assert!(examples.len() >= 6, "the page lost examples");
    let running: Vec<_> = examples
        .into_iter()
        .map(|example| std::thread::spawn(move || difference(&example)))
        .collect();
    let differences: Vec<_> =
        running.into_iter().filter_map(|thread| thread.join().expect("no panic")).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn the_restore_drill_prints_what_the_page_says() {
    let examples = Example::all_of(&page("backup.md"));
    let steps: Vec<_> = examples.into_iter().flat_map(|example| example.steps).collect();
    assert!(steps.len() >= 15, "the drill lost steps");
    assert_eq!(difference(&Example { steps, ..Example::default() }), None);
}

#[test]
fn a_wrong_example_is_noticed() {
    for wrong in [
        "$ echo a\n",
        "$ echo a\nb",
        "$ echo a\na\na",
        "$ echo 1234567890123 1234567890124\n<ts1> <ts1>",
        "$ curl -s http://127.0.0.1:8083/healthz\n{\"status\":\"fine\"}",
        "$ prombus topics nothing\n",
    ] {
        let [example] = &Example::all_of(&format!("```console\n{wrong}\n```\n"))[..] else {
            panic!("not one example")
        };
        assert!(difference(example).is_some(), "{wrong}");
    }
}

/// Alerts link to them.
#[test]
fn the_playbooks_have_their_headings() {
    let page = page("operations.md");
    for heading in [
        "Poison message",
        "Stuck group",
        "Full disk",
        "Lost disk",
        "Lost MongoDB primary",
        "Leaked token",
        "Slow consumer",
    ] {
        let line = format!("\n## {heading}\n");
        assert_eq!(page.matches(&line).count(), 1, "{heading}");
    }
}
