//! What the server sends, appended to the caller's buffer.
//!
//! The order of members is fixed: `op`, `corr` where there is one, then
//!
//! | frame | members |
//! |---|---|
//! | OK | none; or `id`, `seq`, `duplicate` if so; or `results`; or `stale`; or `seen` |
//! | ERR | `code`, `msg`, `retry_after_ms` if known |
//! | EVENT (never a `corr`) | `topic`, `group`, `event`, `ctx` {`attempt`, `ack_deadline_ms`} |

use super::corr::Corr;
use super::write;
use crate::{ErrorCode, EventId, Group, Seq, Topic};

fn open_ok(out: &mut Vec<u8>, corr: Option<&Corr>) {
    write::raw(out, "{\"op\":\"OK\"");
    write::corr(out, corr);
}

/// Done.
pub fn write_ok(out: &mut Vec<u8>, corr: Option<&Corr>) {
    open_ok(out, corr);
    out.push(b'}');
}

/// Stored, or stored already.
pub fn write_published(
    out: &mut Vec<u8>,
    corr: Option<&Corr>,
    id: &EventId,
    seq: Seq,
    duplicate: bool,
) {
    open_ok(out, corr);
    write::known_member!(out, "id");
    write_place(out, id, seq, duplicate);
}

/// Several stored, each with its id, its place, and whether it was there already.
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
        write_place(out, id, seq, duplicate);
    }
    write::raw(out, "]}");
}

/// Nothing was changed: what it names is not lent to this client.
pub fn write_stale(out: &mut Vec<u8>, corr: Option<&Corr>) {
    open_ok(out, corr);
    write::raw(out, ",\"stale\":true}");
}

/// Those of the ids asked for that are marked.
pub fn write_seen(out: &mut Vec<u8>, corr: Option<&Corr>, seen: &[EventId]) {
    open_ok(out, corr);
    write::known_member!(out, "seen");
    write::event_ids(out, seen);
    out.push(b'}');
}

/// Refused.
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

/// Delivers an event, whose JSON `write_json` appends. `ack_deadline_ms` is the time left.
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

/// The value of `id`, the other members, and the end of the object.
fn write_place(out: &mut Vec<u8>, id: &EventId, seq: Seq, duplicate: bool) {
    write::event_id(out, id);
    write::known_member!(out, "seq");
    write::number(out, seq.0);
    write::raw(out, if duplicate { ",\"duplicate\":true}" } else { "}" });
}
