use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::cli::proxy::{Fate, Proxy};
use crate::cli::server::{Server, prombus};

/// Starts a server whose topic `t` has `count` events of about 300 bytes, a thousand per timestamp.
fn with_events(count: u64) -> Server {
    let server = Server::start(&[]);
    let padding = "x".repeat(200);
    let lines: String = (1..=count)
        .map(|n| {
            let ts = n / 1000;
            format!(
                "{{\"id\":\"n-{n}\",\"ts\":{ts},\"payload\":{{\"n\":{n},\"p\":\"{padding}\"}}}}\n"
            )
        })
        .collect();
    let stored = server.run(&["import", "t"], &lines).lines();
    assert_eq!((&stored[0]["count"], &stored[0]["duplicates"]), (&count.into(), &0.into()));
    server
}

fn exported(server: &Server) -> String {
    let ran = server.run(&["export", "t"], "");
    assert!(ran.is_success && ran.err.is_empty(), "{}", ran.err);
    ran.out
}

fn file_in(dir: &TempDir) -> (std::path::PathBuf, String) {
    let path = dir.path().join("t.ndjson");
    let text = path.to_str().expect("the path is UTF-8").to_owned();
    (path, text)
}

/// Waits until the file is longer than `bytes` or the export has exited.
fn wait_for_more_than(bytes: u64, path: &Path, child: &mut Child) {
    while fs::metadata(path).map_or(0, |metadata| metadata.len()) <= bytes {
        if child.try_wait().expect("the child can be polled").is_some() {
            return;
        }
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn export_and_import_round_trip_and_a_second_import_changes_nothing() {
    let (from, to) = (Server::start(&[]), Server::start(&[]));
    let special = concat!(
        r#"{"id":"é \"1\" &=+%?#/","ts":5,"key":"k\u00e9","headers":{"b":"1","a":"é\n"},"#,
        r#""payload":{"z": 1e400, "a":[1.10,  -0.0],"\u00e9":"\/"},"#,
        r#""caused_by":["c"],"tags":["t","u"],"sid":"s"}"#,
        "\n{\"payload\":null}\n{\"payload\":\"the last of them\",\"ts\":1700000000000}\n"
    );
    let many: String = (1..=5000).map(|n| format!("{{\"payload\":{n},\"ts\":7}}\n")).collect();
    from.run(&["import", "t"], &format!("{many}{special}{many}")).lines();
    let exported_once = exported(&from);
    assert_eq!(exported_once.lines().count(), 10_003);
    assert!(exported_once.contains(r#""payload":{"z": 1e400, "a":[1.10,  -0.0],"\u00e9":"\/"}"#));

    let first = to.run(&["import", "t"], &exported_once).out;
    let expected = "{\"count\":10003,\"duplicates\":0,\"first_seq\":1,\"last_seq\":10003}\n";
    assert_eq!(first, expected);
    assert!(exported(&to) == exported_once, "the copy differs");

    let again = to.run(&["import", "t"], &exported_once).out;
    assert_eq!(again, expected.replace("\"duplicates\":0", "\"duplicates\":10003"));
    assert!(exported(&to) == exported_once, "importing twice changed something");
}

#[test]
fn exports_a_range_of_a_topic() {
    let server = with_events(3000);
    let all = exported(&server);
    let part = |flags: &[&str]| {
        let ran = server.run(&[&["export", "t"], flags].concat(), "");
        assert!(ran.is_success, "{ran:?}");
        ran.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(part(&["--from-ts", "1", "--to-ts", "1"]), lines[999..1999]);
    assert_eq!(part(&["--after-id", "n-2990"]), lines[2990..]);
    assert_eq!(part(&["--after-id", "n-3000"]), [""; 0]);
    server.run(&["export", "t", "--after-id", "none"], "").failed_with("unknown_id: ");
}

#[test]
fn never_overwrites_a_file_and_leaves_none_if_rejected() {
    let server = with_events(10);
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = file_in(&dir);
    server.run(&["export", "other", "-o", &file], "").failed_with("unknown_topic: ");
    assert!(!path.exists());
    let ran = server.run(&["export", "t", "-o", &file], "");
    assert!(ran.is_success && ran.out.is_empty() && ran.err.is_empty(), "{ran:?}");
    let all = exported(&server);
    assert_eq!(fs::read_to_string(&path).unwrap(), all);
    let again = server.run(&["export", "t", "-o", &file], "");
    again.failed_with("already exists: pass --resume to continue it");
    assert_eq!(again.code, Some(1));
    let alone = server.run(&["export", "t", "--resume"], "");
    alone.failed_with("--output <FILE>");
    assert_eq!(alone.code, Some(2));
    fs::write(&path, "precious\n").unwrap();
    server.run(&["export", "t", "-o", &file, "--resume"], "").failed_with("is not an export of t");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious\n");
}

#[test]
fn resume_rewrites_an_incomplete_last_line() {
    let server = with_events(100);
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = file_in(&dir);
    let all = exported(&server);
    for end in [0, 3, all.len() / 2, all.len() - 1, all.len()] {
        fs::write(&path, &all[..end]).unwrap();
        let ran = server.run(&["export", "t", "-o", &file, "--resume"], "");
        assert!(ran.is_success, "{ran:?}");
        assert!(fs::read_to_string(&path).unwrap() == all, "cut at {end}");
    }
    fs::remove_file(&path).unwrap();
    assert!(server.run(&["export", "t", "-o", &file, "--resume"], "").is_success);
    assert!(fs::read_to_string(&path).unwrap() == all, "started with --resume");
}

#[test]
fn continues_after_lost_connections_without_loss_or_duplicates() {
    let server = with_events(20_000);
    let all = exported(&server);
    let cuts = [1_000_000, 0, 100, 700_001, 2_000_000].map(Fate::CutAfter);
    let proxy = Proxy::start(&server, &cuts);
    let ran = proxy.run(&["export", "t"], "");
    assert!(ran.is_success, "{}", ran.err);
    assert!(ran.out == all, "the export differs");
    assert_eq!(proxy.connections(), cuts.len() + 1);
    assert_eq!(ran.err.matches("connection lost: ").count(), cuts.len(), "{}", ran.err);
    assert!(ran.err.contains("attempt 3 of 8"), "{}", ran.err);
}

#[test]
fn an_incomplete_export_fails_and_can_be_resumed() {
    let server = with_events(10_000);
    let all = exported(&server);
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = file_in(&dir);
    let cuts = [Fate::CutAfter(1_500_000), Fate::CutAfter(0), Fate::CutAfter(0)];
    let ran = Proxy::start(&server, &cuts).run(&["export", "t", "-o", &file, "--tries", "1"], "");
    ran.failed_with("2 times in a row; the export of t is incomplete");
    ran.failed_with("run the same command with --resume to continue");
    assert_eq!(ran.code, Some(1));
    let left = fs::read_to_string(&path).unwrap();
    assert!(!left.is_empty() && left.len() < all.len() && all.starts_with(&left));
    assert!(left.ends_with('\n'), "only complete lines are written");
    assert!(server.run(&["export", "t", "-o", &file, "--resume"], "").is_success);
    assert!(fs::read_to_string(&path).unwrap() == all);

    let ran = Proxy::start(&server, &cuts).run(&["export", "t", "--tries", "0"], "");
    ran.failed_with("is incomplete");
    let last: serde_json::Value = ran.json().pop().unwrap();
    let id = last["id"].as_str().unwrap();
    ran.failed_with(&format!("add --after-id {id} to continue"));
    let rest = server.run(&["export", "t", "--after-id", id], "").out;
    assert!(ran.out + &rest == all);
}

#[test]
fn resumes_after_a_kill_without_loss_or_duplicates() {
    let server = with_events(20_000);
    let all = exported(&server);
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = file_in(&dir);
    // The stuck proxy keeps the export from finishing before the kill.
    let proxy = Proxy::start(&server, &[Fate::StuckAfter(2_000_000)]);
    let mut child = prombus(&["export", "t", "-o", &file, "--url", &proxy.url]).spawn().unwrap();
    wait_for_more_than(0, &path, &mut child);
    let second = server.run(&["export", "t", "-o", &file, "--resume"], "");
    second.failed_with("another export is writing to");
    child.kill().unwrap();
    child.wait().unwrap();
    let left = fs::read_to_string(&path).unwrap();
    assert!(left.len() < all.len() && all.starts_with(&left));
    // What a power failure during a write leaves behind.
    let torn = &all[left.len()..][..100];
    OpenOptions::new().append(true).open(&path).unwrap().write_all(torn.as_bytes()).unwrap();
    // Kill it at arbitrary points.
    for round in 1..=5 {
        let file_again = OpenOptions::new().write(true).open(&path).unwrap();
        file_again.set_len(round * 200_003).unwrap();
        let mut child = server.command(&["export", "t", "-o", &file, "--resume"]).spawn().unwrap();
        wait_for_more_than(round * 200_003, &path, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(server.run(&["export", "t", "-o", &file, "--resume"], "").is_success);
    assert!(fs::read_to_string(&path).unwrap() == all);
}

#[test]
fn ctrl_c_reports_the_progress() {
    let server = with_events(20_000);
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = file_in(&dir);
    let proxy = Proxy::start(&server, &[Fate::StuckAfter(2_000_000)]);
    let mut command = prombus(&["export", "t", "-o", &file, "--url", &proxy.url]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_more_than(0, &path, &mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(stderr.contains("stopped; the export of t is incomplete, "), "{stderr}");
}
