//! Errors on opening say what to do.

use libtest_mimic::Trial;
use mongodb::Client;
use mongodb::bson::doc;
use prombus_bus::STATE_KINDS;
use prombus_engine::Engine;
use prombus_engine_mongo::{MongoEngine, MongoError, MongoOptions};

use crate::database::{Database, append, trial};
use prombus_test_mongod::{Kind, shared};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("refusals::no_server", no_server),
        trial("refusals::another_replica_set", another_replica_set),
        trial("refusals::a_replica_set_that_was_never_initiated", never_initiated),
        trial("refusals::a_wrong_password", wrong_password),
        trial("refusals::an_invalid_address", no_address),
        trial("refusals::options_do_not_show_the_address", options_hide_the_address),
    ]
}

async fn open_error(url: &str) -> MongoError {
    match MongoEngine::open(&MongoOptions::at(url, STATE_KINDS)).await {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

async fn no_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error =
        open_error(&format!("mongodb://127.0.0.1:{port}/?serverSelectionTimeoutMS=200")).await;
    assert!(matches!(error, MongoError::NoPrimary(_)), "{error:?}");
    assert!(error.to_string().contains("majority of the replica set is up"), "{error}");
}

async fn another_replica_set() {
    let url = shared(Kind::ReplicaSet).url().replace("rs0", "another");
    let error = open_error(&format!("{url}&serverSelectionTimeoutMS=200")).await;
    assert!(matches!(error, MongoError::NoPrimary(_)), "{error:?}");
    assert!(error.to_string().contains("replicaSet="), "{error}");
}

async fn never_initiated() {
    let error = open_error(&shared(Kind::Uninitiated).direct_url()).await;
    assert!(matches!(error, MongoError::UnsupportedTopology(_)), "{error:?}");
    assert!(error.to_string().contains("rs.initiate()"), "{error}");
}

async fn wrong_password() {
    let server = shared(Kind::ReplicaSetWithUsers);
    let admin = Client::with_uri_str(server.direct_url()).await.unwrap().database("admin");
    let user = doc! { "createUser": "bus", "pwd": "right-one", "roles": ["root"] };
    // Allowed without credentials from localhost, as long as there is no user.
    admin.run_command(user).await.unwrap();
    let with = |password: &str| {
        let at = server.url().replace("mongodb://", &format!("mongodb://bus:{password}@"));
        format!("{at}&authSource=admin&serverSelectionTimeoutMS=5000")
    };
    let error = open_error(&with("wrong-one")).await;
    assert!(matches!(error, MongoError::AuthFailed(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("wrong-one"), "{error:?}");

    let database = Database::at(&with("right-one")).await;
    let engine = database.engine().await;
    assert_eq!(append(&engine, "a", &["1"]).await, [1]);
    engine.close().await.unwrap();
}

async fn no_address() {
    for url in [
        "http://bus:very-secret@127.0.0.1/",
        "mongodb://bus:very-secret@",
        "mongodb://bus:very-secret@127.0.0.1:99999/",
        "mongodb://bus:very-secret@127.0.0.1/?connectTimeoutMS=very-secret",
        "nonsense",
    ] {
        let error = open_error(url).await;
        assert!(matches!(error, MongoError::InvalidAddress(_)), "{url}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("very-secret"), "{error:?}");
    }
}

async fn options_hide_the_address() {
    let options = MongoOptions::at("mongodb://bus:very-secret@127.0.0.1/", STATE_KINDS);
    assert!(!format!("{options:?}").contains("secret"));
}
