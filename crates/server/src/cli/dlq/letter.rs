//! Dead letters as the server lists them, and as people read them.

use bytes::Bytes;
use prombus_client::transport::{HttpClient, HttpFailure, Query};
use prombus_proto::{EventId, Group, Timestamp, Topic};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::human_count::human_count;
use crate::cli::one_line::one_line;
use crate::cli::pretty_json::pretty_json;
use crate::cli::table::Table;
use crate::cli::times::{human_duration, human_time};

const MAX_ERROR_CHARS: usize = 60;

/// Letters to ask for.
#[derive(Clone, Debug)]
pub(super) struct LetterQuery {
    pub(super) topic: Topic,
    pub(super) group: Option<Group>,
    /// Of the letter, or of its event.
    pub(super) id: Option<EventId>,
    pub(super) after: Option<EventId>,
    pub(super) limit: u64,
}

#[derive(Deserialize)]
pub(super) struct LetterPage<'a> {
    #[serde(borrow)]
    pub(super) letters: Vec<&'a RawValue>,
    pub(super) next: Option<EventId>,
}

#[derive(Deserialize)]
pub(super) struct Letter<'a> {
    id: EventId,
    seq: u64,
    group: Group,
    #[serde(borrow)]
    original: Option<&'a RawValue>,
    original_id: Option<EventId>,
    err: String,
    attempts: u64,
    ts: Timestamp,
    redriven: bool,
}

impl LetterQuery {
    /// Asks for one page.
    pub(super) async fn ask(&self, client: &mut HttpClient) -> Result<Bytes, HttpFailure> {
        let Self { topic, group, id, after, limit } = self;
        let query = Query::of(&format!("/dlq/{topic}"))
            .with("group", group.as_ref())
            .with("id", id.as_ref())
            .with("after", after.as_ref())
            .with("limit", Some(limit));
        client.get(query.as_str()).await?.bytes().await
    }

    /// Goes on behind a page. Returns `false` if it was the last one.
    pub(super) fn advance(&mut self, next: Option<EventId>) -> Result<bool, HttpFailure> {
        let Some(next) = next else { return Ok(false) };
        let next = Some(next);
        if next == self.after {
            return Err(HttpFailure::NotUnderstood("the next page is the same page".to_owned()));
        }
        self.after = next;
        Ok(true)
    }
}

pub(super) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, HttpFailure> {
    serde_json::from_slice(json).map_err(|error| HttpFailure::not_understood(&error))
}

/// The table of a list of letters.
pub(super) fn table() -> Table {
    Table::new(&["AGE", "GROUP", "ATTEMPTS", "ID", "REDRIVEN", "ERROR"])
}

impl Letter<'_> {
    /// The id that people know: that of the event.
    fn event_id(&self) -> &EventId {
        self.original_id.as_ref().unwrap_or(&self.id)
    }

    /// Returns the cells of [`table`].
    pub(super) fn row(&self, now: Timestamp) -> Vec<String> {
        vec![
            human_duration(now.0.saturating_sub(self.ts.0)),
            self.group.to_string(),
            human_count(self.attempts),
            self.event_id().to_string(),
            if self.redriven { "yes" } else { "-" }.to_owned(),
            one_line(&self.err, MAX_ERROR_CHARS),
        ]
    }

    /// Describes the letter in full.
    pub(super) fn describe(&self) -> String {
        let mut table = Table::new(&["PROPERTY", "VALUE"]);
        let mut push = |name: &str, value: String| table.push(vec![name.to_owned(), value]);
        push("id of the event", self.event_id().to_string());
        push("id of the letter", self.id.to_string());
        push("seq of the letter", human_count(self.seq));
        push("group", self.group.to_string());
        push("attempts", human_count(self.attempts));
        push("time", human_time(self.ts));
        push("redriven", if self.redriven { "yes" } else { "no" }.to_owned());
        push("error", one_line(&self.err, usize::MAX));
        let original = match self.original {
            Some(original) => pretty_json(original.get()),
            None => "the letter does not contain its event".to_owned(),
        };
        format!("{}\n{original}\n", table.render(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LETTER: &str = r#"{"id":"l1","seq":1234,"group":"billing","original":{"id":"o1","payload":1.50},
        "original_id":"o1","err":"no\nroute","attempts":5,"ts":1767322800000,"redriven":false}"#;

    #[test]
    fn a_row_fits_a_line_and_a_description_has_everything() {
        let letter: Letter<'_> = parse(LETTER.as_bytes()).unwrap();
        let row = letter.row(Timestamp(1_767_322_800_000 + 61_000));
        assert_eq!(row, ["1m 1s", "billing", "5", "o1", "-", "no route"]);
        let text = letter.describe();
        for line in [
            "id of the event    o1",
            "seq of the letter  1,234",
            "time               2026-01-02T03:00:00Z",
            "error              no route",
            "  \"payload\": 1.50",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_letter_without_its_event_goes_by_its_own_id() {
        let letter = LETTER.replace(r#"{"id":"o1","payload":1.50}"#, "null");
        let letter = letter.replace(r#""original_id":"o1""#, r#""original_id":null"#);
        let letter: Letter<'_> = parse(letter.as_bytes()).unwrap();
        assert_eq!(letter.row(Timestamp(0))[3], "l1");
        assert!(letter.describe().ends_with("the letter does not contain its event\n"));
    }
}
