//! Tokens, keys and certificates that change while connections are open.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header, encode};
use prombus_proto::{Clock, SystemClock};
use prombus_server::config::{Config, RawConfig, Sources};
use prombus_server::reload::{ReloadError, Reloaded, Reloader};
use prombus_server::server::Server;
use prombus_server::threads::Threads;
use serde_json::{Value, json};

use crate::gateway::authority::Mutual;
use crate::gateway::client::{Client, parsed, payload};
use crate::gateway::running::{Running, sources, started};
use crate::http::client::HttpClient;
use crate::store;

const ALL: &str = r#"scopes=["publish:**","subscribe:**"]"#;

fn tokens(names: &[&str]) -> String {
    let entries: Vec<_> = names.iter().map(|name| format!("{{token=\"{name}\",{ALL}}}")).collect();
    format!("auth.tokens=[{}]", entries.join(","))
}

fn reload(running: &Running, set: &[&str]) -> Reloaded {
    running.server.reload(&Config::load(&sources(set)).unwrap().auth)
}

fn succeeds(reloaded: Reloaded) {
    assert!(reloaded.access.is_ok() && !matches!(reloaded.tls, Some(Err(_))), "{reloaded:?}");
}

async fn with_token(running: &Running, token: &str) -> Client {
    let mut client = running.connect().await;
    client.ok(json!({"op": "AUTH", "token": token})).await;
    client
}

fn publish(topic: &str) -> Value {
    json!({"op": "PUBLISH", "topic": topic, "payload": "p"})
}

async fn code(client: &mut Client, frame: Value) -> Value {
    parsed(&client.ask(frame).await)["code"].clone()
}

#[tokio::test]
async fn new_connections_see_the_new_certificate_and_old_ones_go_on() {
    let mutual = Mutual::start("off", &[]).await;
    let mut old = mutual.connect(None).await;
    let before = mutual.shown().await;
    let renewed = mutual.authority.server();
    renewed.write(mutual.files.path());
    assert_eq!(mutual.shown().await, before, "nothing changes without a reload");
    succeeds(reload(&mutual.running, &[]));
    assert_eq!(&mutual.shown().await, renewed.certificate.der());
    mutual.connect(None).await.assert_lives().await;
    old.assert_lives().await;
}

#[tokio::test]
async fn an_unusable_certificate_keeps_the_old_one() {
    let mutual = Mutual::start("off", &[&tokens(&["a"])]).await;
    let before = mutual.shown().await;
    let other = Mutual::start("off", &[]).await;
    for broken in ["cert.pem", "key.pem"] {
        // A certificate and the key of another one do not fit together.
        std::fs::copy(other.path(broken), mutual.path(broken)).unwrap();
        let reloaded = reload(&mutual.running, &[&tokens(&["b"])]);
        assert!(matches!(reloaded.tls, Some(Err(_))), "{reloaded:?}");
        assert!(reloaded.access.is_ok(), "a broken certificate must not keep a token alive");
        std::fs::write(mutual.path(broken), "").unwrap();
        assert!(matches!(reload(&mutual.running, &[&tokens(&["b"])]).tls, Some(Err(_))));
        assert_eq!(mutual.shown().await, before);
    }
    let mut client = mutual.connect(None).await;
    assert_eq!(code(&mut client, json!({"op": "AUTH", "token": "a"})).await, "bad_token");
    client.ok(json!({"op": "AUTH", "token": "b"})).await;
}

#[tokio::test]
async fn a_new_client_ca_replaces_the_old_one() {
    let rules = r#"auth.certificates=[{subject="CN=billing",scopes=["publish:**"]}]"#;
    let mutual = Mutual::start("required", &[rules]).await;
    let ours = mutual.authority.client("billing");
    let mut old = mutual.connect(Some(&ours)).await;
    let other = crate::gateway::authority::Authority::new();
    let theirs = other.client("billing");
    other.write(&mutual.path("ca.pem"));
    assert!(mutual.accepts(Some(&ours)).await && !mutual.accepts(Some(&theirs)).await);
    let certificates = [Mutual::settings(mutual.files.path(), "required"), vec![rules.to_owned()]];
    let settings = certificates.concat();
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    succeeds(reload(&mutual.running, &settings));
    assert!(!mutual.accepts(Some(&ours)).await && mutual.accepts(Some(&theirs)).await);
    old.assert_lives().await;
}

