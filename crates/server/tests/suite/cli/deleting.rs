//! `prombus topics delete` and `prombus topics purge`.

use serde_json::json;

use crate::cli::server::Server;

#[test]
fn deletes_topics() {
    let server = Server::start(&[]);
    for topic in ["a", "b", "c"] {
        server.run(&["publish", topic, "1", "2"], "").lines();
    }
    let deleted = server.run(&["topics", "delete", "a", "b"], "").lines();
    assert_eq!(deleted[0], json!({"topic": "a", "deleted": true}));
    assert_eq!(deleted[1]["topic"], "b");
    let left = server.run(&["topics"], "").lines();
    assert_eq!(left.iter().map(|topic| &topic["topic"]).collect::<Vec<_>>(), ["c"]);
    server.run(&["topics", "delete", "a"], "").failed_with("a: unknown_topic: ");
    assert_eq!(server.run(&["topics", "delete"], "").code, Some(2));
}

#[test]
fn purges_a_topic() {
    let server = Server::start(&[]);
    server.run(&["publish", "t", "1", "2", "3", "4"], "").lines();
    let purge = |criterion: &[&str]| {
        let arguments: Vec<_> = ["topics", "purge", "t"].iter().chain(criterion).copied().collect();
        server.run(&arguments, "").lines()[0].clone()
    };
    assert_eq!(purge(&["--before-seq", "3"]), json!({"topic": "t", "removed": 2, "first_seq": 3}));
    assert_eq!(purge(&["--before", "7d"])["removed"], 0);
    assert_eq!(purge(&["--all"]), json!({"topic": "t", "removed": 2, "first_seq": 5}));
    for wrong in [&[][..], &["--all", "--before-seq", "3"], &["--before", "yesterday"]] {
        let arguments: Vec<_> = ["topics", "purge", "t"].iter().chain(wrong).copied().collect();
        assert_eq!(server.run(&arguments, "").code, Some(2), "{wrong:?}");
    }
    server.run(&["topics", "purge", "nobody", "--all"], "").failed_with("unknown_topic: ");
}
