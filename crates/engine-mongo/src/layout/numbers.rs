//! Positions, times and versions are unsigned here and signed in BSON.

use mongodb::bson::RawDocument;
use mongodb::bson::raw::RawBsonRef;

/// The largest that BSON has, where it does not fit: it is behind everything all the same.
pub(crate) fn to_bson(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Zero for what is below it, which nothing of ours is.
pub(crate) fn from_bson(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A whole number of a document, whichever way other programs wrote it.
pub(crate) fn number_in(document: &RawDocument, name: &str) -> Option<i64> {
    match document.get(name) {
        Ok(Some(RawBsonRef::Int64(number))) => Some(number),
        Ok(Some(RawBsonRef::Int32(number))) => Some(i64::from(number)),
        #[expect(clippy::cast_possible_truncation, reason = "a shell writes whole numbers so")]
        Ok(Some(RawBsonRef::Double(number))) => Some(number as i64),
        _ => None,
    }
}
