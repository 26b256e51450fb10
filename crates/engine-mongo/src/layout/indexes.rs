//! The indexes: which there are to be, and which there are.

use std::fmt;

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;

use crate::error::{is_no_such_collection, is_there_already};
use crate::layout::collections::{CURSORS, DEDUPE, EVENTS, OUTBOX, PARTS, STATE, TOPICS};
use crate::layout::numbers::number_in;

/// An index as it is to be, or as it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Index {
    pub(crate) keys: Document,
    pub(crate) is_unique: bool,
    /// Documents without the member are not in it.
    is_sparse: bool,
    /// Documents go by themselves so many seconds after the moment that the member says.
    expire_after: Option<i64>,
    /// Whatever else keeps it from being what is needed: documents left out, another order of texts,
    /// not used for searching.
    other: Vec<String>,
}

impl Index {
    fn over(keys: Document) -> Self {
        Self { keys, is_unique: false, is_sparse: false, expire_after: None, other: Vec::new() }
    }

    fn unique(keys: Document) -> Self {
        Self { is_unique: true, ..Self::over(keys) }
    }

    fn sparse(keys: Document) -> Self {
        Self { is_sparse: true, ..Self::over(keys) }
    }

    fn ending(member: &str) -> Self {
        Self { expire_after: Some(0), ..Self::over(doc! { member: 1 }) }
    }

    /// The name that shells and drivers give it, too.
    pub(crate) fn name(&self) -> String {
        let parts = self.keys.iter().map(|(member, order)| format!("{member}_{order}"));
        parts.collect::<Vec<_>>().join("_")
    }

    /// As `createIndexes` takes it.
    pub(crate) fn specification(&self) -> Document {
        let mut specification = doc! { "key": self.keys.clone(), "name": self.name() };
        if self.is_unique {
            specification.insert("unique", true);
        }
        if self.is_sparse {
            specification.insert("sparse", true);
        }
        if let Some(seconds) = self.expire_after {
            specification.insert("expireAfterSeconds", seconds);
        }
        specification
    }

    /// As `listIndexes` gives it.
    fn listed(index: &Document) -> Self {
        let is = |name| index.get_bool(name).unwrap_or(false);
        let raw = mongodb::bson::RawDocumentBuf::try_from(index).unwrap_or_default();
        let mut other = Vec::new();
        for member in ["partialFilterExpression", "collation"] {
            if let Some(value) = index.get(member) {
                other.push(format!("{member} {value}"));
            }
        }
        if is("hidden") {
            other.push("hidden".to_owned());
        }
        Self {
            keys: index.get_document("key").cloned().unwrap_or_default(),
            is_unique: is("unique"),
            is_sparse: is("sparse"),
            expire_after: number_in(&raw, "expireAfterSeconds"),
            other,
        }
    }

    fn has_keys_of(&self, due: &Index) -> bool {
        let number = |order: &Bson| match order {
            Bson::Int32(number) => Some(f64::from(*number)),
            Bson::Double(number) => Some(*number),
            #[expect(clippy::cast_precision_loss, reason = "an order is 1 or -1")]
            Bson::Int64(number) => Some(*number as f64),
            _ => None,
        };
        self.keys.len() == due.keys.len()
            && self.keys.iter().zip(&due.keys).all(|((mine, order), (theirs, other))| {
                mine == theirs && number(order) == number(other) && number(order).is_some()
            })
    }

    fn is_as(&self, due: &Index) -> bool {
        self.has_keys_of(due) && Self { keys: due.keys.clone(), ..self.clone() } == *due
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self
            .keys
            .iter()
            .map(|(member, order)| match order {
                Bson::Int32(1) => member.clone(),
                Bson::Int64(1) => member.clone(),
                Bson::Double(number) if *number == 1.0 => member.clone(),
                order => format!("{member}: {order}"),
            })
            .collect();
        write!(f, "({})", members.join(", "))?;
        if self.is_unique {
            write!(f, " unique")?;
        }
        if self.is_sparse {
            write!(f, " sparse")?;
        }
        if let Some(seconds) = self.expire_after {
            write!(f, " TTL {seconds} s")?;
        }
        self.other.iter().try_for_each(|other| write!(f, " {other}"))
    }
}

