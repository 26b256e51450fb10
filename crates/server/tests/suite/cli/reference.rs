//! `docs/cli.md` shows the help of every command.

use std::fs;
use std::path::Path;

use crate::cli::server::{prombus, run};

/// Set to write the reference instead of comparing it.
const UPDATE: &str = "PROMBUS_UPDATE_REFERENCE";
const START: &str = "<!-- The rest is written by `make cli-reference`. -->\n";

fn help(command: &[String]) -> String {
    let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    arguments.push("--help");
    let ran = run(prombus(&arguments), "");
    assert!(ran.is_success, "{ran:?}");
    ran.out
}

/// The names below `Commands:`, without `help`.
fn subcommands(help: &str) -> Vec<String> {
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return vec![] };
    let entries = list.lines().take_while(|line| !line.is_empty());
    // A description may go on in the next line, further to the right.
    let names = entries.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn describe(command: &[String], reference: &mut String) {
    let help = help(command);
    let name = [&["prombus".to_owned()], command].concat().join(" ");
    let hashes = "#".repeat(command.len().min(2) + 3);
    *reference += &format!("\n{hashes} {name}\n\n```text\n{}\n```\n", help.trim_end());
    for subcommand in subcommands(&help) {
        describe(&[command, &[subcommand]].concat(), reference);
    }
}

#[test]
fn the_reference_shows_the_help_of_every_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let document = fs::read_to_string(&path).expect("docs/cli.md is readable");
    let (prose, written) = document.split_once(START).expect("docs/cli.md has the marker");
    let mut reference = String::new();
    describe(&[], &mut reference);
    assert!(
        reference.contains("### prombus subscribe\n") && reference.contains("#### prombus bench")
    );
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&path, format!("{prose}{START}{reference}")).expect("docs/cli.md is writable");
        return;
    }
    for (expected, found) in reference.lines().zip(written.lines()) {
        assert_eq!(found, expected, "docs/cli.md is outdated: run `make cli-reference`");
    }
    assert_eq!(written.len(), reference.len(), "docs/cli.md is outdated: run `make cli-reference`");
}
