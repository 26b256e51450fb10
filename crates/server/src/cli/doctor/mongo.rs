//! The MongoDB deployment and the database in it.

use prombus_engine_mongo::{Deployment, Inspection, Member, Migration, MongoOptions};
use prombus_proto::{Clock, SystemClock, Timestamp};
use prombus_server::config::Config;
use prombus_server::mongo_address::MongoAddress;
use prombus_server::retention::effective_retention_ms;

use super::clock;
use super::finding::{Finding, Findings};
use crate::cli::times::human_duration;

const AREA: &str = "mongodb";
/// A secondary that is further behind delays majority writes and elections.
const NOTABLE_LAG_MS: i64 = 10_000;

pub(super) async fn check(config: &Config, address: &MongoAddress, findings: &mut Findings) {
    let options = MongoOptions::at(address.reveal(), prombus_bus::STATE_KINDS);
    let before = SystemClock.now();
    let inspection = match Inspection::of(&options).await {
        Ok(inspection) => inspection,
        Err(error) => {
            findings.push(Finding::problem(
                AREA,
                format!("{address}: {error}"),
                "check the address, the network, the user and its rights",
            ));
            return;
        }
    };
    let time = Timestamp(u64::try_from(inspection.time_ms).unwrap_or(0));
    findings.push(clock::compare("the database", time, before, SystemClock.now()));
    check_topology(&inspection, findings);
    check_layout(config, address, &options, findings).await;
}

fn check_topology(inspection: &Inspection, findings: &mut Findings) {
    let version = &inspection.version;
    match inspection.deployment {
        Deployment::Standalone => findings.push(Finding::warning(
            AREA,
            format!("MongoDB {version} is a single server without a replica set: no transactions, one gateway"),
            "make it a replica set with rs.initiate(), even if it has one member",
        )),
        Deployment::Sharded => {
            findings.push(Finding::ok(AREA, format!("MongoDB {version} behind mongos")));
        }
        Deployment::ReplicaSet => check_members(inspection, findings),
    }
    if inspection.journals_majority == Some(false) {
        findings.push(Finding::problem(
            AREA,
            "writeConcernMajorityJournalDefault is off: a write that is confirmed may be in no journal",
            "set it to true with rs.reconfig()",
        ));
    }
}

fn check_members(inspection: &Inspection, findings: &mut Findings) {
    let version = &inspection.version;
    let Some(members) = &inspection.members else {
        findings.push(Finding::warning(
            AREA,
            format!("MongoDB {version} is a replica set, but this user may not see its members"),
            "give the user the role clusterMonitor to have them checked",
        ));
        return;
    };
    let bearing = members.iter().filter(|member| member.state != "ARBITER").count();
    match bearing {
        0..3 => findings.push(Finding::warning(
            AREA,
            format!("MongoDB {version} is a replica set with {bearing} members that hold data"),
            "with three, publishing goes on, with writes in a majority, when any one fails",
        )),
        _ => findings.push(Finding::ok(
            AREA,
            format!("MongoDB {version} is a replica set with {bearing} members that hold data"),
        )),
    }
    for member in members {
        check_member(member, findings);
    }
}

fn check_member(Member { name, state, lag_ms }: &Member, findings: &mut Findings) {
    if !["PRIMARY", "SECONDARY", "ARBITER"].contains(&state.as_str()) {
        findings.push(Finding::problem(
            AREA,
            format!("member {name} is {state}"),
            "start it, or look at its log; without a majority nothing can be published",
        ));
    }
    if let Some(lag) = lag_ms.filter(|lag| *lag > NOTABLE_LAG_MS) {
        let lag = human_duration(u64::try_from(lag).unwrap_or(0));
        findings.push(Finding::warning(
            AREA,
            format!("member {name} is {lag} behind the primary"),
            "look at its disk and its network",
        ));
    }
}

async fn check_layout(
    config: &Config,
    address: &MongoAddress,
    options: &MongoOptions,
    findings: &mut Findings,
) {
    let planned = async {
        let migration = Migration::connect(options).await.map_err(|error| error.to_string())?;
        let retention = effective_retention_ms(config, &migration).await;
        let retention = retention.map_err(|error| error.to_string())?;
        migration.plan(&retention).await.map_err(|error| error.to_string())
    };
    match planned.await {
        Err(error) => findings.push(Finding::problem(
            AREA,
            format!("{address}: {error}"),
            "check the rights of the user in this database",
        )),
        Ok(plan) if plan.steps().is_empty() => {
            let message =
                format!("database {} has the layout and indexes it needs", plan.database());
            findings.push(Finding::ok(AREA, message));
        }
        Ok(plan) if plan.is_new() => {
            let message = format!(
                "database {} is new; the first start of a server sets it up",
                plan.database()
            );
            findings.push(Finding::ok(AREA, message));
        }
        Ok(plan) => {
            let steps: Vec<String> = plan.steps().iter().map(ToString::to_string).collect();
            findings.push(Finding::problem(
                AREA,
                format!("database {} lacks: {}", plan.database(), steps.join("; ")),
                "run `prombus migrate` with the same settings and --apply",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    fn member(name: &str, state: &str, lag_ms: Option<i64>) -> Member {
        Member { name: name.to_owned(), state: state.to_owned(), lag_ms }
    }

    fn levels(members: Vec<Member>, journals_majority: bool) -> Vec<Level> {
        let inspection = Inspection {
            deployment: Deployment::ReplicaSet,
            version: "7.0".to_owned(),
            time_ms: 0,
            members: Some(members),
            journals_majority: Some(journals_majority),
        };
        let mut findings = Findings::default();
        check_topology(&inspection, &mut findings);
        findings.levels()
    }

    #[test]
    fn three_healthy_members_are_fine() {
        let secondary = |name| member(name, "SECONDARY", Some(0));
        let healthy = vec![member("a", "PRIMARY", Some(0)), secondary("b"), secondary("c")];
        assert_eq!(levels(healthy.clone(), true), [Level::Ok]);
        assert_eq!(levels(healthy, false), [Level::Ok, Level::Problem]);
    }

    #[test]
    fn missing_slow_and_dataless_members_are_named() {
        let down = member("b", "(not reachable/healthy)", None);
        let slow = member("c", "SECONDARY", Some(60_000));
        let found = levels(vec![member("a", "PRIMARY", Some(0)), down, slow], true);
        assert_eq!(found, [Level::Ok, Level::Problem, Level::Warning]);
        let arbiter = member("b", "ARBITER", None);
        let found = levels(vec![member("a", "PRIMARY", Some(0)), arbiter], true);
        assert_eq!(found, [Level::Warning]);
    }
}
