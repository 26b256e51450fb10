//! How responses name events that the store cannot read back.

use prombus_bus::DamagedRange;

/// Appends `{"first_seq": …, "last_seq": …}`.
pub(super) fn append_json(text: &mut Vec<u8>, DamagedRange { first, last }: DamagedRange) {
    let json = format!(r#"{{"first_seq":{first},"last_seq":{last}}}"#);
    text.extend_from_slice(json.as_bytes());
}
