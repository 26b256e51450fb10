//! `asyncapi.yaml` has all operations, codes and limits, and its examples are valid frames.

use std::collections::BTreeSet;

use bytes::Bytes;
use prombus_proto::{ClientFrame, ClientOp, ErrorCode, Event, FrameLimits, ServerFrame, limits};
use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

use crate::transcript::ASYNCAPI;

fn document() -> Value {
    let documents = YamlLoader::load_from_str(ASYNCAPI).expect("valid YAML");
    to_json(&documents[0])
}

fn to_json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Real(text) => Value::from(text.parse::<f64>().expect("a number")),
        Yaml::Integer(number) => Value::from(*number),
        Yaml::String(text) => Value::from(text.as_str()),
        Yaml::Boolean(truth) => Value::from(*truth),
        Yaml::Null => Value::Null,
        Yaml::Array(items) => items.iter().map(to_json).collect(),
        Yaml::Hash(members) => {
            let name = |yaml: &Yaml| yaml.as_str().expect("names are strings").to_owned();
            let members = members.iter().map(|(key, value)| (name(key), to_json(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Yaml::Alias(_) | Yaml::BadValue => unreachable!("not in a loaded document"),
    }
}

/// Returns the name and payload of each example of each message.
fn examples(document: &Value) -> Vec<(&str, &Value)> {
    let messages = document["components"]["messages"].as_object().expect("an object").values();
    messages
        .flat_map(|message| {
            let examples = message["examples"].as_array().expect("a message has examples");
            let name = message["name"].as_str().expect("a message has a name");
            examples.iter().map(move |example| (name, &example["payload"]))
        })
        .collect()
}

#[test]
fn every_operation_has_valid_examples() {
    let document = document();
    let mut named = BTreeSet::new();
    for (name, example) in examples(&document) {
        let frame = Bytes::from(example.to_string());
        if ServerFrame::NAMES.contains(&name) {
            let parsed =
                ServerFrame::parse(&frame).unwrap_or_else(|error| panic!("{error}: {example}"));
            if let ServerFrame::Event { event, .. } = &parsed {
                Event::decode(event).unwrap_or_else(|error| panic!("{error}: {example}"));
            }
            let mut written = Vec::new();
            parsed.write(&mut written);
            assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), *example);
        } else {
            let parsed = ClientFrame::parse(&frame, &FrameLimits::default())
                .unwrap_or_else(|error| panic!("{error}: {example}"));
            assert_eq!(parsed.op.name(), name);
            // No member of the example was ignored.
            let mut written = Vec::new();
            parsed.write(&mut written);
            assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), *example);
        }
        named.insert(name);
    }
    let expected = ClientOp::NAMES.iter().chain(ServerFrame::NAMES).copied().collect();
    assert_eq!(named, expected);
}

#[test]
fn every_message_belongs_to_the_channel_and_an_operation() {
    let document = document();
    let messages = document["components"]["messages"].as_object().unwrap();
    let listed = document["channels"]["gateway"]["messages"].as_object().unwrap();
    assert_eq!(messages.keys().collect::<Vec<_>>(), listed.keys().collect::<Vec<_>>());
    let operations = document["operations"].to_string();
    for message in messages.keys() {
        let reference = format!("\"#/channels/gateway/messages/{message}\"");
        assert!(operations.contains(&reference), "{message}");
    }
}

#[test]
fn error_codes_match() {
    let document = document();
    let codes = document["components"]["schemas"]["errorCode"]["enum"].as_array().unwrap();
    let written: Vec<_> = codes.iter().map(|code| code.as_str().unwrap()).collect();
    let ours: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(written, ours);
}

#[test]
fn limits_match() {
    let document = document();
    let components = &document["components"];
    let (schemas, messages) = (&components["schemas"], &components["messages"]);
    let options = &schemas["subscribeOptions"]["properties"];
    let nack = &messages["nack"]["payload"]["allOf"][1]["properties"];
    let modack = &messages["modack"]["payload"]["allOf"][1]["properties"];
    let publish = &messages["ackAndPublish"]["payload"]["allOf"][1]["properties"]["publish"];
    let batch = &messages["publishBatch"]["payload"]["properties"]["events"];
    for (written, ours) in [
        (&schemas["corr"]["maxLength"], limits::MAX_CORR_BYTES as u64),
        (&schemas["name"]["maxLength"], limits::MAX_NAME_BYTES as u64),
        (&schemas["eventId"]["maxLength"], limits::MAX_ID_BYTES as u64),
        (&schemas["key"]["maxLength"], limits::MAX_KEY_BYTES as u64),
        (&schemas["headers"]["maxProperties"], limits::MAX_HEADERS as u64),
        (&options["maxInFlight"]["maximum"], limits::MAX_IN_FLIGHT.into()),
        (&options["ackTimeoutMs"]["minimum"], limits::MIN_ACK_TIMEOUT_MS),
        (&options["ackTimeoutMs"]["maximum"], limits::MAX_LEASE_MS),
        (&options["maxAttempts"]["maximum"], limits::MAX_ATTEMPTS.into()),
        (
            &schemas["ackIds"]["oneOf"][1]["properties"]["ids"]["maxItems"],
            limits::MAX_IN_FLIGHT.into(),
        ),
        (
            &schemas["markIds"]["oneOf"][1]["properties"]["ids"]["maxItems"],
            limits::MAX_FRAME_EVENTS as u64,
        ),
        (&schemas["ttlMs"]["minimum"], limits::MIN_MARK_TTL_MS),
        (&schemas["ttlMs"]["default"], limits::DEFAULT_MARK_TTL_MS),
        (&schemas["ttlMs"]["maximum"], limits::MAX_MARK_TTL_MS),
        (&nack["delay_ms"]["maximum"], limits::MAX_NACK_DELAY_MS),
        (&modack["extend_ms"]["maximum"], limits::MAX_LEASE_MS),
        (&publish["maxItems"], limits::MAX_FRAME_EVENTS as u64),
        (&batch["maxItems"], limits::MAX_FRAME_EVENTS as u64),
    ] {
        assert_eq!(written.as_u64(), Some(ours));
    }
}
