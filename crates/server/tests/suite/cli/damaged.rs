//! `prombus replay` and `prombus export` at events that the server cannot read back.

use serde_json::Value;

use crate::cli::server::Server;
use crate::damaged_store::{EVENTS, damaged_at};

fn seqs(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().expect("an event")).collect()
}

/// Both commands print the events before the damage and fail, or skip the damage if told to.
#[tokio::test]
async fn reading_commands_stop_at_damage_or_skip_it() {
    let folder = damaged_at(23).await;
    let server = Server::on_disk(folder.path());
    let before: Vec<_> = (1..23).collect();
    for command in ["replay", "export"] {
        let stopped = server.run(&[command, "t"], "");
        stopped.failed_with("23");
        stopped.failed_with("damaged");
        stopped.failed_with("--skip-damaged");
        assert_eq!(seqs(&stopped.json()), before, "{command}");
        let skipped = server.run(&[command, "t", "--skip-damaged"], "");
        let seqs = seqs(&skipped.lines());
        let (start, end) = seqs.split_at(before.len());
        assert_eq!(start, before, "{command}");
        assert!((24..30).contains(&end[0]), "{command}: {end:?}");
        assert_eq!(end, (end[0]..=EVENTS).collect::<Vec<_>>(), "{command}");
        assert_eq!(skipped.err.matches("skipped: event").count(), 1, "{skipped:?}");
    }
}

#[tokio::test]
async fn an_export_to_a_file_resumes_behind_damage() {
    let folder = damaged_at(23).await;
    let server = Server::on_disk(folder.path());
    let file = folder.path().join("t.ndjson").display().to_string();
    server.run(&["export", "t", "--output", &file], "").failed_with("--resume --skip-damaged");
    let resume = ["export", "t", "--output", &file, "--resume", "--skip-damaged"];
    assert!(server.run(&resume, "").is_success);
    let whole = server.run(&["export", "t", "--skip-damaged"], "");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole.out);
    let limited = server.run(&["replay", "t", "--limit", "22"], "");
    assert_eq!(limited.lines().len(), 22, "the damage is not reached");
}
