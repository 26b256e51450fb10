use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::server::{Ran, Server, prombus, run};

/// A user with contexts of their own.
struct User {
    home: TempDir,
}

impl User {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a folder") }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = prombus(arguments);
        command.env("XDG_CONFIG_HOME", self.home.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        run(self.command(arguments), "")
    }

    #[track_caller]
    fn add(&self, arguments: &[&str]) {
        let ran = self.run(&[&["context", "add"], arguments].concat());
        assert!(ran.is_success, "{ran:?}");
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("prombus/contexts.toml")
    }

    fn names(&self) -> Vec<Value> {
        let lines = self.run(&["context", "list"]).lines();
        lines.iter().map(|line| line["name"].clone()).collect()
    }
}

const TOKEN: &str = "auth.tokens=[{token = \"hunter2\", scopes = [\"publish:t\"]}]";

#[test]
fn the_current_context_names_server_and_token() {
    let server = Server::start(&[TOKEN]);
    let user = User::new();
    user.add(&["prod", "--url", &server.http, "--token", "hunter2", "--use"]);
    assert_eq!(user.run(&["publish", "t", "1"]).lines()[0]["seq"], 1);
    let shown = user.run(&["context", "show"]).lines();
    let expected = json!({"name": "prod", "url": server.http, "current": true, "has_token": true,
                          "token_file": null, "ca_file": null});
    assert_eq!(shown, [expected]);
}

#[test]
fn the_file_is_private_and_its_token_is_never_printed() {
    let user = User::new();
    let mut add = user.command(&["context", "add", "a", "--url", "http://a", "--token", "-"]);
    add.env("PROMBUS_URL", "http://b");
    assert!(run(add, "hunter2\n").is_success);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(user.file()), 0o600);
    assert_eq!(mode(user.home.path().join("prombus")), 0o700);
    assert!(fs::read_to_string(user.file()).unwrap().contains("hunter2"));
    for arguments in
        [&["context", "list"][..], &["context", "show", "a"], &["context", "list", "--json"]]
    {
        let ran = user.run(arguments);
        assert!(ran.is_success && !format!("{ran:?}").contains("hunter2"), "{ran:?}");
    }
    // Nor by an error about its line.
    fs::write(
        user.file(),
        "version = 1\n[contexts.a]\nurl = \"http://a\"\ntoken = \"hunter2\" x\n",
    )
    .unwrap();
    let broken = user.run(&["topics"]);
    broken.failed_with("contexts.toml, line 4: ");
    assert!(!broken.err.contains("hunter2"), "{broken:?}");
}

#[test]
fn a_file_with_tokens_that_others_can_read_is_reported() {
    let user = User::new();
    user.add(&["a", "--url", "http://a", "--token", "hunter2"]);
    fs::set_permissions(user.file(), Permissions::from_mode(0o644)).unwrap();
    let ran = user.run(&["context", "list"]);
    assert!(ran.is_success && ran.err.contains("run `chmod 600 "), "{ran:?}");
}

#[test]
fn flag_environment_and_current_context_in_this_order() {
    let [of_flag, of_environment, of_current] = ["f", "e", "c"].map(|topic| {
        let server = Server::start(&[]);
        server.run(&["publish", topic, "1"], "").lines();
        server
    });
    let user = User::new();
    user.add(&["f", "--url", &of_flag.http]);
    user.add(&["e", "--url", &of_environment.http]);
    user.add(&["c", "--url", &of_current.http, "--use"]);
    let topic = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = user.command(&[&["topics"], arguments].concat());
        command.envs(variables.iter().copied());
        run(command, "").lines()[0]["topic"].clone()
    };
    assert_eq!(topic(&[], &[]), "c");
    assert_eq!(topic(&[], &[("PROMBUS_CONTEXT", "e")]), "e");
    assert_eq!(topic(&[], &[("PROMBUS_URL", &of_environment.http)]), "e");
    let url = [("PROMBUS_URL", of_environment.http.as_str()), ("PROMBUS_CONTEXT", "c")];
    assert_eq!(topic(&[], &url), "e");
    assert_eq!(topic(&["--context", "f"], &url), "f");
    assert_eq!(topic(&["--url", &of_flag.http], &url), "f");
    let both = user.run(&["topics", "--url", "http://a", "--context", "f"]);
    both.failed_with("cannot be used with");
}

