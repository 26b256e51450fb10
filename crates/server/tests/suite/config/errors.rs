//! Invalid configurations, and their error messages.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use prombus_server::config::Sources;

use crate::config::{environment, file, loaded, rejected, set};

fn assert_error(sources: &Sources, text: &str) {
    assert_eq!(rejected(sources).to_string(), text);
}

#[test]
fn unknown_keys_name_their_source_and_a_suggestion() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, path) = file(folder.path(), "[limits]\nenabled = true\nenbaled = false\n");
    assert_error(
        &sources,
        &format!(
            "unknown setting limits.enbaled ({}, line 3); did you mean limits.enabled?",
            path.display()
        ),
    );
    let (sources, path) = file(folder.path(), "\n[colours]\n");
    assert_error(&sources, &format!("unknown setting colours ({}, line 2)", path.display()));
    assert_error(
        &set(&["limits.conection.capacity=5"]),
        "unknown setting limits.conection.capacity (--set limits.conection.capacity); did you mean \
         limits.connection.capacity?",
    );
    assert_error(
        &set(&["topics.a.b.durability=fsync"]),
        "unknown setting topics.a.b.durability (--set topics.a.b.durability); did you mean \
         topics.\"a.b\".durability?",
    );
    assert_error(
        &environment(&[("PROMBUS_LIMITS_CAPACITY", "5")]),
        "unknown environment variable PROMBUS_LIMITS_CAPACITY; did you mean \
         PROMBUS_LIMITS_TOPIC_CAPACITY?",
    );
}

#[test]
fn invalid_types_and_ranges() {
    assert_error(
        &set(&["limits.connection.capacity=0"]),
        "limits.connection.capacity (--set limits.connection.capacity) is 0, but must be a whole \
         number, 1 to 1000000000",
    );
    assert_error(
        &environment(&[("PROMBUS_LIMITS_ENABLED", "yes")]),
        "limits.enabled (environment variable PROMBUS_LIMITS_ENABLED) is \"yes\", but must be true \
         or false",
    );
    assert_error(
        &set(&["server.ws=localhost"]),
        "server.ws (--set server.ws) is \"localhost\", but must be an IP address and a port, such \
         as 127.0.0.1:8090 or [::1]:8090",
    );
    assert_error(
        &set(&["log.format=xml"]),
        "log.format (--set log.format) is \"xml\", but must be auto, text or json",
    );
    assert_error(
        &set(&["topics.a.durability=memory"]),
        "topics.a.durability (--set topics.a.durability) is \"memory\", but must be fsync or \
         buffered",
    );
    assert_error(
        &set(&["topics.a.retention_ms=0"]),
        "topics.a.retention_ms (--set topics.a.retention_ms) is 0, but must be a whole number, 1 \
         or more",
    );
    assert_error(
        &set(&["limits=5"]),
        "limits (--set limits) is a single value, but must be a section of settings, such as limits.NAME",
    );
    assert_error(
        &set(&["topics.\"A\".durability=fsync"]),
        "topics.A.durability (--set topics.\"A\".durability) has an invalid topic name: a name may only contain \
         a-z, 0-9, '_', '-' and '.', not 'A'",
    );
    for origin in ["app.example.com", "https://app.example.com/", "://a", "https://"] {
        let error = rejected(&set(&[&format!("auth.allowed_origins=[\"{origin}\"]")])).to_string();
        assert!(error.contains("a list of origins"), "{origin}: {error}");
    }
}

#[test]
fn unsupported_engines() {
    assert_error(
        &set(&["server.engine=mongodb+srv://user:hunter2@db/prombus"]),
        "server.engine (--set server.engine) must be a mongodb:// address that lists the hosts: \
         mongodb+srv:// is not supported",
    );
    assert_error(
        &set(&["server.engine=mongodb:"]),
        "server.engine (--set server.engine) must be a MongoDB connection string, such as \
         mongodb://db1,db2,db3/prombus?replicaSet=rs0",
    );
    assert_error(
        &set(&["server.engine=redis://user:hunter2@db"]),
        "server.engine (--set server.engine) is \"redis://…\", but must be disk, memory or a \
         mongodb:// address",
    );
}

