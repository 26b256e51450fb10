//! Writes the server's frames, appending to the caller's buffer.
//!
//! The order of members is fixed: `op`, `corr` if the client sent one, then
//!
//! | frame | members |
//! |---|---|
//! | OK | none; or `id`, `seq` and `duplicate` if true; or `results`; or `stale`; or `seen`; or `group` |
//! | ERR | `code`, `msg`, `retry_after_ms` if known |
//! | EVENT (never a `corr`) | `topic`, `group`, `event`, `ctx` {`attempt`, `ack_deadline_ms`} |
//! | ENDED (never a `corr`) | `topic`, `group`, `reason` |

use super::corr::Corr;
use super::end_reason::EndReason;
use super::server_frame::JoinedGroup;
use super::write;
use crate::{ErrorCode, EventId, Group, Seq, Topic};

fn open_ok(out: &mut Vec<u8>, corr: Option<&Corr>) {
    write::raw(out, "{\"op\":\"OK\"");
    write::corr(out, corr);
}

/// Appends a plain OK.
pub fn write_ok(out: &mut Vec<u8>, corr: Option<&Corr>) {
    open_ok(out, corr);
    out.push(b'}');
}

/// Appends the OK of a PUBLISH of one event. `duplicate` means that the event was already stored.
pub fn write_published(
    out: &mut Vec<u8>,
    corr: Option<&Corr>,
    id: &EventId,
    seq: Seq,
    duplicate: bool,
) {
    open_ok(out, corr);
    write::known_member!(out, "id");
    write_published_members(out, id, seq, duplicate);
}

/// Appends the OK of a PUBLISH of several events: the id, position and duplicate flag of each.
pub fn write_results<'a>(
    out: &mut Vec<u8>,
    corr: Option<&Corr>,
    results: impl IntoIterator<Item = (&'a EventId, Seq, bool)>,
) {
    open_ok(out, corr);
    write::raw(out, ",\"results\":[");
    for (index, (id, seq, duplicate)) in results.into_iter().enumerate() {
        write::comma(out, index);
        write::raw(out, "{\"id\":");
        write_published_members(out, id, seq, duplicate);
    }
    write::raw(out, "]}");
}

/// Appends the OK of a SUBSCRIBE: the properties of the group, and whether it is new.
pub fn write_subscribed(out: &mut Vec<u8>, corr: Option<&Corr>, group: JoinedGroup) {
    open_ok(out, corr);
    write::raw(out, ",\"group\":{\"ordering\":\"none\",\"partitions\":1,\"max_attempts\":");
    write::number(out, u64::from(group.max_attempts));
    write::raw(out, if group.created { ",\"created\":true}}" } else { ",\"created\":false}}" });
}

/// Appends an OK with `stale`: the client no longer holds the lease, so nothing changed.
pub fn write_stale(out: &mut Vec<u8>, corr: Option<&Corr>) {
    open_ok(out, corr);
    write::raw(out, ",\"stale\":true}");
}

/// Appends the OK of a SEEN: those of the requested ids that are marked.
pub fn write_seen(out: &mut Vec<u8>, corr: Option<&Corr>, seen: &[EventId]) {
    open_ok(out, corr);
    write::known_member!(out, "seen");
    write::event_ids(out, seen);
    out.push(b'}');
}

/// Appends an ERR. `retry_after_ms` is `None` if the server cannot say when to retry.
pub fn write_err(
    out: &mut Vec<u8>,
    code: ErrorCode,
    msg: &str,
    corr: Option<&Corr>,
    retry_after_ms: Option<u64>,
) {
    write::raw(out, "{\"op\":\"ERR\"");
    write::corr(out, corr);
    write::known_member!(out, "code");
    write::name(out, code.as_str());
    write::known_member!(out, "msg");
    write::text(out, msg);
    if let Some(retry_after_ms) = retry_after_ms {
        write::known_member!(out, "retry_after_ms");
        write::number(out, retry_after_ms);
    }
    out.push(b'}');
}

/// Appends an EVENT, whose event JSON `write_json` appends. `attempt` counts from 1;
/// `ack_deadline_ms` is the time left on the lease.
pub fn write_event(
    out: &mut Vec<u8>,
    topic: &Topic,
    group: &Group,
    write_json: impl FnOnce(&mut Vec<u8>),
    attempt: u32,
    ack_deadline_ms: u64,
) {
    write::raw(out, "{\"op\":\"EVENT\",\"topic\":");
    write::name(out, topic.as_str());
    write::raw(out, ",\"group\":");
    write::name(out, group.as_str());
    write::raw(out, ",\"event\":");
    write_json(out);
    write::raw(out, ",\"ctx\":{\"attempt\":");
    write::number(out, u64::from(attempt));
    write::raw(out, ",\"ack_deadline_ms\":");
    write::number(out, ack_deadline_ms);
    write::raw(out, "}}");
}

/// Appends an ENDED: the subscription is over although its client did not end it.
pub fn write_ended(out: &mut Vec<u8>, topic: &Topic, group: &Group, reason: EndReason) {
    write::raw(out, "{\"op\":\"ENDED\",\"topic\":");
    write::name(out, topic.as_str());
    write::raw(out, ",\"group\":");
    write::name(out, group.as_str());
    write::raw(out, ",\"reason\":");
    write::name(out, reason.as_str());
    out.push(b'}');
}

/// Appends the value of `id`, then `seq`, `duplicate` and the closing brace.
fn write_published_members(out: &mut Vec<u8>, id: &EventId, seq: Seq, duplicate: bool) {
    write::event_id(out, id);
    write::known_member!(out, "seq");
    write::number(out, seq.0);
    write::raw(out, if duplicate { ",\"duplicate\":true}" } else { "}" });
}
