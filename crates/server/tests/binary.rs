//! The built binary, as a newcomer meets it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn prombus() -> Command {
    Command::new(env!("CARGO_BIN_EXE_prombus"))
}

/// Started and ready: it has said its last line before it waits.
fn started(arguments: &[&str], folder: &Path) -> (Child, BufReader<impl Read>, String) {
    let mut child = prombus()
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("ctrl-c") {
        assert_ne!(out.read_line(&mut said).expect("it speaks"), 0, "it ended early: {said}");
    }
    (child, out, said)
}

fn stop(mut child: Child, mut out: impl Read, signal: Signal) -> String {
    let pid = Pid::from_child(&child);
    kill_process(pid, signal).expect("it runs");
    let mut said = String::new();
    out.read_to_string(&mut said).expect("it says goodbye");
    assert!(child.wait().expect("it ends").success());
    said
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn alone_it_opens_a_store_says_so_and_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["serve", "--engine", "disk"]] {
        let (child, out, said) = started(arguments, folder.path());
        assert!(said.contains("has opened the store in ./prombus-data"), "{said}");
        assert!(said.contains("0 topics, 0 events"), "{said}");
        assert!(said.contains("nothing listens on the network yet"), "{said}");
        assert!(folder.path().join("prombus-data/catalog").exists());
        assert!(stop(child, out, Signal::TERM).contains("everything is stored"));
    }
}

#[test]
fn in_memory_it_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (child, out, said) = started(&["--engine", "memory"], folder.path());
    assert!(said.contains("a store in memory"), "{said}");
    stop(child, out, Signal::INT);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_second_one_on_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (child, out, _) = started(&["--data", "shared"], folder.path());
    let second = prombus().args(["--data", "shared"]).current_dir(folder.path()).output().unwrap();
    assert!(!second.status.success());
    assert!(text(&second).contains("shared is in use by another process"), "{}", text(&second));
    stop(child, out, Signal::TERM);
}

#[test]
fn what_it_does_not_know_is_an_error() {
    let unknown = prombus().arg("--nonsense").output().unwrap();
    assert!(!unknown.status.success());
    assert!(text(&unknown).contains("--nonsense"), "{}", text(&unknown));
    let help = prombus().arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(String::from_utf8_lossy(&help.stdout).contains("--data <DIR>"));
}
