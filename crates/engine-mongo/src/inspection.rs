//! What `prombus doctor` looks at: the servers behind an address.

use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::connection::Connection;
use crate::{Deployment, MongoError, MongoOptions};

/// The servers behind an address, as its primary sees them.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// How the servers are deployed.
    pub deployment: Deployment,
    /// The version of the primary, such as `7.0.14`.
    pub version: String,
    /// The clock of the primary, in milliseconds since 1970.
    pub time_ms: i64,
    /// The members of the replica set; `None` if there is none, or the user may not ask.
    pub members: Option<Vec<Member>>,
    /// Whether a write that a majority has acknowledged is in their journals; `None` if unknown.
    pub journals_majority: Option<bool>,
}

/// A member of a replica set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Host and port.
    pub name: String,
    /// The state, such as `PRIMARY`, `SECONDARY` or `(not reachable/healthy)`.
    pub state: String,
    /// How far it is behind the primary, in milliseconds; `None` for members without data.
    pub lag_ms: Option<i64>,
}

impl Inspection {
    /// Connects and asks. Changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if no primary can be reached, or if the engine cannot work with this deployment.
    pub async fn of(options: &MongoOptions) -> Result<Self, MongoError> {
        let connection = Connection::open(options).await?;
        let admin = connection.client.database("admin");
        let hello = admin.run_command(doc! { "hello": 1 }).await?;
        let build = admin.run_command(doc! { "buildInfo": 1 }).await?;
        let is_set = connection.deployment == Deployment::ReplicaSet;
        // Both need a role that the engine itself does not.
        let status = match is_set {
            true => admin.run_command(doc! { "replSetGetStatus": 1 }).await.ok(),
            false => None,
        };
        let config = match is_set {
            true => admin.run_command(doc! { "replSetGetConfig": 1 }).await.ok(),
            false => None,
        };
        Ok(Self {
            deployment: connection.deployment,
            version: build.get_str("version").unwrap_or("unknown").to_owned(),
            time_ms: hello.get_datetime("localTime").map_or(0, |time| time.timestamp_millis()),
            members: status.as_ref().and_then(members),
            journals_majority: config.as_ref().and_then(journals_majority),
        })
    }
}

fn members(status: &Document) -> Option<Vec<Member>> {
    let members: Vec<&Document> =
        status.get_array("members").ok()?.iter().filter_map(Bson::as_document).collect();
    let applied = |member: &Document| member.get_datetime("optimeDate").ok().copied();
    let is_primary =
        |member: &&&Document| member.get_str("stateStr").is_ok_and(|state| state == "PRIMARY");
    let newest = members.iter().find(is_primary).and_then(|primary| applied(primary));
    let millis = DateTime::timestamp_millis;
    let of = |member: &&Document| Member {
        name: member.get_str("name").unwrap_or("unknown").to_owned(),
        state: member.get_str("stateStr").unwrap_or("unknown").to_owned(),
        lag_ms: newest
            .zip(applied(member))
            .map(|(newest, own)| (millis(newest) - millis(own)).max(0)),
    };
    Some(members.iter().map(of).collect())
}

fn journals_majority(config: &Document) -> Option<bool> {
    config.get_document("config").ok()?.get_bool("writeConcernMajorityJournalDefault").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_members_and_how_far_they_are_behind() {
        let at = DateTime::from_millis;
        let status = doc! { "members": [
            { "name": "a:1", "stateStr": "PRIMARY", "optimeDate": at(9000) },
            { "name": "b:1", "stateStr": "SECONDARY", "optimeDate": at(2000) },
            { "name": "c:1", "stateStr": "ARBITER" },
        ] };
        let members = members(&status).unwrap();
        let lags: Vec<_> = members.iter().map(|member| member.lag_ms).collect();
        assert_eq!(lags, [Some(0), Some(7000), None]);
        assert_eq!((members[1].name.as_str(), members[1].state.as_str()), ("b:1", "SECONDARY"));
        let config = doc! { "config": { "writeConcernMajorityJournalDefault": false } };
        assert_eq!(journals_majority(&config), Some(false));
        assert_eq!(journals_majority(&doc! {}), None);
    }
}
