//! One URL is enough for every command.

use std::net::TcpListener;

use crate::cli::server::{Ran, Server, prombus, run};

fn at(url: &str, arguments: &[&str]) -> Ran {
    run(prombus(&[arguments, &["--url", url]].concat()), "")
}

#[test]
fn the_http_url_serves_every_command() {
    let server = Server::start(&[]);
    assert_eq!(at(&server.http, &["publish", "t", "1"]).lines()[0]["seq"], 1);
    let subscribe = ["subscribe", "t", "--group", "g", "--from", "earliest", "--count", "1"];
    assert_eq!(at(&server.http, &subscribe).lines()[0]["payload"], 1);
    for command in [&["topics"][..], &["groups"], &["replay", "t"], &["export", "t"]] {
        assert_eq!(at(&server.http, command).lines().len(), 1, "{command:?}");
    }
    let bench = ["bench", "publish", "--n", "5", "--json"];
    assert_eq!(at(&server.http, &bench).lines()[0]["published"], 5);
}

#[test]
fn the_gateway_on_the_http_port_serves_every_command() {
    let server = Server::start(&[]);
    let url = format!("{}/ws", server.http.replace("http:", "ws:").trim_end_matches('/'));
    assert_eq!(at(&url, &["publish", "t", "1"]).lines()[0]["seq"], 1);
    assert_eq!(at(&url, &["replay", "t"]).lines().len(), 1);
}

#[test]
fn a_gateway_on_its_own_port_says_what_http_commands_need() {
    let server = Server::start(&[]);
    let ran = at(&server.url, &["topics"]);
    ran.failed_with("this command uses HTTP: pass the server's HTTP address");
    ran.failed_with("which serves every command");
}

#[test]
fn the_environment_names_the_server_and_a_flag_wins() {
    let server = Server::start(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let with_environment = |arguments: &[&str], url: &str| {
        let mut command = prombus(arguments);
        command.env("PROMBUS_URL", url);
        run(command, "")
    };
    let published = with_environment(&["publish", "t", "1"], &server.http);
    assert_eq!(published.lines()[0]["seq"], 1);
    assert_eq!(with_environment(&["topics"], &server.http).lines().len(), 1);
    with_environment(&["topics"], &nobody).failed_with(&format!("cannot connect to {nobody}"));
    let by_flag = with_environment(&["topics", "--url", &server.http], &nobody);
    assert_eq!(by_flag.lines().len(), 1);
    let invalid = with_environment(&["topics"], "here");
    invalid.failed_with("PROMBUS_URL here: a URL starts with http://");
}

#[test]
fn a_mistyped_command_or_option_is_corrected() {
    for (arguments, meant) in [
        (&["subscibe"][..], "'subscribe'"),
        (&["topics", "--jsn"], "'--json'"),
        (&["context", "ad"], "'add'"),
    ] {
        let ran = run(prombus(arguments), "");
        ran.failed_with(meant);
        assert_eq!(ran.code, Some(2));
    }
}

#[test]
fn every_shell_gets_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(prombus(&["completions", shell]), "");
        assert!(script.is_success && script.out.contains("subscribe"), "{shell}");
    }
    assert_eq!(run(prombus(&["completions", "csh"]), "").code, Some(2));
}

#[test]
fn every_command_has_a_manual_page() {
    let page = run(prombus(&["man"]), "");
    assert!(page.is_success && page.out.contains(".TH prombus 1"), "{page:?}");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("man1");
    let written = run(prombus(&["man", "--output", folder.to_str().unwrap()]), "");
    assert!(written.is_success, "{written:?}");
    for name in ["prombus", "prombus-subscribe", "prombus-context-add", "prombus-bench-publish"] {
        let page = std::fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{name}");
    }
}