/// Which collections there are, and by what they are searched besides their `_id`.
pub(crate) fn all() -> [(&'static str, Vec<Index>); 6] {
    // Sparse: events of topics without a time to live cost nothing here.
    let ending_some = Index { is_sparse: true, ..Index::ending("expireAt") };
    [
        (
            EVENTS,
            vec![
                Index::unique(doc! { "topic": 1, "seq": 1 }),
                Index::unique(doc! { "topic": 1, "id": 1 }),
                Index::over(doc! { "topic": 1, "ts": 1, "id": 1 }),
                Index::over(doc! { "topic": 1, "key": 1, "ts": 1 }),
                ending_some.clone(),
            ],
        ),
        (PARTS, vec![Index::unique(doc! { "topic": 1, "seq": 1, "part": 1 }), ending_some]),
        (CURSORS, vec![Index::sparse(doc! { "key": 1 })]),
        (DEDUPE, vec![Index::ending("expireAt")]),
        (
            OUTBOX,
            vec![
                Index::over(doc! { "status": 1, "lease_until": 1 }),
                Index::over(doc! { "ts": 1 }),
            ],
        ),
        // Swept by the engine, by its own clock: values here are looked at by nobody else.
        (STATE, vec![Index::sparse(doc! { "expireAt": 1 })]),
    ]
}

/// What is not as it is to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Flaw {
    /// There is no such index.
    Missing { collection: &'static str, due: Index },
    /// There is one in its place.
    Different { collection: &'static str, due: Index, name: String, found: Index },
}

impl Flaw {
    pub(crate) const fn collection(&self) -> &'static str {
        match self {
            Flaw::Missing { collection, .. } | Flaw::Different { collection, .. } => collection,
        }
    }

    pub(crate) const fn due(&self) -> &Index {
        match self {
            Flaw::Missing { due, .. } | Flaw::Different { due, .. } => due,
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Missing { collection, due } => write!(f, "{collection} {due} is missing"),
            Flaw::Different { collection, due, name, found } => {
                write!(f, "{collection} {due} is {found} (named {name})")
            }
        }
    }
}

/// Compares what there is with what there is to be. What else there is is nobody's business.
pub(crate) async fn flaws(database: &Database) -> Result<Vec<Flaw>, Error> {
    let mut flaws = Vec::new();
    for (collection, all_due) in all() {
        let listed = list(database, collection).await?;
        for due in all_due {
            if listed.iter().any(|(_, index)| index.is_as(&due)) {
                continue;
            }
            let in_its_place =
                |(name, index): &&(String, Index)| index.has_keys_of(&due) || *name == due.name();
            flaws.push(match listed.iter().find(in_its_place) {
                Some((name, found)) => {
                    Flaw::Different { collection, due, name: name.clone(), found: found.clone() }
                }
                None => Flaw::Missing { collection, due },
            });
        }
    }
    Ok(flaws)
}

async fn list(database: &Database, collection: &str) -> Result<Vec<(String, Index)>, Error> {
    let indexes = database.collection::<Document>(collection);
    let answer = database.run_command(doc! { "listIndexes": indexes.name() }).await;
    let answer = match answer {
        Err(error) if is_no_such_collection(&error) => return Ok(Vec::new()),
        answer => answer?,
    };
    // A collection has at most 64, and the first batch holds 101.
    let listed = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let listed = listed.map(Vec::as_slice).unwrap_or_default();
    let of = |index: &Bson| {
        let index = index.as_document()?;
        Some((index.get_str("name").ok()?.to_owned(), Index::listed(index)))
    };
    Ok(listed.iter().filter_map(of).collect())
}

/// Makes one, and waits for it. What is there already stays.
pub(crate) async fn make(database: &Database, collection: &str, due: &Index) -> Result<(), Error> {
    let command = doc! {
        "createIndexes": collection,
        "indexes": [due.specification()],
        "writeConcern": { "w": "majority" },
    };
    database.run_command(command).await.map(drop)
}

/// Makes all of them, and their collections, where nothing is there yet.
pub(crate) async fn make_all(database: &Database) -> Result<(), Error> {
    for (collection, all_due) in all() {
        let specifications: Vec<Document> = all_due.iter().map(Index::specification).collect();
        let command = doc! {
            "createIndexes": collection,
            "indexes": specifications,
            "writeConcern": { "w": "majority" },
        };
        database.run_command(command).await?;
    }
    match database.create_collection(TOPICS).await {
        Err(error) if is_there_already(&error) => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_compared_with_what_is_due() {
        let due = Index::unique(doc! { "topic": 1, "seq": 1 });
        assert_eq!(due.name(), "topic_1_seq_1");
        let listed = |more: Document| {
            let mut index = doc! { "v": 2, "key": { "topic": 1.0, "seq": 1.0 }, "name": "any" };
            index.extend(more);
            Index::listed(&index)
        };
        assert!(listed(doc! { "unique": true }).is_as(&due));
        for wrong in [
            doc! {},
            doc! { "unique": true, "sparse": true },
            doc! { "unique": true, "expireAfterSeconds": 5 },
            doc! { "unique": true, "hidden": true },
            doc! { "unique": true, "partialFilterExpression": { "seq": { "$gt": 5 } } },
        ] {
            assert!(!listed(wrong.clone()).is_as(&due), "{wrong}");
        }
        let other_order = doc! { "key": { "seq": 1, "topic": 1 }, "unique": true };
        assert!(!Index::listed(&other_order).has_keys_of(&due));
        let downwards = doc! { "key": { "topic": 1, "seq": -1 }, "unique": true };
        assert!(!Index::listed(&downwards).is_as(&due));
    }

    #[test]
    fn an_index_is_told_in_words() {
        let text = |index: &Document| Index::listed(index).to_string();
        assert_eq!(text(&doc! { "key": { "a": 1, "b": 1 }, "unique": true }), "(a, b) unique");
        assert_eq!(
            text(&doc! { "key": { "a": -1 }, "expireAfterSeconds": 60, "sparse": true }),
            "(a: -1) sparse TTL 60 s"
        );
    }
}
