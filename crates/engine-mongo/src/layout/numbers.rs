//! Positions, times and versions are unsigned in the contract and signed in BSON.

use mongodb::bson::RawDocument;
use mongodb::bson::raw::RawBsonRef;

/// Saturates: no position or time in use is anywhere near the largest signed number.
pub(crate) fn to_bson(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns zero for negative numbers, which this engine never writes.
pub(crate) fn from_bson(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads an integer field, whatever numeric type another program wrote it with.
pub(crate) fn number_in(document: &RawDocument, name: &str) -> Option<i64> {
    match document.get(name) {
        Ok(Some(RawBsonRef::Int64(number))) => Some(number),
        Ok(Some(RawBsonRef::Int32(number))) => Some(i64::from(number)),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the MongoDB shell writes integers as doubles"
        )]
        Ok(Some(RawBsonRef::Double(number))) => Some(number as i64),
        _ => None,
    }
}
