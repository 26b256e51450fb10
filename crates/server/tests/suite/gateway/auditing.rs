//! The audit log.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::Level;
use tracing::subscriber::DefaultGuard;

use crate::gateway::authorising::{SECRET, authenticated, token_with_seconds_left};
use crate::gateway::authority::Mutual;
use crate::gateway::client::parsed;
use crate::gateway::running::started;
use crate::http::client::HttpClient;

const TOKENS: &str = r#"auth.tokens=[
    {name="billing",token="billing-secret",scopes=["publish:orders.*"]},
    {name="operator",token="operator-secret",scopes=["manage:**"]},
    {token="unnamed-secret",scopes=["read:**"]},
]"#;

/// Everything that this thread logs, at every level. The server of a test runs on its thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn start(&self) -> DefaultGuard {
        let log = self.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true);
        let lines = lines.with_max_level(Level::TRACE).with_writer(move || log.clone());
        tracing::subscriber::set_default(lines.finish())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    /// The audit lines, without the members that every line has.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().map(parsed).filter(|line| line["target"] == "audit");
        let without_time = lines.map(|mut line| {
            line.as_object_mut()
                .unwrap()
                .retain(|name, _| !["timestamp", "target"].contains(&&**name));
            line
        });
        without_time.collect()
    }
}

#[tokio::test]
async fn names_who_logged_in_who_was_refused_and_who_changed_what() {
    let log = Log::default();
    let _logging = log.start();
    let jwt = format!("auth.jwt.secret={SECRET}");
    let running = started(&[TOKENS, &jwt]).await;

    let mut billing = authenticated(&running, "billing-secret").await;
    for _ in 0..3 {
        let subscribe = json!({"op": "SUBSCRIBE", "topic": "orders.new", "group": "g"});
        assert_eq!(parsed(&billing.ask(subscribe).await)["code"], "forbidden");
    }
    let mut guesser = running.connect().await;
    for _ in 0..3 {
        guesser.ask(json!({"op": "AUTH", "token": "guessed-secret"})).await;
    }
    let signed = token_with_seconds_left(600);
    authenticated(&running, &signed).await;
    let mut operator = HttpClient::connect(&running).await.with_token("operator-secret");
    operator.put("/topics/orders.new", r#"{"retention_ms": 5, "durability": null}"#).await.ok();
    operator.get("/topics").await.ok();
    operator.get("/metrics").await.refused(403, "forbidden");
    let mut unnamed = HttpClient::connect(&running).await.with_token("unnamed-secret");
    unnamed.put("/topics/orders.new", "{}").await.refused(403, "forbidden");

    let (ws, http) = (json!("ws"), json!("http"));
    let line = |level: &str, message: &str, transport: &Value, more: Value| {
        let mut line = json!({
            "level": level, "message": message, "address": "127.0.0.1", "transport": transport,
        });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let login = |name: &str, kind: &str| json!({"principal": name, "kind": kind, "count": 1});
    let expected = [
        line("INFO", "login", &ws, login("billing", "token")),
        line(
            "WARN",
            "forbidden",
            &ws,
            json!({
                "principal": "billing", "kind": "token", "action": "consume",
                "topic": "orders.new", "group": "g", "count": 1,
            }),
        ),
        line("WARN", "login refused", &ws, json!({"reason": "unknown token", "count": 1})),
        line("INFO", "login", &ws, json!({"kind": "jwt", "count": 1})),
        line("INFO", "login", &http, login("operator", "token")),
        line(
            "INFO",
            "changed",
            &http,
            json!({
                "principal": "operator", "kind": "token", "topic": "orders.new",
                "change": r#"settings {"retention_ms":5}"#,
            }),
        ),
        line(
            "WARN",
            "forbidden",
            &http,
            json!({"principal": "operator", "kind": "token", "action": "admin", "count": 1}),
        ),
        line("INFO", "login", &http, login("token-3", "token")),
        line(
            "WARN",
            "forbidden",
            &http,
            json!({
                "principal": "token-3", "kind": "token", "action": "manage",
                "topic": "orders.new", "count": 1,
            }),
        ),
    ];
    assert_eq!(log.lines(), expected);
    let text = log.text();
    let signature = signed.rsplit('.').next().unwrap();
    for secret in ["-secret", SECRET, signature] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[tokio::test]
async fn an_open_server_logs_changes_but_no_logins() {
    let log = Log::default();
    let _logging = log.start();
    let running = started(&[]).await;
    authenticated(&running, "whatever").await;
    HttpClient::connect(&running).await.put("/topics/t", "{}").await.ok();
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((&lines[0]["message"], &lines[0]["kind"]), (&json!("changed"), &json!("anyone")));
}

#[tokio::test]
async fn the_holder_of_a_certificate_has_its_name() {
    let log = Log::default();
    let _guard = log.start();
    let rules = r#"auth.certificates=[{subject="CN=billing",scopes=["publish:signs-of-life"]}]"#;
    let mutual = Mutual::start("optional", &[rules]).await;
    let billing = mutual.authority.client("billing");
    mutual.connect(Some(&billing)).await.assert_lives().await;
    let logins = log.lines();
    assert_eq!(logins.len(), 1, "{logins:?}");
    assert_eq!(
        (&logins[0]["message"], &logins[0]["principal"], &logins[0]["kind"]),
        (&json!("login"), &json!("CN=billing"), &json!("certificate"))
    );
}
