//! The indexes that the engine needs, and those that a database has.

use std::fmt;

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error;

use crate::error::{is_namespace_exists, is_namespace_not_found};
use crate::layout::collections::{Collections, EVENTS, OUTBOX, PARTS, STATE, TOPICS};
use crate::layout::numbers::number_in;
use crate::state::location::{StateCollection, StateLayout};

/// An index, expected or found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Index {
    pub(crate) keys: Document,
    pub(crate) is_unique: bool,
    /// Documents without the field are left out.
    is_sparse: bool,
    /// The servers remove documents this many seconds after the time in the field.
    expire_after: Option<i64>,
    /// Other properties that make it unsuitable: a partial filter, a collation, being hidden.
    other: Vec<String>,
}

impl Index {
    fn on(keys: Document) -> Self {
        Self { keys, is_unique: false, is_sparse: false, expire_after: None, other: Vec::new() }
    }

    fn unique(keys: Document) -> Self {
        Self { is_unique: true, ..Self::on(keys) }
    }

    fn sparse(keys: Document) -> Self {
        Self { is_sparse: true, ..Self::on(keys) }
    }

    fn ttl(field: &str) -> Self {
        Self { expire_after: Some(0), ..Self::on(doc! { field: 1 }) }
    }

    /// The default name, as shells and drivers derive it.
    pub(crate) fn name(&self) -> String {
        let parts = self.keys.iter().map(|(field, order)| format!("{field}_{order}"));
        parts.collect::<Vec<_>>().join("_")
    }

    /// The specification that `createIndexes` takes.
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

    /// Reads a specification that `listIndexes` returned.
    fn from_listing(index: &Document) -> Self {
        let is = |name| index.get_bool(name).unwrap_or(false);
        let raw = mongodb::bson::RawDocumentBuf::try_from(index).unwrap_or_default();
        let mut other = Vec::new();
        for option in ["partialFilterExpression", "collation"] {
            if let Some(value) = index.get(option) {
                other.push(format!("{option} {value}"));
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

    fn has_keys_of(&self, expected: &Index) -> bool {
        let number = |order: &Bson| match order {
            Bson::Int32(number) => Some(f64::from(*number)),
            Bson::Double(number) => Some(*number),
            #[expect(clippy::cast_precision_loss, reason = "an order is 1 or -1")]
            Bson::Int64(number) => Some(*number as f64),
            _ => None,
        };
        self.keys.len() == expected.keys.len()
            && self.keys.iter().zip(&expected.keys).all(|((mine, order), (theirs, other))| {
                mine == theirs && number(order) == number(other) && number(order).is_some()
            })
    }

    fn matches(&self, expected: &Index) -> bool {
        self.has_keys_of(expected)
            && Self { keys: expected.keys.clone(), ..self.clone() } == *expected
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self
            .keys
            .iter()
            .map(|(field, order)| match order {
                Bson::Int32(1) | Bson::Int64(1) => field.clone(),
                Bson::Double(number) if *number == 1.0 => field.clone(),
                order => format!("{field}: {order}"),
            })
            .collect();
        write!(f, "({})", fields.join(", "))?;
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

/// The collections, each with its indexes besides `_id`.
fn all(state_layout: StateLayout) -> Vec<(&'static str, Vec<Index>)> {
    // Sparse: events of topics without a TTL cost nothing here.
    let sparse_ttl = Index { is_sparse: true, ..Index::ttl("expireAt") };
    let mut all = vec![
        (
            EVENTS,
            vec![
                Index::unique(doc! { "topic": 1, "seq": 1 }),
                Index::unique(doc! { "topic": 1, "id": 1 }),
                Index::on(doc! { "topic": 1, "ts": 1, "id": 1 }),
                Index::on(doc! { "topic": 1, "key": 1, "ts": 1 }),
                sparse_ttl.clone(),
            ],
        ),
        (PARTS, vec![Index::unique(doc! { "topic": 1, "seq": 1, "part": 1 }), sparse_ttl]),
    ];
    for collection in state_layout.collections() {
        let StateCollection::OfKind { name, kind } = collection else { continue };
        let by_key = collection.has_key_field().then(|| Index::sparse(doc! { "key": 1 }));
        let ttl = kind.marker.map(|_| Index::ttl("expireAt"));
        all.push((name, by_key.into_iter().chain(ttl).collect()));
    }
    all.push((
        OUTBOX,
        vec![Index::on(doc! { "status": 1, "lease_until": 1 }), Index::on(doc! { "ts": 1 })],
    ));
    // Not a TTL index: the engine removes expired state by its own clock.
    all.push((STATE, vec![Index::sparse(doc! { "expireAt": 1 })]));
    all
}

/// An index that is not as the engine needs it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum IndexProblem {
    Missing {
        collection: &'static str,
        expected: Index,
    },
    /// An index with the same keys or the same name has other properties.
    Different {
        collection: &'static str,
        expected: Index,
        name: String,
        found: Index,
    },
}

impl IndexProblem {
    pub(crate) const fn collection(&self) -> &'static str {
        match self {
            IndexProblem::Missing { collection, .. }
            | IndexProblem::Different { collection, .. } => collection,
        }
    }

    pub(crate) const fn expected(&self) -> &Index {
        match self {
            IndexProblem::Missing { expected, .. } | IndexProblem::Different { expected, .. } => {
                expected
            }
        }
    }
}

impl fmt::Display for IndexProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexProblem::Missing { collection, expected } => {
                write!(f, "{collection} {expected} is missing")
            }
            IndexProblem::Different { collection, expected, name, found } => {
                write!(f, "{collection} {expected} is {found} (named {name})")
            }
        }
    }
}

