//! Which dead letters a request is for, from its body.

use prombus_bus::LetterSelection;
use prombus_proto::Seq;

use crate::http::body_members::BodyMembers;
use crate::http::error::HttpError;

/// Enough for [`MAX_IDS`] ids of the longest kind.
pub(super) const MAX_BODY_BYTES: usize = 512 << 10;
pub(super) const MEMBERS: [&str; 5] = ["group", "ids", "after", "before_seq", "limit"];

const MAX_SEQ: u64 = i64::MAX as u64;
const MAX_LETTERS: u64 = 1000;
const MAX_IDS: usize = 1000;

pub(super) fn parse(members: &BodyMembers) -> Result<LetterSelection, HttpError> {
    let limit = members.number("limit", 1..=MAX_LETTERS)?.unwrap_or(MAX_LETTERS);
    Ok(LetterSelection {
        group: members.group()?,
        ids: members.event_ids("ids", MAX_IDS)?,
        after: members.event_id("after")?,
        before: members.number("before_seq", 1..=MAX_SEQ)?.map(Seq),
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    })
}
