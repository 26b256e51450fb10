//! `/openapi.json` and `/docs`.

use crate::gateway::running::started;
use crate::http::client::HttpClient;

const TOKENS: &str = r#"auth.tokens=[{token="x",scopes=[]}]"#;

#[tokio::test]
async fn the_description_says_whether_tokens_are_required() {
    for (settings, alternatives) in [(&[][..], 2), (&[TOKENS][..], 1)] {
        let running = started(settings).await;
        let description = HttpClient::connect(&running).await.get("/openapi.json").await.ok();
        assert_eq!(description["security"].as_array().unwrap().len(), alternatives);
    }
}

#[tokio::test]
async fn the_page_needs_no_token_and_loads_nothing() {
    let running = started(&[TOKENS]).await;
    let mut client = HttpClient::connect(&running).await;
    let start = client.get("/").await;
    assert_eq!((start.status.as_u16(), start.header("location")), (307, Some("/docs")));
    let page = client.get("/docs").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'; "));
    assert!(page.body.starts_with(b"<!doctype html>"));
    // Its examples work as they are.
    let body = String::from_utf8(page.body.to_vec()).unwrap();
    let address = format!("curl {}/topics", running.server.http_url());
    assert!(body.replace("&#x2f;", "/").contains(&address), "{address}");
    let evil = client.ask("GET", "/docs", &[("host", "127.0.0.1:1\"<b>")], "").await;
    assert!(!String::from_utf8(evil.body.to_vec()).unwrap().contains("<b>"));
    let head = client.ask("HEAD", "/docs", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    for path in ["/", "/docs", "/openapi.json"] {
        client.get(&format!("{path}?x=1")).await.refused(400, "bad_frame");
    }
}