/// Compares the indexes of a database with the expected ones. Ignores additional indexes.
pub(crate) async fn problems(collections: &Collections) -> Result<Vec<IndexProblem>, Error> {
    let mut problems = Vec::new();
    for (collection, indexes) in all(collections.state_layout) {
        let listed = list(collections.database(), collection).await?;
        for expected in indexes {
            if listed.iter().any(|(_, index)| index.matches(&expected)) {
                continue;
            }
            let conflicts = |(name, index): &&(String, Index)| {
                index.has_keys_of(&expected) || *name == expected.name()
            };
            problems.push(match listed.iter().find(conflicts) {
                Some((name, found)) => {
                    let (name, found) = (name.clone(), found.clone());
                    IndexProblem::Different { collection, expected, name, found }
                }
                None => IndexProblem::Missing { collection, expected },
            });
        }
    }
    Ok(problems)
}

async fn list(database: &Database, collection: &str) -> Result<Vec<(String, Index)>, Error> {
    let reply = database.run_command(doc! { "listIndexes": collection }).await;
    let reply = match reply {
        Err(error) if is_namespace_not_found(&error) => return Ok(Vec::new()),
        reply => reply?,
    };
    // A collection has at most 64 indexes, and the first batch holds 101.
    let listed = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let listed = listed.map(Vec::as_slice).unwrap_or_default();
    let parse = |index: &Bson| {
        let index = index.as_document()?;
        Some((index.get_str("name").ok()?.to_owned(), Index::from_listing(index)))
    };
    Ok(listed.iter().filter_map(parse).collect())
}

/// Creates `index` and waits until it is built. Does nothing if it exists.
pub(crate) async fn create(
    database: &Database,
    collection: &str,
    index: &Index,
) -> Result<(), Error> {
    let command = doc! {
        "createIndexes": collection,
        "indexes": [index.specification()],
        "writeConcern": { "w": "majority" },
    };
    database.run_command(command).await.map(drop)
}

/// Creates all collections and indexes of a new database.
pub(crate) async fn create_all(collections: &Collections) -> Result<(), Error> {
    let database = collections.database();
    for (collection, indexes) in all(collections.state_layout) {
        let specifications: Vec<Document> = indexes.iter().map(Index::specification).collect();
        let command = doc! {
            "createIndexes": collection,
            "indexes": specifications,
            "writeConcern": { "w": "majority" },
        };
        database.run_command(command).await?;
    }
    match database.create_collection(TOPICS).await {
        Err(error) if is_namespace_exists(&error) => Ok(()),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_a_listed_index_with_the_expected_one() {
        let expected = Index::unique(doc! { "topic": 1, "seq": 1 });
        assert_eq!(expected.name(), "topic_1_seq_1");
        let listed = |more: Document| {
            let mut index = doc! { "v": 2, "key": { "topic": 1.0, "seq": 1.0 }, "name": "any" };
            index.extend(more);
            Index::from_listing(&index)
        };
        assert!(listed(doc! { "unique": true }).matches(&expected));
        for wrong in [
            doc! {},
            doc! { "unique": true, "sparse": true },
            doc! { "unique": true, "expireAfterSeconds": 5 },
            doc! { "unique": true, "hidden": true },
            doc! { "unique": true, "partialFilterExpression": { "seq": { "$gt": 5 } } },
        ] {
            assert!(!listed(wrong.clone()).matches(&expected), "{wrong}");
        }
        let other_order = doc! { "key": { "seq": 1, "topic": 1 }, "unique": true };
        assert!(!Index::from_listing(&other_order).has_keys_of(&expected));
        let descending = doc! { "key": { "topic": 1, "seq": -1 }, "unique": true };
        assert!(!Index::from_listing(&descending).matches(&expected));
    }

    #[test]
    fn displays_keys_and_options() {
        let text = |index: &Document| Index::from_listing(index).to_string();
        assert_eq!(text(&doc! { "key": { "a": 1, "b": 1 }, "unique": true }), "(a, b) unique");
        assert_eq!(
            text(&doc! { "key": { "a": -1 }, "expireAfterSeconds": 60, "sparse": true }),
            "(a: -1) sparse TTL 60 s"
        );
    }
}
