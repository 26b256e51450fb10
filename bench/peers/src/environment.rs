//! The machine and the versions of the systems, for the report.

use std::fs;
use std::path::Path;
use std::process::Command;

use prombus_peers_report::{Machine, SystemInfo};

use crate::system::{Program, System};

const LOCK: &str = include_str!("../Cargo.lock");

pub(crate) fn machine() -> Machine {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = value_of("MemTotal:", &memory)
        .and_then(|text| text.trim_end_matches(" kB").parse().ok())
        .unwrap_or(0);
    Machine {
        processor: value_of("model name", &processors).unwrap_or("unknown").to_owned(),
        cores: processors.lines().filter(|line| line.starts_with("processor")).count() as u64,
        memory_gib: kib / 1024 / 1024,
        kernel: first_line_of(Command::new("uname").arg("-sr")),
    }
}

pub(crate) fn system_info(system: System, program: &Path) -> SystemInfo {
    let settings = match system.settings() {
        "" => "defaults",
        settings => settings,
    };
    SystemInfo {
        name: system.name().to_owned(),
        label: system.label().to_owned(),
        version: version(system, program),
        client: format!(
            "{} {}",
            system.client(),
            locked_version(system.client()).unwrap_or("unknown")
        ),
        settings: settings.to_owned(),
        usage: system.usage().to_owned(),
        publish_guarantee: system.publish_guarantee().to_owned(),
        ack_guarantee: system.ack_guarantee().to_owned(),
        fsynced: system.is_fsynced(),
    }
}

fn version(system: System, program: &Path) -> String {
    let line = first_line_of(Command::new(program).arg("--version"));
    let words: Vec<&str> = line.split_whitespace().collect();
    // Redis prints "Redis server v=7.0.15 sha=…"; the others print the version last.
    let version = match system.program() {
        Program::Redis => words.iter().find_map(|word| word.strip_prefix("v=")),
        _ => words.last().copied(),
    };
    version.unwrap_or("unknown").trim_start_matches('v').to_owned()
}

/// Returns the first line that a command prints, or an empty string if it fails.
fn first_line_of(command: &mut Command) -> String {
    let stdout = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&stdout).lines().next().unwrap_or_default().to_owned()
}

fn value_of<'a>(key: &str, text: &'a str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim_start_matches([' ', '\t', ':']))
}

/// Returns the version of a crate in the lock file of this program.
fn locked_version(name: &str) -> Option<&'static str> {
    let at = LOCK.find(&format!("name = \"{name}\"\n"))?;
    LOCK[at..].lines().nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}
