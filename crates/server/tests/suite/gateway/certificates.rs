//! Client certificates as an identity.

use serde_json::json;

use crate::gateway::authority::{Authority, Mutual};
use crate::gateway::client::{Client, parsed};

const RULES: [&str; 2] = [
    r#"auth.certificates=[
        {subject="CN=billing",scopes=["publish:a","subscribe:a"]},
        {subject="CN=nobody",scopes=[]},
    ]"#,
    r#"auth.tokens=[{token="other",scopes=["publish:b"]}]"#,
];

async fn code(client: &mut Client, topic: &str) -> String {
    let answer = client.ask(json!({"op": "PUBLISH", "topic": topic, "payload": 1})).await;
    parsed(&answer)["code"].as_str().unwrap_or("OK").to_owned()
}

#[tokio::test]
async fn a_certificate_gives_the_rights_of_its_name_without_auth() {
    let mutual = Mutual::start("optional", &RULES).await;
    let billing = mutual.authority.client("billing");
    let mut client = mutual.connect(Some(&billing)).await;
    client.subscribe("a", "g", json!({})).await;
    client.publish("a", json!(1)).await;
    client.event().await;
    assert_eq!(code(&mut client, "b").await, "forbidden");
    let (nobody, unlisted) =
        (mutual.authority.client("nobody"), mutual.authority.client("Billing"));
    assert_eq!(code(&mut mutual.connect(Some(&nobody)).await, "a").await, "forbidden");
    assert_eq!(code(&mut mutual.connect(Some(&unlisted)).await, "a").await, "unauthorized");
    assert_eq!(code(&mut mutual.connect(None).await, "a").await, "unauthorized");
}

#[tokio::test]
async fn a_token_takes_precedence_over_the_certificate() {
    let mutual = Mutual::start("optional", &RULES).await;
    let billing = mutual.authority.client("billing");
    let mut client = mutual.connect(Some(&billing)).await;
    let refused = client.ask(json!({"op": "AUTH", "token": "wrong"})).await;
    assert_eq!(parsed(&refused)["code"], "bad_token");
    assert_eq!(code(&mut client, "a").await, "OK", "a rejected token changes nothing");
    client.ok(json!({"op": "AUTH", "token": "other"})).await;
    assert_eq!(code(&mut client, "a").await, "forbidden");
    assert_eq!(code(&mut client, "b").await, "OK");
}

#[tokio::test]
async fn http_requests_need_no_authorization_with_a_certificate() {
    let mutual = Mutual::start("optional", &RULES).await;
    let billing = mutual.authority.client("billing");
    let mut client = mutual.http(Some(&billing)).await;
    client.post("/publish/a", "1").await.ok();
    client.post("/publish/b", "1").await.refused(403, "forbidden");
    for (header, topic, status) in [
        ("Bearer other", "a", 403),
        ("Bearer other", "b", 200),
        ("Bearer wrong", "a", 401),
        ("Basic d3JpdGVyOg==", "a", 401),
    ] {
        let headers = [("authorization", header)];
        let reply = client.ask("POST", &format!("/publish/{topic}"), &headers, "1").await;
        assert_eq!(reply.status, status, "{header} to {topic}: {reply:?}");
    }
    let mut stranger = mutual.http(None).await;
    stranger.post("/publish/a", "1").await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_required_certificate_must_come_from_the_ca() {
    let mutual = Mutual::start("required", &RULES).await;
    let stranger = Authority::new().client("billing");
    // For servers only: its holder must not act as a client.
    let server = mutual.authority.server();
    for (shows, expected) in [
        (Some(&mutual.authority.client("billing")), true),
        (Some(&mutual.authority.client("unlisted")), true),
        (None, false),
        (Some(&stranger), false),
        (Some(&server), false),
    ] {
        assert_eq!(mutual.accepts(shows).await, expected);
    }
    let optional = Mutual::start("optional", &RULES).await;
    assert!(optional.accepts(None).await);
    assert!(!optional.accepts(Some(&stranger)).await);
}

#[tokio::test]
async fn without_rules_every_holder_of_a_certificate_may_do_everything() {
    let mutual = Mutual::start("required", &[]).await;
    let anyone = mutual.authority.client("anyone");
    mutual.connect(Some(&anyone)).await.assert_lives().await;
    mutual.http(Some(&anyone)).await.put("/topics/t", "{}").await.ok();
}
