//! The binary reloads on SIGHUP and when its files change, and warns of secrets that others can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cli::server::{Server, run};

fn write(file: &Path, token: &str) {
    let text = format!("auth.tokens = [{{token = \"{token}\", scopes = [\"publish:**\"]}}]\n");
    fs::write(file, text).expect("the file is writable");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("the file is ours");
}

fn accepts(server: &Server, token: &str) -> bool {
    run(server.command(&["publish", "t", "1", "--token", token]), "").is_success
}

/// Fails if the server does not accept the token within a time that only a hanging server takes.
fn wait_until_accepted(server: &Server, token: &str) {
    let by = Instant::now() + Duration::from_secs(60);
    while !accepts(server, token) {
        assert!(Instant::now() < by, "{token} is not accepted");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn tokens_are_reloaded_on_sighup_and_when_the_file_changes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    write(&file, "first");
    let mut server = Server::configured(&file);
    assert!(accepts(&server, "first") && !accepts(&server, "second"));
    write(&file, "second");
    server.signal(Signal::HUP);
    wait_until_accepted(&server, "second");
    assert!(!accepts(&server, "first"));
    // Without a signal, the server notices by itself.
    write(&file, "third");
    wait_until_accepted(&server, "third");
    assert!(!accepts(&server, "second"));
    // Something that cannot be read changes nothing, nor does it end the server.
    fs::write(&file, "auth.tokens = ").unwrap();
    server.signal(Signal::HUP);
    assert!(accepts(&server, "third"));
    assert!(server.is_running());
}

#[test]
fn warns_of_a_configuration_with_secrets_that_others_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    for (mode, warns) in [(0o600, false), (0o644, true), (0o640, true)] {
        write(&file, "token");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Server::configured_command(&file);
        let (server, log) = Server::spawn_with_log(&mut command);
        server.stop();
        let text = log.into_text();
        assert_eq!(text.contains("other users of this machine can read it"), warns, "{text}");
        assert!(!text.contains("\"token\""), "{text}");
    }
}
