use std::net::TcpListener;

use crate::cli::server::{Server, prombus, run};

#[test]
fn an_unreachable_server_is_an_error_with_its_url() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    drop(listener);
    for arguments in [&["publish", "t", "1"][..], &["subscribe", "t", "--group", "g"]] {
        let mut command = prombus(arguments);
        command.args(["--url", &url]);
        run(command, "").failed_with(&format!("cannot connect to {url}: Connection refused"));
    }
    let url = url.replace("ws:", "http:");
    for arguments in
        [&["replay", "t"][..], &["export", "t"], &["import", "t"], &["topics"], &["groups"]]
    {
        let mut command = prombus(arguments);
        command.args(["--url", &url]);
        let ran = run(command, "{\"payload\":1}\n");
        ran.failed_with(&format!("cannot connect to {url}: Connection refused"));
        ran.failed_with("`prombus serve` starts one");
        assert_eq!(ran.code, Some(1));
    }
}

#[test]
fn an_invalid_url_says_what_is_expected() {
    let server = Server::start(&[]);
    let to = |url: &str| run(prombus(&["publish", "t", "1", "--url", url]), "");
    to("127.0.0.1:8090").failed_with("--url 127.0.0.1:8090: ");
    to("ftp://127.0.0.1").failed_with("starts with http://, https://, ws:// or wss://");
    let elsewhere = to(&format!("{}elsewhere", server.url));
    elsewhere.failed_with("the server answered 404 Not Found the gateway is at / and /ws");
    let named = run(server.command(&["publish", "A b", "1"]), "");
    named.failed_with("invalid value 'A b' for '<TOPIC>'");
}

#[test]
fn a_token_comes_from_flag_or_environment_and_is_never_printed() {
    let server = Server::start(&["auth.tokens=[{token = \"hunter2\", scopes = [\"publish:t\"]}]"]);
    let publish = ["publish", "t", "1"];
    let missing = server.run(&publish, "");
    missing.failed_with("unauthorized: ");
    missing.failed_with("pass --token, set PROMBUS_TOKEN, or use a context");
    let by_flag = server.run(&["publish", "t", "1", "--token", "hunter2"], "");
    assert_eq!(by_flag.lines()[0]["seq"], 1);
    let mut by_environment = server.command(&publish);
    by_environment.env("PROMBUS_TOKEN", "hunter2");
    assert_eq!(run(by_environment, "").lines()[0]["seq"], 2);
    let wrong = server.run(&["publish", "t", "1", "--token", "hunter3"], "");
    wrong.failed_with("bad_token: ");
    assert!(!wrong.err.contains("hunter"), "{wrong:?}");
    let forbidden = server.run(&["subscribe", "t", "--group", "g", "--token", "hunter2"], "");
    forbidden.failed_with("forbidden: consume t as g");
    let missing = server.run(&["import", "t"], "{\"payload\":1}\n");
    missing.failed_with("unauthorized: ");
    missing.failed_with("pass --token");
    let by_http = server.run(&["import", "t", "--token", "hunter2"], "{\"payload\":1}\n");
    assert_eq!(by_http.lines()[0]["last_seq"], 3);
    let mut by_environment = server.command(&["import", "t"]);
    by_environment.env("PROMBUS_TOKEN", "hunter2");
    assert_eq!(run(by_environment, "{\"payload\":1}\n").lines()[0]["last_seq"], 4);
    for wrong in ["hunter3", "hunter\n3"] {
        let wrong = server.run(&["export", "t", "--token", wrong], "");
        assert!(!wrong.is_success && !wrong.err.contains("hunter"), "{wrong:?}");
    }
    let forbidden = server.run(&["export", "t", "--token", "hunter2"], "");
    forbidden.failed_with("forbidden: read t");
    let mut help = prombus(&["publish", "--help"]);
    help.env("PROMBUS_TOKEN", "hunter2");
    assert!(!run(help, "").out.contains("hunter2"));
}

#[test]
fn a_tls_server_needs_a_trusted_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let self_signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, self_signed.cert.pem()).unwrap();
    std::fs::write(&key, self_signed.signing_key.serialize_pem()).unwrap();
    let server = Server::start(&[
        &format!("server.tls.cert_file={}", certificate.display()),
        &format!("server.tls.key_file={}", key.display()),
    ]);
    assert!(server.url.starts_with("wss://"), "{}", server.url);
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let trusted = server.run(&["publish", "t", "1", "--ca-file", certificate], "");
    assert_eq!(trusted.lines()[0]["seq"], 1);
    let untrusted = server.run(&["publish", "t", "1"], "");
    untrusted.failed_with("invalid peer certificate: UnknownIssuer; trust the server's own");
    assert!(server.http.starts_with("https://"), "{}", server.http);
    let trusted = server.run(&["replay", "t", "--ca-file", certificate], "");
    assert_eq!(trusted.lines()[0]["seq"], 1);
    server.run(&["replay", "t"], "").failed_with("invalid peer certificate");
    server.run(&["publish", "t", "1", "--ca-file", "/none"], "").failed_with("--ca-file /none: ");
    let no_certificate = server.run(&["publish", "t", "1", "--ca-file", key], "");
    no_certificate.failed_with("no certificate found");
    for (command, url) in [
        (&["publish", "t", "1"][..], server.url.replace("wss", "ws")),
        (&["publish", "t", "1"], server.http.replace("https", "http")),
        (&["replay", "t"], server.http.replace("https", "http")),
        (&["export", "t"], server.http.replace("https", "http")),
    ] {
        let plain = run(prombus(&[command, &["--url", &url]].concat()), "");
        plain.failed_with("uses TLS: start the URL with https:// or wss://");
        assert!(!plain.err.contains("retrying"), "{plain:?}");
    }
}

#[test]
fn a_server_without_tls_is_recognised() {
    let server = Server::start(&[]);
    for (command, url) in [
        (&["publish", "t", "1"][..], server.url.replace("ws", "wss")),
        (&["topics"], server.http.replace("http", "https")),
    ] {
        let encrypted = run(prombus(&[command, &["--url", &url]].concat()), "");
        encrypted.failed_with("does not use TLS: start the URL with http:// or ws://");
    }
}

/// What `openssl req -x509` makes.
#[test]
fn a_self_signed_certificate_of_a_ca_is_trusted_for_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (names, accepted) in [(vec!["127.0.0.1".to_owned()], true), (vec![], false)] {
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(path("cert.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        let server = Server::start(&[
            &format!("server.tls.cert_file={}", path("cert.pem")),
            &format!("server.tls.key_file={}", path("key.pem")),
        ]);
        for command in [&["publish", "t", "1"][..], &["topics"]] {
            let certificate = path("cert.pem");
            let trusting = [command, &["--ca-file", certificate.as_str()]].concat();
            let ran = server.run(&trusting, "");
            assert_eq!(ran.is_success, accepted, "{ran:?}");
            if !accepted {
                ran.failed_with("as its subjectAltName");
            }
        }
    }
}