#[test]
fn settings_that_need_another_one() {
    assert_error(
        &set(&["server.tls.cert_file=a.pem"]),
        "server.tls.cert_file (--set server.tls.cert_file) also needs server.tls.key_file",
    );
    assert_error(
        &set(&["server.tls.key_file=a.pem"]),
        "server.tls.key_file (--set server.tls.key_file) also needs server.tls.cert_file",
    );
    let files = ["server.tls.cert_file=a.pem", "server.tls.key_file=a.pem"];
    for (setting, reason) in [
        ("server.tls.client_auth=required", "also needs server.tls.client_ca_file"),
        (
            "server.tls.client_ca_file=ca.pem",
            "has no effect: set server.tls.client_auth to optional or required",
        ),
        (
            "auth.certificates=[{subject=\"CN=a\",scopes=[]}]",
            "has no effect: set server.tls.client_auth to optional or required",
        ),
    ] {
        let key = setting.split('=').next().unwrap();
        assert_error(
            &set(&[files[0], files[1], setting]),
            &format!("{key} (--set {key}) {reason}"),
        );
    }
    assert_error(
        &set(&["server.tls.client_auth=optional", "server.tls.client_ca_file=ca.pem"]),
        "server.tls.client_auth (--set server.tls.client_auth) also needs server.tls.cert_file",
    );
    assert_error(
        &set(&["gateway.max_frame_bytes=2000000", "memory.frames_bytes=4194304"]),
        "memory.frames_bytes (--set memory.frames_bytes) must be at least four times gateway.max_frame_bytes",
    );
    let issuer = rejected(&set(&["auth.jwt.issuer=me"])).to_string();
    assert!(issuer.contains("auth.jwt.issuer (--set auth.jwt.issuer) has no effect"), "{issuer}");
}

#[test]
fn a_public_address_without_authentication() {
    for public in ["server.ws=0.0.0.0:1", "server.http=[::]:1", "server.ws=192.0.2.1:1"] {
        let key = public.split('=').next().unwrap();
        let error = rejected(&set(&[public])).to_string();
        assert!(error.starts_with(&format!("{key} (--set {key}) is ")), "{error}");
        assert!(error.contains("auth.tokens") && error.contains("--insecure"), "{error}");
        loaded(&set(&[public, "server.insecure=true"]));
        loaded(&set(&[public, "auth.jwt.secret=s"]));
        loaded(&set(&[public, "auth.tokens=[{token=\"t\",scopes=[]}]"]));
    }
    loaded(&set(&["server.ws=[::1]:1", "server.http=127.9.9.9:1"]));
}

#[test]
fn unreadable_sources() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, path) = file(folder.path(), "[limits]\nenabled = = true\n");
    let error = rejected(&sources).to_string();
    assert!(error.starts_with(&format!("{}, line 2: invalid TOML: ", path.display())), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = rejected(&sources).to_string();
    let prefix = format!("cannot read the configuration file {}: ", path.display());
    assert!(error.starts_with(&prefix), "{error}");
    assert_error(
        &set(&["limits.enabled"]),
        "--set limits.enabled…: expected key=value, such as limits.connection.capacity=500",
    );
    let bytes = OsString::from_vec(vec![0xff]);
    let environment = vec![("PROMBUS_SERVER_DATA".into(), bytes)];
    assert_error(
        &Sources { environment, ..Sources::default() },
        "environment variable PROMBUS_SERVER_DATA is not valid UTF-8",
    );
}

#[test]
fn invalid_certificates() {
    for (element, reason) in [
        ("{subject=\"billing\",scopes=[]}", "subject must be CN=NAME, DNS=NAME or URI=NAME"),
        ("{scopes=[]}", "subject must be CN=NAME, DNS=NAME or URI=NAME"),
        ("{subject=\"CN=b\"}", "scopes must be a list of strings"),
        ("{subject=\"CN=b\",scope=[]}", "unknown key scope; the keys are subject and scopes"),
        ("{subject=\"DNS=A\",scopes=[]}", "it repeats an earlier subject"),
    ] {
        let list = format!("auth.certificates=[{{subject=\"DNS=a\",scopes=[]}},{element}]");
        assert_error(
            &set(&[&list]),
            &format!(
                "auth.certificates (--set auth.certificates) has an invalid element 2: {reason}"
            ),
        );
    }
}
