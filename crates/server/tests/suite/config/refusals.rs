//! What is refused, and what the refusal says.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use prombus_server::config::Sources;

use crate::config::{environment, file, loaded, refused, set};

fn says(sources: &Sources, text: &str) {
    assert_eq!(refused(sources).to_string(), text);
}

#[test]
fn unknown_names_with_their_source_and_what_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, path) = file(folder.path(), "[limits]\nenabled = true\nenbaled = false\n");
    says(
        &sources,
        &format!(
            "unknown setting limits.enbaled ({}, line 3); did you mean limits.enabled?",
            path.display()
        ),
    );
    let (sources, path) = file(folder.path(), "\n[colours]\n");
    says(&sources, &format!("unknown setting colours ({}, line 2)", path.display()));
    says(
        &set(&["limits.conection.capacity=5"]),
        "unknown setting limits.conection.capacity (--set limits.conection.capacity); did you mean \
         limits.connection.capacity?",
    );
    says(
        &set(&["topics.a.b.durability=fsync"]),
        "unknown setting topics.a.b.durability (--set topics.a.b.durability); did you mean \
         topics.\"a.b\".durability?",
    );
    says(
        &environment(&[("PROMBUS_LIMITS_CAPACITY", "5")]),
        "unknown environment variable PROMBUS_LIMITS_CAPACITY; did you mean \
         PROMBUS_LIMITS_TOPIC_CAPACITY?",
    );
}

#[test]
fn wrong_types_and_ranges() {
    says(
        &set(&["limits.connection.capacity=0"]),
        "limits.connection.capacity (--set limits.connection.capacity) is 0, but has to be a whole \
         number, 1 to 1000000000",
    );
    says(
        &environment(&[("PROMBUS_LIMITS_ENABLED", "yes")]),
        "limits.enabled (environment variable PROMBUS_LIMITS_ENABLED) is \"yes\", but has to be true \
         or false",
    );
    says(
        &set(&["server.ws=localhost"]),
        "server.ws (--set server.ws) is \"localhost\", but has to be an IP address and a port, such \
         as 127.0.0.1:8090 or [::1]:8090",
    );
    says(
        &set(&["log.format=xml"]),
        "log.format (--set log.format) is \"xml\", but has to be auto, text or json",
    );
    says(
        &set(&["topics.a.durability=memory"]),
        "topics.a.durability (--set topics.a.durability) is \"memory\", but has to be fsync or \
         buffered",
    );
    says(
        &set(&["topics.a.retention_ms=0"]),
        "topics.a.retention_ms (--set topics.a.retention_ms) is 0, but has to be a whole number, 1 \
         or more",
    );
    says(
        &set(&["limits=5"]),
        "limits (--set limits) is a single value, but has to be a section with settings of its own, \
         such as limits.NAME",
    );
    says(
        &set(&["topics.\"A\".durability=fsync"]),
        "topics.A.durability (--set topics.\"A\".durability) names no topic: a name may only contain a-z, \
         0-9, '_', '-' and '.', not 'A'",
    );
    for origin in ["app.example.com", "https://app.example.com/", "://a", "https://"] {
        let error = refused(&set(&[&format!("auth.allowed_origins=[\"{origin}\"]")])).to_string();
        assert!(error.contains("a list of origins"), "{origin}: {error}");
    }
}

#[test]
fn an_engine_that_is_not_there() {
    says(
        &set(&["server.engine=mongodb+srv://user:hunter2@db/prombus"]),
        "server.engine (--set server.engine) has to be a mongodb:// address with the names of the \
         servers: mongodb+srv:// is not built in",
    );
    says(
        &set(&["server.engine=mongodb:"]),
        "server.engine (--set server.engine) has to be an address of MongoDB, such as \
         mongodb://db1,db2,db3/prombus?replicaSet=rs0",
    );
    says(
        &set(&["server.engine=redis://user:hunter2@db"]),
        "server.engine (--set server.engine) is \"redis://…\", but has to be disk, memory or a \
         mongodb:// address",
    );
}

#[test]
fn halves_of_a_pair() {
    says(
        &set(&["server.tls.cert_file=a.pem"]),
        "server.tls.cert_file (--set server.tls.cert_file) needs server.tls.key_file, too",
    );
    says(
        &set(&["server.tls.key_file=a.pem"]),
        "server.tls.key_file (--set server.tls.key_file) needs server.tls.cert_file, too",
    );
    let issuer = refused(&set(&["auth.jwt.issuer=me"])).to_string();
    assert!(issuer.contains("auth.jwt.issuer (--set auth.jwt.issuer) checks nothing"), "{issuer}");
}

#[test]
fn a_public_address_that_anybody_may_use() {
    for public in ["server.ws=0.0.0.0:1", "server.http=[::]:1", "server.ws=192.0.2.1:1"] {
        let key = public.split('=').next().unwrap();
        let error = refused(&set(&[public])).to_string();
        assert!(error.starts_with(&format!("{key} (--set {key}) is ")), "{error}");
        assert!(error.contains("auth.tokens") && error.contains("--insecure"), "{error}");
        loaded(&set(&[public, "server.insecure=true"]));
        loaded(&set(&[public, "auth.jwt.secret=s"]));
        loaded(&set(&[public, "auth.tokens=[{token=\"t\",scopes=[]}]"]));
    }
    loaded(&set(&["server.ws=[::1]:1", "server.http=127.9.9.9:1"]));
}

#[test]
fn sources_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (sources, path) = file(folder.path(), "[limits]\nenabled = = true\n");
    let error = refused(&sources).to_string();
    assert!(error.starts_with(&format!("{}, line 2: not TOML: ", path.display())), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = refused(&sources).to_string();
    let begins = format!("cannot read the configuration file {}: ", path.display());
    assert!(error.starts_with(&begins), "{error}");
    says(
        &set(&["limits.enabled"]),
        "--set limits.enabled… is not of the form key=value, such as limits.connection.capacity=500",
    );
    let bytes = OsString::from_vec(vec![0xff]);
    let environment = vec![("PROMBUS_SERVER_DATA".into(), bytes)];
    says(
        &Sources { environment, ..Sources::default() },
        "environment variable PROMBUS_SERVER_DATA is not UTF-8",
    );
}