#[test]
fn a_token_goes_only_to_the_server_of_its_context() {
    let server = Server::start(&[TOKEN]);
    let user = User::new();
    user.add(&["prod", "--url", "https://prod.example.com", "--token", "hunter2", "--use"]);
    let ran = user.run(&["publish", "t", "1", "--url", &server.http]);
    ran.failed_with("unauthorized: ");
    let mut command = user.command(&["publish", "t", "1"]);
    command.env("PROMBUS_URL", &server.http);
    run(command, "").failed_with("unauthorized: ");
}

#[test]
fn a_token_file_is_read_each_time() {
    let server = Server::start(&[TOKEN]);
    let user = User::new();
    let file = user.home.path().join("token");
    fs::write(&file, "hunter3\n").unwrap();
    let path = file.to_str().unwrap();
    user.add(&["prod", "--url", &server.http, "--token-file", path, "--use"]);
    user.run(&["publish", "t", "1"]).failed_with("bad_token: ");
    fs::write(&file, "hunter2\n").unwrap();
    assert_eq!(user.run(&["publish", "t", "1"]).lines()[0]["seq"], 1);
    fs::remove_file(&file).unwrap();
    user.run(&["publish", "t", "1"]).failed_with("context prod: token_file ");
    // The environment wins over the current context.
    let mut command = user.command(&["publish", "t", "1"]);
    command.env("PROMBUS_TOKEN", "hunter2");
    assert_eq!(run(command, "").lines()[0]["seq"], 2);
}

#[test]
fn contexts_are_replaced_and_removed_by_name() {
    let user = User::new();
    user.run(&["context", "use", "a"]).failed_with("create one with `prombus context add a");
    user.add(&["a", "--url", "http://a", "--use"]);
    user.run(&["context", "add", "a", "--url", "http://b"]).failed_with("--replace replaces it");
    user.add(&["a", "--url", "http://b", "--replace"]);
    assert_eq!(user.run(&["context", "show", "a"]).lines()[0]["url"], "http://b");
    user.run(&["topics", "--context", "b"]).failed_with("the contexts are a");
    let removed = user.run(&["context", "remove", "a"]);
    assert!(removed.is_success && removed.err.contains("was the current context"), "{removed:?}");
    assert!(user.names().is_empty());
    user.run(&["context", "remove", "a"]).failed_with("no context a");
    user.run(&["context", "show"]).failed_with("no context is current");
    for (name, url) in [("../a", "http://a"), ("a", "a:80"), ("a", "http://me:hunter2@a")] {
        let ran = user.run(&["context", "add", name, "--url", url]);
        assert!(!ran.is_success && !ran.err.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn contexts_added_at_the_same_time_are_all_there() {
    let user = User::new();
    let names: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    let children: Vec<_> = names
        .iter()
        .map(|name| user.command(&["context", "add", name, "--url", "http://a"]).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(user.names(), names);
    let left: Vec<_> = fs::read_dir(user.home.path().join("prombus")).unwrap().collect();
    assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
}

#[test]
fn a_newer_or_broken_file_is_an_error_unless_a_flag_names_the_server() {
    let server = Server::start(&[]);
    let user = User::new();
    fs::create_dir(user.home.path().join("prombus")).unwrap();
    for (text, reason) in [
        ("version = 2\n", "has version 2"),
        ("contexts = 1\n", "missing field `version`"),
        ("version = 1\nnames = 1\n", "unknown field `names`"),
    ] {
        fs::write(user.file(), text).unwrap();
        user.run(&["topics"]).failed_with(reason);
        let by_flag = user.run(&["topics", "--url", &server.http]);
        assert!(by_flag.is_success, "{by_flag:?}");
    }
}
