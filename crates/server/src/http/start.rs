//! Where reading starts, given by the parameters `from`, `ts`, `afterId` and `seq`.

use prombus_bus::StartAt;
use prombus_proto::{EventId, Seq, Timestamp};

use super::error::HttpError;
use super::query::{QueryParams, invalid, required};

pub(super) const PARAMETERS: [&str; 4] = ["from", "ts", "afterId", "seq"];
/// The highest `seq` that every store can look up.
pub(super) const MAX_SEQ: u64 = i64::MAX as u64;

/// Reads the start from `query`, or returns `default` if it has none. `ts`, `afterId` or `seq` alone
/// imply their `from`.
pub(super) fn parse(
    query: &QueryParams,
    default: StartAt,
    allowed: &[&str],
) -> Result<StartAt, HttpError> {
    let ts = query.number("ts", 0..=u64::MAX)?.map(Timestamp);
    let after = query.parsed("afterId", EventId::new)?;
    let seq = query.number("seq", 1..=MAX_SEQ)?.map(Seq);
    let positions = [("ts", ts.is_some()), ("afterId", after.is_some()), ("seq", seq.is_some())];
    let given = || positions.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name);
    let from = match query.text("from") {
        Some(from) if allowed.contains(&from) => Some(from),
        Some(_) => {
            return Err(invalid("from", format_args!("must be one of {}", allowed.join(", "))));
        }
        None if given().count() == 1 => given().next(),
        None => None,
    };
    if let Some(name) = given().find(|name| from != Some(*name)) {
        return Err(invalid(name, format_args!("requires from={name}")));
    }
    Ok(match from {
        Some("ts") => StartAt::Time(required("ts", ts)?),
        Some("afterId") => StartAt::AfterId(required("afterId", after)?),
        Some("seq") => StartAt::Seq(required("seq", seq)?),
        Some("earliest") => StartAt::Earliest,
        Some("latest") => StartAt::Latest,
        _ => default,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    fn start(query: &str) -> Result<StartAt, HttpError> {
        let uri: Uri = format!("/replay?{query}").parse().unwrap();
        let query = QueryParams::parse(&uri, &PARAMETERS)?;
        parse(&query, StartAt::Earliest, &["earliest", "ts", "afterId", "seq"])
    }

    #[test]
    fn reads_the_start() {
        let after = StartAt::AfterId(EventId::new("a b").unwrap());
        for (query, expected) in [
            ("", StartAt::Earliest),
            ("from=earliest", StartAt::Earliest),
            ("from=ts&ts=7", StartAt::Time(Timestamp(7))),
            ("ts=7", StartAt::Time(Timestamp(7))),
            ("from=afterId&afterId=a+b", after.clone()),
            ("afterId=a%20b", after),
            ("from=seq&seq=7", StartAt::Seq(Seq(7))),
            ("seq=7", StartAt::Seq(Seq(7))),
        ] {
            assert_eq!(start(query).unwrap(), expected, "{query}");
        }
    }

    #[test]
    fn rejects_contradictory_parameters() {
        for query in [
            "from=latest",
            "from=",
            "from=ts",
            "from=afterId",
            "from=earliest&ts=7",
            "from=ts&ts=7&afterId=a",
            "ts=7&afterId=a",
            "from=seq",
            "from=ts&ts=7&seq=7",
            "ts=7&seq=7",
            "seq=0",
            "seq=9223372036854775808",
            "ts=-1",
            "ts=",
            "afterId=",
        ] {
            assert!(start(query).is_err(), "{query}");
        }
    }
}
