//! A store on disk whose keyed state is damaged.

use std::fs;
use std::sync::Arc;

use prombus_engine::{DiskEngine, DiskOptions, Engine};
use prombus_server::config::Config;
use prombus_server::server::Server;
use prombus_server::threads::Threads;

use crate::gateway::running::{sources, started_over};
use crate::http::client::HttpClient;

#[tokio::test]
async fn a_damaged_state_file_keeps_the_server_from_starting_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let open = |start_damaged| -> Arc<dyn Engine> {
        let options = DiskOptions { start_damaged, ..DiskOptions::at(folder.path()) };
        Arc::new(DiskEngine::open(&options).unwrap())
    };
    let running = started_over(open(false), &[]).await;
    let mut client = HttpClient::connect(&running).await;
    for number in 0..100 {
        client.put(&format!("/topics/t{number}"), r#"{"retention_ms":1000000}"#).await.ok();
    }
    client.post("/publish/t1", "1").await.ok();
    running.server.stop().await.unwrap();
    let file = fs::read_dir(folder.path().join("state")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();

    let engine = open(false);
    let config = Config::load(&sources(&[])).unwrap();
    let refused = Server::start_over(Arc::clone(&engine), Threads::current_only(), &config).await;
    let refused = refused.err();
    let message = refused.expect("the settings are damaged").to_string();
    assert!(message.contains("--start-damaged starts with what is left"), "{message}");
    engine.close().await.unwrap();

    let running = started_over(open(true), &[]).await;
    let mut client = HttpClient::connect(&running).await;
    assert_eq!(client.get("/replay?topic=t1").await.ok()["count"], 1);
    running.server.stop().await.unwrap();
}
