//! A reader that has enough, as in `prombus replay … | head -1`.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use crate::cli::server::Server;

/// What shells report for a program that SIGPIPE ended.
const SIGPIPE: i32 = 141;

#[test]
fn nothing_is_complained_about() {
    let server = Server::start(&[]);
    let padding = "x".repeat(100);
    let lines: String = (1..=20_000).map(|n| format!("[{n},\"{padding}\"]\n")).collect();
    server.run(&["publish", "t"], &lines).lines();
    for arguments in [
        &["replay", "t"][..],
        &["export", "t"],
        &["subscribe", "t", "--group", "g", "--from", "earliest"],
    ] {
        let mut command = server.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.starts_with("{\"seq\":1,"), "{first}");
        let mut complaints = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert_eq!(complaints, "", "{arguments:?}");
        assert_eq!(child.wait().unwrap().code(), Some(SIGPIPE), "{arguments:?}");
    }
}
