//! Operators that redrive dead letters, move a group and delete a group, again and again, and somebody who publishes.
//! None of them ends.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::ledger::{DELETED, Ledger, SOUGHT, TOPIC, WORKING, until};
use super::letters::Letter;
use super::request;

/// How many events are published ahead of the slower working group.
const AHEAD: u64 = 100;
const BATCH: u64 = 10;
/// How far a group has to get before it is moved again.
const RUN: u64 = 20;

pub(crate) struct Operator<'a> {
    /// The servers that it asks, any of them.
    pub(crate) servers: &'a [SocketAddr],
    pub(crate) ledger: &'a Ledger,
}

impl Operator<'_> {
    /// Does everything at once.
    pub(crate) async fn operate(&self) {
        tokio::join!(self.publish(), self.redrive(), self.seek(), self.delete());
    }

    /// Returns `None` if there is no answer, because the server was killed.
    async fn ask(&self, method: &str, path: &str, body: Value) -> Option<(StatusCode, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, "application/json", body).await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: String,
    ) -> Option<(StatusCode, Value)> {
        let number = self.ledger.random.below(self.servers.len() as u64);
        let server = self.servers[usize::try_from(number).unwrap()];
        let answer = request::ask(server, method, path, content_type, body).await;
        if answer.is_none() {
            // It is being started again.
            sleep(Duration::from_millis(20)).await;
        }
        // Another operator may have been faster ten times; the request can be repeated.
        answer.filter(|(status, _)| *status != StatusCode::SERVICE_UNAVAILABLE)
    }

    async fn publish(&self) {
        while !self.ledger.is_draining() {
            self.publish_batch().await;
            let last = self.ledger.last_published();
            until(|| self.ledger.handled_events() + AHEAD > last || self.ledger.is_draining())
                .await;
        }
    }

    /// Publishes the next events, until that is answered. An attempt without an answer may have stored them.
    async fn publish_batch(&self) {
        let first = self.ledger.last_published() + 1;
        let last = first + BATCH - 1;
        let line = |n| format!("{}\n", json!({"id": format!("e{n}"), "payload": n}));
        let body: String = (first..=last).map(line).collect();
        let path = format!("/publish/{TOPIC}");
        loop {
            let answer = self.send("POST", &path, "application/x-ndjson", body.clone()).await;
            let Some((status, answer)) = answer else { continue };
            let positions = (&answer["first_seq"], &answer["last_seq"]);
            assert_eq!((status, positions), (StatusCode::OK, (&json!(first), &json!(last))));
            return self.ledger.published(last);
        }
    }

    async fn redrive(&self) {
        loop {
            match self.ledger.random.below(3) {
                0 => self.redrive_all(&json!({})).await,
                1 => {
                    let group = WORKING[usize::try_from(self.ledger.random.below(2)).unwrap()];
                    self.redrive_all(&json!({"group": group, "limit": 5})).await;
                }
                _ => self.redrive_one_twice().await,
            }
            sleep(Duration::from_millis(self.ledger.random.below(20))).await;
        }
    }

    async fn redrive_all(&self, selection: &Value) {
        self.redrive_selected(selection, None).await;
    }

    /// Redrives any letter, redriven before or not, by two requests at once.
    async fn redrive_one_twice(&self) {
        let letters = self.letters_of_any_page().await;
        if letters.is_empty() {
            return;
        }
        let chosen = self.ledger.random.below(letters.len() as u64);
        let id = &letters[usize::try_from(chosen).unwrap()].id;
        let selection = json!({"ids": [id]});
        tokio::join!(
            self.redrive_selected(&selection, Some(id)),
            self.redrive_selected(&selection, Some(id)),
        );
    }

    async fn redrive_selected(&self, selection: &Value, id: Option<&str>) -> Option<u64> {
        let path = format!("/dlq/{TOPIC}/redrive");
        let (status, answer) = self.ask("POST", &path, selection.clone()).await?;
        if status == StatusCode::NOT_FOUND {
            // Nothing was published, or nobody has subscribed yet.
            return None;
        }
        assert_eq!(status, StatusCode::OK, "{answer}");
        let redriven = answer["redriven"].as_u64().unwrap();
        self.ledger.redrives().answered(id, redriven);
        Some(redriven)
    }

    async fn letters_of_any_page(&self) -> Vec<Letter> {
        let group = WORKING[usize::try_from(self.ledger.random.below(2)).unwrap()];
        let path = format!("/dlq/{TOPIC}?limit=1000&group={group}");
        match self.ask("GET", &path, Value::Null).await {
            Some((StatusCode::OK, page)) => {
                page["letters"].as_array().unwrap().iter().map(Letter::listed).collect()
            }
            _ => Vec::new(),
        }
    }

    async fn seek(&self) {
        until(|| self.ledger.last_published() > 0).await;
        loop {
            let to = 1 + self.ledger.random.below(self.ledger.last_published());
            self.seek_to(to).await;
            let last = self.ledger.last_published().min(to + RUN);
            until(|| self.ledger.sought().has_acked_up_to(last)).await;
        }
    }

    /// Moves the group, until that is answered.
    pub(crate) async fn seek_to(&self, to: u64) {
        loop {
            self.ledger.sought().began();
            let path = format!("/groups/{TOPIC}/{SOUGHT}/seek");
            let answer = self.ask("POST", &path, json!({"to": "seq", "seq": to})).await;
            match answer {
                Some((StatusCode::OK, sought)) => {
                    assert_eq!(sought["next_seq"], to, "{sought}");
                    return self.ledger.sought().answered(to);
                }
                // Nobody has subscribed yet, or the server was killed.
                Some((StatusCode::NOT_FOUND, _)) | None => {
                    sleep(Duration::from_millis(20)).await;
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    async fn delete(&self) {
        until(|| self.ledger.last_published() > 0).await;
        loop {
            self.delete_once().await;
            let last = self.ledger.last_published().min(RUN);
            until(|| self.ledger.deleted().has_acked_up_to(last)).await;
        }
    }

    /// Deletes the group, until that is answered, and waits for its subscriptions to end.
    pub(crate) async fn delete_once(&self) {
        // Sometimes it is created again at once.
        let nobody_joins = match self.ledger.random.percent(50) {
            true => Some(self.ledger.joining.write().await),
            false => None,
        };
        loop {
            self.ledger.deleted().began();
            let path = format!("/groups/{TOPIC}/{DELETED}");
            match self.ask("DELETE", &path, Value::Null).await {
                // An attempt without an answer may have deleted it.
                Some((StatusCode::OK | StatusCode::NOT_FOUND, _)) => break,
                None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
        self.ledger.deleted().answered(1);
        if nobody_joins.is_some() {
            self.check_gone().await;
        }
        drop(nobody_joins);
        until(|| self.ledger.deleted().has_ended_subscriptions()).await;
    }

    /// Checks that nothing of the deleted group is left, as far as servers answer.
    async fn check_gone(&self) {
        if let Some((status, answer)) =
            self.ask("GET", &format!("/groups/{TOPIC}/{DELETED}"), Value::Null).await
        {
            assert_eq!((status, &answer["code"]), (StatusCode::NOT_FOUND, &json!("unknown_group")));
        }
        for (path, list) in [("/groups", "groups"), ("/cursors", "cursors")] {
            let path = format!("{path}?topic={TOPIC}");
            if let Some((status, answer)) = self.ask("GET", &path, Value::Null).await {
                assert_eq!(status, StatusCode::OK, "{answer}");
                let groups = answer[list].as_array().unwrap();
                assert!(groups.iter().all(|group| group["group"] != DELETED), "{answer}");
            }
        }
        let redrive = format!("/dlq/{TOPIC}/redrive");
        if let Some((status, answer)) = self.ask("POST", &redrive, json!({"group": DELETED})).await
        {
            assert_eq!((status, &answer["code"]), (StatusCode::NOT_FOUND, &json!("unknown_group")));
        }
    }

    /// Publishes what may be left over, waits until the working groups have finished everything, redrives the letters of the first one, and waits again.
    /// Then moves the third group and deletes the fourth for the last time. Returns all letters.
    pub(crate) async fn finish(&self) -> Vec<Letter> {
        self.publish_batch().await;
        self.until_finished().await;
        while self.redrive_selected(&json!({"group": WORKING[0]}), None).await != Some(0) {}
        self.until_finished().await;
        self.seek_to(1).await;
        let last = self.ledger.last_published();
        until(|| self.ledger.sought().has_acked_up_to(last)).await;
        self.delete_once().await;
        until(|| self.ledger.deleted().has_acked_up_to(last)).await;
        self.all_letters().await
    }

    async fn until_finished(&self) {
        for group in WORKING {
            let path = format!("/groups/{TOPIC}/{group}");
            loop {
                if let Some((StatusCode::OK, state)) = self.ask("GET", &path, Value::Null).await
                    && (&state["lag"]["events"], &state["redriving"]) == (&json!(0), &json!(0))
                {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn all_letters(&self) -> Vec<Letter> {
        let (mut letters, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/dlq/{TOPIC}?limit=1000{after}");
            let (status, page) = self.ask("GET", &path, Value::Null).await.expect("it runs");
            assert_eq!(status, StatusCode::OK, "{page}");
            letters.extend(page["letters"].as_array().unwrap().iter().map(Letter::listed));
            match page["next"].as_str() {
                Some(last) => after = format!("&after={last}"),
                None => return letters,
            }
        }
    }
}
