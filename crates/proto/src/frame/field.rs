//! Typed access to the members of a frame, with the error message for each violation.
//!
//! `null` means absent everywhere except in `payload`.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::error::FrameError;
use super::json::Json;
use crate::{ErrorCode, EventId, Group, Topic};

type Member<'a> = Option<Json<'a>>;

/// Returns the member unless it is absent or `null`.
pub(super) fn present(member: Member<'_>) -> Member<'_> {
    member.filter(|value| !value.is_null())
}

fn required<'a>(name: &str, member: Member<'a>) -> Result<Json<'a>, FrameError> {
    present(member).ok_or_else(|| FrameError::bad_frame(format_args!("{name} is missing")))
}

pub(super) fn text<'a>(name: &str, value: Json<'a>) -> Result<Cow<'a, str>, FrameError> {
    let wrong = || FrameError::bad_frame(format_args!("{name} must be a string"));
    value.text().ok_or_else(wrong)
}

pub(super) fn required_text<'a>(
    name: &str,
    member: Member<'a>,
) -> Result<Cow<'a, str>, FrameError> {
    text(name, required(name, member)?)
}

pub(super) fn topic(member: Member<'_>) -> Result<Topic, FrameError> {
    let wrong = |reason| FrameError::new(ErrorCode::BadTopic, format_args!("topic: {reason}"));
    Topic::new(&required_text("topic", member)?).map_err(wrong)
}

pub(super) fn group(member: Member<'_>) -> Result<Group, FrameError> {
    let wrong = |reason| FrameError::new(ErrorCode::BadGroup, format_args!("group: {reason}"));
    Group::new(&required_text("group", member)?).map_err(wrong)
}

pub(super) fn event_id(name: &str, value: Json<'_>) -> Result<EventId, FrameError> {
    let wrong = |reason| FrameError::bad_frame(format_args!("{name}: {reason}"));
    EventId::new(&text(name, value)?).map_err(wrong)
}

/// Reads the id at `index` of the list `name`. Only formats the path for an error.
pub(super) fn event_id_in(
    name: &str,
    index: usize,
    value: Json<'_>,
) -> Result<EventId, FrameError> {
    if let Some(id) = value.text().and_then(|text| EventId::new(&text).ok()) {
        return Ok(id);
    }
    event_id(&format!("{name}[{index}]"), value)
}

pub(super) fn required_event_id(name: &str, member: Member<'_>) -> Result<EventId, FrameError> {
    event_id(name, required(name, member)?)
}

pub(super) fn number(
    name: &str,
    member: Member<'_>,
    range: RangeInclusive<u64>,
) -> Result<Option<u64>, FrameError> {
    let Some(value) = present(member) else { return Ok(None) };
    match value.whole_number() {
        Some(number) if range.contains(&number) => Ok(Some(number)),
        _ => Err(FrameError::bad_frame(format_args!(
            "{name} must be a whole number from {} to {}",
            range.start(),
            range.end()
        ))),
    }
}

pub(super) fn required_number(
    name: &str,
    member: Member<'_>,
    range: RangeInclusive<u64>,
) -> Result<u64, FrameError> {
    let missing = || FrameError::bad_frame(format_args!("{name} is missing"));
    number(name, member, range)?.ok_or_else(missing)
}

/// Reads a whole number from 1 to `max`.
pub(super) fn count(name: &str, member: Member<'_>, max: u32) -> Result<Option<u32>, FrameError> {
    let number = number(name, member, 1..=u64::from(max))?;
    Ok(number.and_then(|number| u32::try_from(number).ok()))
}

/// Reads a boolean that is `false` if it is absent.
pub(super) fn flag(name: &str, member: Member<'_>) -> Result<bool, FrameError> {
    match present(member).map(Json::raw) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(FrameError::bad_frame(format_args!("{name} must be true or false"))),
    }
}

/// Reads an array of `of_what`; `read` gets the index and the cursor of each element.
pub(super) fn list<'a, T>(
    name: &str,
    of_what: &str,
    value: Json<'a>,
    sizes: RangeInclusive<usize>,
    mut read: impl FnMut(usize, &mut super::json::Cursor<'a>) -> Result<T, FrameError>,
) -> Result<Vec<T>, FrameError> {
    let wrong = || {
        let (min, max) = (sizes.start(), sizes.end());
        let range = match *max {
            usize::MAX => String::new(),
            _ => format!("{min} to {max} "),
        };
        FrameError::bad_frame(format_args!("{name} must be a list of {range}{of_what}"))
    };
    if !value.is_array() {
        return Err(wrong());
    }
    let mut list = Vec::new();
    value.cursor().elements(|cursor| {
        if list.len() == *sizes.end() {
            return Err(wrong());
        }
        list.push(read(list.len(), cursor)?);
        Ok::<(), FrameError>(())
    })?;
    if list.len() < *sizes.start() { Err(wrong()) } else { Ok(list) }
}
