//! The machine and the versions, for the report.

use std::fs;
use std::path::Path;
use std::process::Command;

use prombus_peers_report::{Facts, Machine};

use crate::system::{Program, System};

const LOCK: &str = include_str!("../Cargo.lock");

/// What this machine is.
pub(crate) fn machine() -> Machine {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = after("MemTotal:", &memory)
        .and_then(|text| text.trim_end_matches(" kB").parse().ok())
        .unwrap_or(0);
    Machine {
        processor: after("model name", &processors).unwrap_or("unknown").to_owned(),
        cores: processors.lines().filter(|line| line.starts_with("processor")).count() as u64,
        memory_gib: kib / 1024 / 1024,
        system: said_by(Command::new("uname").arg("-sr")),
    }
}

/// What a system is, with the versions that are measured.
pub(crate) fn facts(system: System, program: &Path) -> Facts {
    let settings = match system.settings() {
        "" => "defaults",
        settings => settings,
    };
    Facts {
        name: system.name().to_owned(),
        label: system.label().to_owned(),
        version: version(system, program),
        client: format!("{} {}", system.client(), locked(system.client()).unwrap_or("unknown")),
        settings: settings.to_owned(),
        usage: system.usage().to_owned(),
        publish_promise: system.publish_promise().to_owned(),
        ack_promise: system.ack_promise().to_owned(),
        fsynced: system.is_fsynced(),
    }
}

fn version(system: System, program: &Path) -> String {
    let said = said_by(Command::new(program).arg("--version"));
    let words: Vec<&str> = said.split_whitespace().collect();
    // "Redis server v=7.0.15 sha=…" has the version in the middle, the others at the end.
    let version = match system.program() {
        Program::Redis => words.iter().find_map(|word| word.strip_prefix("v=")),
        _ => words.last().copied(),
    };
    version.unwrap_or("unknown").trim_start_matches('v').to_owned()
}

/// The first line that a command says.
fn said_by(command: &mut Command) -> String {
    let said = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned()
}

fn after<'a>(key: &str, text: &'a str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches([' ', '\t', ':']))
}

/// The version of a crate that this program is built with.
fn locked(name: &str) -> Option<&'static str> {
    let at = LOCK.find(&format!("name = \"{name}\"\n"))?;
    LOCK[at..].lines().nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}
