use serde_json::{Value, json};

use crate::cli::server::Server;

#[test]
fn lists_the_groups_of_one_topic_or_of_all() {
    let server = Server::start(&[]);
    server.run(&["publish", "a", "1", "2", "3"], "").lines();
    server.run(&["publish", "b", "1"], "").lines();
    for (topic, group) in [("a", "g"), ("a", "h"), ("b", "g")] {
        let arguments =
            ["subscribe", topic, "--group", group, "--from", "earliest", "--count", "1"];
        server.run(&arguments, "").lines();
    }
    let seen = |arguments: &[&str]| -> Vec<Value> {
        let mut groups = server.run(arguments, "").lines();
        for group in &mut groups {
            // These vary: the lag in time, and a member that is just leaving.
            group
                .as_object_mut()
                .unwrap()
                .retain(|name, _| !["lag_ms", "members", "in_flight"].contains(&name.as_str()));
        }
        groups
    };
    let expected = |topic: &str, group: &str, lag: u64| json!({"topic": topic, "group": group, "lag_events": lag});
    let groups_of_a = [expected("a", "g", 2), expected("a", "h", 2)];
    assert_eq!(seen(&["groups", "a"]), groups_of_a);
    assert_eq!(seen(&["groups"]), [&groups_of_a[..], &[expected("b", "g", 0)]].concat());
    server.run(&["groups", "nobody"], "").failed_with("unknown_topic: ");
}

#[test]
fn lists_a_group_before_the_first_event_of_its_topic() {
    let server = Server::start(&[]);
    let mut subscriber = server.command(&["subscribe", "early", "--group", "g"]).spawn().unwrap();
    // The group exists as soon as the subscription is accepted.
    let groups = loop {
        let ran = server.run(&["groups"], "");
        match ran.lines() {
            groups if groups.is_empty() => {}
            groups => break groups,
        }
    };
    let group = json!({"topic": "early", "group": "g", "members": 1, "in_flight": 0, "lag_events": 0, "lag_ms": 0});
    assert_eq!(groups, std::slice::from_ref(&group));
    assert_eq!(server.run(&["groups", "early"], "").lines(), [group]);
    assert_eq!(server.run(&["topics"], "").lines()[0]["topic"], "early");
    subscriber.kill().unwrap();
    subscriber.wait().unwrap();
}

#[test]
fn the_list_leaves_out_groups_the_token_may_not_see() {
    let server = Server::start(&[
        "auth.tokens=[{token = \"reader\", scopes = [\"publish:*\", \"subscribe:a\"]}]",
    ]);
    for topic in ["a", "b"] {
        server.run(&["publish", topic, "1", "--token", "reader"], "").lines();
    }
    let arguments = ["subscribe", "a", "--group", "g", "--from", "earliest", "--count", "1"];
    server.run(&[&arguments[..], &["--token", "reader"]].concat(), "").lines();
    let groups = server.run(&["groups", "--token", "reader"], "").lines();
    assert_eq!((groups.len(), &groups[0]["topic"]), (1, &json!("a")));
    server.run(&["groups", "b", "--token", "reader"], "").failed_with("forbidden: ");
}
