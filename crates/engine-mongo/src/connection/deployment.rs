//! What is at the other end.

use mongodb::Database;
use mongodb::bson::{Document, doc};
use prombus_engine::{Capabilities, Durability};

use crate::MongoError;

/// MongoDB 5.0, the first whose write concern is `majority` unless said otherwise.
const OLDEST_WIRE_VERSION: i32 = 13;

/// What the servers are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// A replica set, of one member or more.
    ReplicaSet,
    /// Several of them behind a router.
    Sharded,
    /// One server that is no replica set: no transactions, no change streams.
    Standalone,
}

impl Deployment {
    /// Asks the server that takes writes.
    pub async fn of(database: &Database) -> Result<Self, MongoError> {
        let hello = database.run_command(doc! { "hello": 1 }).await?;
        Self::from_hello(&hello)
    }

    fn from_hello(hello: &Document) -> Result<Self, MongoError> {
        let wire_version = hello.get_i32("maxWireVersion").unwrap_or(0);
        if wire_version < OLDEST_WIRE_VERSION {
            return Err(MongoError::UnsupportedTopology(
                "the server is older than MongoDB 5.0: use a newer one".into(),
            ));
        }
        if hello.get_bool("arbiterOnly").unwrap_or(false) {
            return Err(MongoError::UnsupportedTopology(
                "the address leads to an arbiter, which holds no data: name the other members"
                    .into(),
            ));
        }
        if hello.get_str("msg").is_ok_and(|said| said == "isdbgrid") {
            return Ok(Deployment::Sharded);
        }
        if hello.contains_key("isreplicaset") {
            return Err(MongoError::UnsupportedTopology(
                "the server waits to become a replica set: run rs.initiate() on it once".into(),
            ));
        }
        let is_primary = hello.get_bool("isWritablePrimary").unwrap_or(false);
        match hello.contains_key("setName") {
            true if !is_primary => Err(MongoError::UnsupportedTopology(
                "the address leads to a secondary only: name the replica set by replicaSet= and \
                 leave directConnection= out"
                    .into(),
            )),
            true => Ok(Deployment::ReplicaSet),
            false => Ok(Deployment::Standalone),
        }
    }

    /// Whether it has transactions, and change streams with them.
    #[must_use]
    pub const fn has_transactions(self) -> bool {
        matches!(self, Deployment::ReplicaSet | Deployment::Sharded)
    }

    pub(crate) const fn capabilities(self) -> Capabilities {
        Capabilities {
            atomic_across_topics: self.has_transactions(),
            several_gateways: self.has_transactions(),
            gathers_commits: false,
            survives_restart: true,
            max_durability: Durability::Fsync,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(hello: &Document) -> String {
        Deployment::from_hello(hello).unwrap_err().to_string()
    }

    #[test]
    fn a_primary_a_router_and_a_server_alone_are_told_apart() {
        let of = |hello: &Document| Deployment::from_hello(hello).unwrap();
        let primary = doc! { "maxWireVersion": 17, "setName": "rs0", "isWritablePrimary": true };
        assert_eq!(of(&primary), Deployment::ReplicaSet);
        let router = doc! { "maxWireVersion": 17, "msg": "isdbgrid", "isWritablePrimary": true };
        assert_eq!(of(&router), Deployment::Sharded);
        let alone = of(&doc! { "maxWireVersion": 17, "isWritablePrimary": true });
        assert_eq!(alone, Deployment::Standalone);
        assert!(!alone.capabilities().atomic_across_topics);
        assert!(!alone.capabilities().several_gateways);
    }

    #[test]
    fn what_cannot_be_used_says_what_to_do() {
        let secondary = doc! { "maxWireVersion": 17, "setName": "rs0", "isWritablePrimary": false };
        assert!(refusal_of(&secondary).contains("directConnection"));
        let uninitiated = doc! { "maxWireVersion": 17, "isreplicaset": true };
        assert!(refusal_of(&uninitiated).contains("rs.initiate()"));
        let arbiter = doc! { "maxWireVersion": 17, "setName": "rs0", "arbiterOnly": true };
        assert!(refusal_of(&arbiter).contains("arbiter"));
        assert!(refusal_of(&doc! { "maxWireVersion": 9 }).contains("older than MongoDB 5.0"));
    }
}
