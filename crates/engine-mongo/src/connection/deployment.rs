//! The kind of deployment a client is connected to.

use mongodb::Database;
use mongodb::bson::{Document, doc};
use prombus_engine::{Capabilities, Durability};

use crate::MongoError;

/// MongoDB 5.0, the first version whose default write concern is `majority`.
const OLDEST_WIRE_VERSION: i32 = 13;

/// How the servers are deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployment {
    /// A replica set of one member or more.
    ReplicaSet,
    /// Several replica sets behind a router (`mongos`).
    Sharded,
    /// A single server without a replica set: no transactions, no change streams.
    Standalone,
}

impl Deployment {
    /// Asks the primary what it belongs to.
    ///
    /// # Errors
    ///
    /// [`MongoError::UnsupportedTopology`] if the engine cannot work with this deployment.
    pub async fn of(database: &Database) -> Result<Self, MongoError> {
        let hello = database.run_command(doc! { "hello": 1 }).await?;
        Self::from_hello(&hello)
    }

    fn from_hello(hello: &Document) -> Result<Self, MongoError> {
        let wire_version = hello.get_i32("maxWireVersion").unwrap_or(0);
        if wire_version < OLDEST_WIRE_VERSION {
            return Err(MongoError::UnsupportedTopology(
                "the server is older than MongoDB 5.0; upgrade it".into(),
            ));
        }
        if hello.get_bool("arbiterOnly").unwrap_or(false) {
            return Err(MongoError::UnsupportedTopology(
                "the address points to an arbiter, which stores no data; list the other members"
                    .into(),
            ));
        }
        if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
            return Ok(Deployment::Sharded);
        }
        if hello.contains_key("isreplicaset") {
            return Err(MongoError::UnsupportedTopology(
                "the replica set was never initiated; run rs.initiate() on the server once".into(),
            ));
        }
        let is_primary = hello.get_bool("isWritablePrimary").unwrap_or(false);
        match hello.contains_key("setName") {
            true if !is_primary => Err(MongoError::UnsupportedTopology(
                "the address points to a secondary; name the replica set with replicaSet= and \
                 leave directConnection= out"
                    .into(),
            )),
            true => Ok(Deployment::ReplicaSet),
            false => Ok(Deployment::Standalone),
        }
    }

    /// Returns `true` if the deployment supports transactions and change streams.
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

    fn error_for(hello: &Document) -> String {
        Deployment::from_hello(hello).unwrap_err().to_string()
    }

    #[test]
    fn recognises_a_primary_a_router_and_a_standalone_server() {
        let of = |hello: &Document| Deployment::from_hello(hello).unwrap();
        let primary = doc! { "maxWireVersion": 17, "setName": "rs0", "isWritablePrimary": true };
        assert_eq!(of(&primary), Deployment::ReplicaSet);
        let router = doc! { "maxWireVersion": 17, "msg": "isdbgrid", "isWritablePrimary": true };
        assert_eq!(of(&router), Deployment::Sharded);
        let standalone = of(&doc! { "maxWireVersion": 17, "isWritablePrimary": true });
        assert_eq!(standalone, Deployment::Standalone);
        assert!(!standalone.capabilities().atomic_across_topics);
        assert!(!standalone.capabilities().several_gateways);
    }

    #[test]
    fn errors_say_what_to_do() {
        let secondary = doc! { "maxWireVersion": 17, "setName": "rs0", "isWritablePrimary": false };
        assert!(error_for(&secondary).contains("directConnection"));
        let uninitiated = doc! { "maxWireVersion": 17, "isreplicaset": true };
        assert!(error_for(&uninitiated).contains("rs.initiate()"));
        let arbiter = doc! { "maxWireVersion": 17, "setName": "rs0", "arbiterOnly": true };
        assert!(error_for(&arbiter).contains("arbiter"));
        assert!(error_for(&doc! { "maxWireVersion": 9 }).contains("older than MongoDB 5.0"));
    }
}
