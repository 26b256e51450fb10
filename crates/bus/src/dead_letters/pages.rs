//! Reads the dead letters of a topic, page by page.

use prombus_engine::{Engine, ReadBudget, ReadError, StoredEvent, Version};
use prombus_proto::{ErrorCode, EventId, Seq, Topic};

use super::letter::{ReadLetter, dead_letter_topic};
use super::{Letter, LetterSelection};
use crate::bus::Bus;
use crate::error::Refusal;
use crate::stored::letter::LetterRecord;
use crate::topics::{DamagedRange, read};

/// How much is read at a time.
const PAGE: ReadBudget = ReadBudget { events: 256, bytes: 4 << 20 };
/// How many letters one request looks at.
const MAX_LETTERS: u64 = 100_000;

pub(super) struct LetterPages<'a> {
    engine: &'a dyn Engine,
    topic: &'a Topic,
    selection: &'a LetterSelection,
    pub(super) dead_letters: Topic,
    next: Seq,
    /// Where the selection ends, or the topic of the dead letters did when the request began.
    pub(super) end: Seq,
    /// Where this request stops.
    last: Seq,
    /// The last letter that was looked at.
    seen: Option<EventId>,
}

/// A letter that is selected and was not dropped.
pub(super) struct Found {
    pub(super) letter: Letter,
    /// Where the original was in its topic, if the letter has a copy.
    pub(super) original_seq: Option<Seq>,
    pub(super) record: LetterRecord,
    /// Of the record, if there is one.
    pub(super) version: Option<Version>,
}

impl<'a> LetterPages<'a> {
    pub(super) async fn begin(
        bus: &'a Bus,
        topic: &'a Topic,
        selection: &'a LetterSelection,
    ) -> Result<Self, Refusal> {
        let dead_letters = dead_letter_topic(topic)
            .map_err(|error| Refusal::new(ErrorCode::BadTopic, error.to_string()))?;
        let engine = bus.engine().as_ref();
        let bounds = engine.bounds(&dead_letters).await?;
        if bounds.next == Seq::FIRST {
            // Not an error for a topic that exists.
            bus.known_bounds(topic).await?;
        }
        let next = match &selection.after {
            Some(id) => match engine.seek_id(&dead_letters, id).await? {
                Some(seq) => seq.next(),
                None => {
                    let message = format!("{dead_letters} holds no dead letter {id}");
                    return Err(Refusal::new(ErrorCode::UnknownId, message));
                }
            },
            None => bounds.first,
        };
        let end = selection.before.map_or(bounds.next, |before| before.min(bounds.next));
        let last = next.plus(MAX_LETTERS).min(end);
        Ok(Self { engine, topic, selection, dead_letters, next, end, last, seen: None })
    }

    /// Returns the next letters, or `None` behind the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Found>>, Refusal> {
        if self.next >= self.last {
            return Ok(None);
        }
        let page = match read(self.engine, &self.dead_letters, self.next, PAGE).await {
            Ok(page) => page.events,
            Err(error @ ReadError::Damaged(_)) => {
                self.next = DamagedRange::of(error, self.next)?.last.next();
                return Ok(Some(Vec::new()));
            }
            Err(error) => return Err(error.into()),
        };
        let page: Vec<_> = page.into_iter().take_while(|event| event.seq < self.last).collect();
        let Some(last) = page.last() else {
            self.next = self.last;
            return Ok(None);
        };
        self.next = last.seq.next();
        self.seen = Some(last.id.clone());
        let letters: Vec<_> = page.iter().filter_map(|event| self.select(event)).collect();
        self.with_records(letters).await.map(Some)
    }

    /// Looks no further than `letter`.
    pub(super) fn stop_behind(&mut self, letter: &Letter) {
        (self.next, self.seen) = (letter.seq.next(), Some(letter.id.clone()));
    }

    /// Returns behind which letter another request continues, if there are more.
    pub(super) fn rest(&self) -> Option<EventId> {
        self.seen.clone().filter(|_| self.next < self.end)
    }

    fn select(&self, event: &StoredEvent) -> Option<(Letter, Option<Seq>)> {
        let read = ReadLetter::parse(event, self.topic)?;
        let original_seq = read.original_seq();
        let letter = Letter {
            seq: event.seq,
            id: event.id.clone(),
            group: read.group,
            original: read.original.map(ToOwned::to_owned),
            original_id: read.original_id,
            error: read.error,
            attempts: read.attempts,
            ts: read.ts,
            redriven: false,
        };
        self.selection.contains(&letter).then_some((letter, original_seq))
    }

    /// Adds what was done with the letters, and leaves out those that were dropped.
    async fn with_records(
        &self,
        letters: Vec<(Letter, Option<Seq>)>,
    ) -> Result<Vec<Found>, Refusal> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> =
            letters.iter().map(|(letter, _)| LetterRecord::key(self.topic, letter.seq)).collect();
        let entries = self.engine.get_many(&keys).await?;
        let mut found = Vec::with_capacity(letters.len());
        for ((mut letter, original_seq), entry) in letters.into_iter().zip(entries) {
            let version = entry.as_ref().map(|entry| entry.version);
            let record = match entry {
                Some(entry) => LetterRecord::decode(&entry.value).map_err(|error| {
                    let message = format!("the record of the dead letter {} {error}", letter.id);
                    Refusal::new(ErrorCode::Internal, message)
                })?,
                None => LetterRecord::default(),
            };
            if !record.dropped {
                letter.redriven = record.redriven;
                found.push(Found { letter, original_seq, record, version });
            }
        }
        Ok(found)
    }
}