#[tokio::test]
async fn a_removed_token_loses_its_rights_and_its_connection() {
    let set = "gateway.expired_token_grace_ms=300";
    let running = started(&[&tokens(&["leaving", "staying"]), set]).await;
    let mut leaving = with_token(&running, "leaving").await;
    let mut staying = with_token(&running, "staying").await;
    leaving.subscribe("t", "leaving", json!({})).await;
    staying.subscribe("t", "staying", json!({})).await;
    succeeds(reload(&running, &[&tokens(&["staying", "new"]), set]));
    staying.publish("t", json!(1)).await;
    assert_eq!(payload(&staying.event().await), 1);
    assert_eq!(
        leaving.ask(publish("t")).await,
        r#"{"op":"ERR","code":"unauthorized","msg":"authenticate first: send AUTH with a token"}"#
    );
    assert_eq!(leaving.close_code().await, 4401);
    staying.ok(publish("t")).await;
    with_token(&running, "new").await.ok(publish("t")).await;
    let mut late = running.connect().await;
    assert_eq!(code(&mut late, json!({"op": "AUTH", "token": "leaving"})).await, "bad_token");
}

#[tokio::test]
async fn a_client_may_replace_its_removed_token() {
    let running = started(&[&tokens(&["old", "publisher"])]).await;
    let mut client = with_token(&running, "old").await;
    let mut publisher = with_token(&running, "publisher").await;
    client.subscribe("t", "g", json!({})).await;
    succeeds(reload(&running, &[&tokens(&["new", "publisher"])]));
    publisher.publish("t", json!("for the new token")).await;
    client.gets_nothing_for(Duration::from_millis(100)).await;
    client.ok(json!({"op": "AUTH", "token": "new"})).await;
    assert_eq!(payload(&client.event().await), "for the new token");
}

#[tokio::test]
async fn narrower_scopes_end_what_they_no_longer_allow() {
    let running = started(&[&tokens(&["a", "publisher"])]).await;
    let mut client = with_token(&running, "a").await;
    let mut publisher = with_token(&running, "publisher").await;
    for topic in ["kept", "lost"] {
        client.subscribe(topic, "g", json!({})).await;
    }
    let narrow = r#"auth.tokens=[
        {token="a",scopes=["subscribe:kept"]},{token="publisher",scopes=["publish:**"]},
    ]"#;
    succeeds(reload(&running, &[narrow]));
    publisher.publish("lost", json!("not for it")).await;
    publisher.publish("kept", json!("for it")).await;
    assert_eq!(payload(&client.event().await), "for it");
    client.gets_nothing_for(Duration::from_millis(100)).await;
    assert_eq!(code(&mut client, publish("kept")).await, "forbidden");
}

#[tokio::test]
async fn a_removed_certificate_loses_its_rights() {
    let rule =
        |name| format!(r#"auth.certificates=[{{subject="CN={name}",scopes=["publish:**"]}}]"#);
    let mutual = Mutual::start("optional", &[&rule("billing")]).await;
    let billing = mutual.authority.client("billing");
    let mut client = mutual.connect(Some(&billing)).await;
    let waiting_certificate = mutual.authority.client("other");
    let mut waiting = mutual.connect(Some(&waiting_certificate)).await;
    client.ok(publish("t")).await;
    assert_eq!(code(&mut waiting, publish("t")).await, "unauthorized");
    let mut settings = Mutual::settings(mutual.files.path(), "optional");
    settings.push(rule("other"));
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    succeeds(reload(&mutual.running, &settings));
    assert_eq!(code(&mut client, publish("t")).await, "unauthorized");
    waiting.ok(publish("t")).await;
}

const KEYS: [&str; 2] =
    ["the first secret of the tests, long enough", "the second secret of the tests, long enough"];

fn write_jwks(file: &Path, key: &str) {
    let k = URL_SAFE_NO_PAD.encode(key);
    std::fs::write(file, json!({"keys": [{"kty": "oct", "k": k}]}).to_string()).unwrap();
}

fn signed(key: &str) -> String {
    let claims = json!({"scope": "publish:**", "exp": SystemClock.now().0 / 1000 + 600});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(key.as_bytes())).unwrap()
}

#[tokio::test]
async fn keys_for_signed_tokens_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    let set = format!("auth.jwt.jwks_file={}", file.display());
    write_jwks(&file, KEYS[0]);
    let running = started(&[&set]).await;
    let mut client = with_token(&running, &signed(KEYS[0])).await;
    std::fs::write(&file, "{").unwrap();
    let broken = reload(&running, &[&set]);
    assert!(broken.access.unwrap_err().to_string().contains("keys.json"));
    client.ok(publish("t")).await;
    write_jwks(&file, KEYS[1]);
    succeeds(reload(&running, &[&set]));
    assert_eq!(code(&mut client, publish("t")).await, "unauthorized");
    client.ok(json!({"op": "AUTH", "token": signed(KEYS[1])})).await;
    client.ok(publish("t")).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let running = started(&[&tokens(&["a", "b"])]).await;
    let mut publisher = with_token(&running, "b").await;
    publisher.publish("t", json!("before")).await;
    let mut bodies = Vec::new();
    for token in ["a", "b"] {
        let mut client = HttpClient::connect(&running).await.with_token(token);
        let response = client.open("GET", "/stream?topic=t", &[], "").await;
        bodies.push((client, response.into_body()));
    }
    succeeds(reload(&running, &[&tokens(&["b"])]));
    let (_, mut ended) = bodies.remove(0);
    let (_, mut open) = bodies.remove(0);
    while next_data(&mut ended).await.is_some() {}
    publisher.publish("t", json!("still there")).await;
    while !next_data(&mut open).await.unwrap().contains("still there") {}
}

async fn next_data(body: &mut hyper::body::Incoming) -> Option<String> {
    let frame = http_body_util::BodyExt::frame(body);
    let frame = tokio::time::timeout(Duration::from_secs(20), frame).await.expect("it hangs");
    Some(String::from_utf8_lossy(frame?.unwrap().data_ref().unwrap()).into_owned())
}

#[tokio::test]
async fn authentication_is_not_turned_on_or_off() {
    let running = started(&[&tokens(&["a"])]).await;
    let off = reload(&running, &[]);
    assert!(matches!(off.access, Err(ReloadError::Switched)), "{off:?}");
    let mut client = running.connect().await;
    assert_eq!(code(&mut client, publish("t")).await, "unauthorized");
    let open = started(&[]).await;
    let on = reload(&open, &[&tokens(&["a"])]);
    assert!(matches!(on.access, Err(ReloadError::Switched)), "{on:?}");
    open.connect().await.assert_lives().await;
}

/// A server with a configuration file, and what reloads it.
async fn configured(file: &Path) -> (Running, Reloader) {
    let load = || Sources { file: Some(file.to_owned()), ..sources(&[]) };
    let raw = RawConfig::load(&load()).unwrap();
    let config = Config::validate(&raw).unwrap();
    let reloader = Reloader::new(load(), raw, &config);
    let threads = Threads::current_only();
    let server = Server::start_over(store::engine().await, threads, &config).await.unwrap();
    (Running { server }, reloader)
}

#[tokio::test]
async fn the_configuration_is_read_again_when_a_file_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (file, keys) = (folder.path().join("own.toml"), folder.path().join("keys.json"));
    let write = |token: &str, more: &str| {
        let text = format!("{}\n{more}\n", tokens(&[token]));
        std::fs::write(&file, text).unwrap();
    };
    write("a", "");
    let (running, mut reloader) = configured(&file).await;
    let target = running.server.reloadable();
    assert!(!reloader.reload_if_changed(target), "nothing has changed");
    write("second", &format!("auth.jwt.jwks_file = {:?}", keys.display().to_string()));
    // The file that it names is missing, so everything under auth stays.
    assert!(reloader.reload_if_changed(target));
    with_token(&running, "a").await.ok(publish("t")).await;
    assert!(!reloader.reload_if_changed(target), "a failure is reported once");
    write_jwks(&keys, KEYS[0]);
    assert!(reloader.reload_if_changed(target), "files that a reload named are watched");
    let mut client = with_token(&running, &signed(KEYS[0])).await;
    with_token(&running, "second").await.ok(publish("t")).await;
    // A file that cannot be parsed changes nothing, but key files are read again all the same.
    std::fs::write(&file, "auth = {").unwrap();
    write_jwks(&keys, KEYS[1]);
    assert!(reloader.reload_if_changed(target));
    assert_eq!(code(&mut client, publish("t")).await, "unauthorized");
    with_token(&running, &signed(KEYS[1])).await.ok(publish("t")).await;
    with_token(&running, "second").await.ok(publish("t")).await;
    assert!(!reloader.reload_if_changed(target));
}
