//! Lists the dead letters of a topic.

use prombus_proto::{EventId, Topic};

use super::pages::LetterPages;
use super::{Letter, LetterSelection};
use crate::bus::Bus;
use crate::error::Refusal;

/// Dead letters, oldest first.
#[derive(Debug)]
pub struct LetterPage {
    pub letters: Vec<Letter>,
    /// The last letter that was looked at, if there are more behind it.
    pub next: Option<EventId>,
}

/// A page of letters has at most so many bytes of originals, and one letter.
const MAX_PAGE_BYTES: usize = 4 << 20;

impl Bus {
    /// Returns the dead letters of `topic`, without those that were dropped.
    ///
    /// # Errors
    ///
    /// `UnknownTopic`, `UnknownId` if there is no letter `after`, or if the store cannot be read.
    pub async fn dead_letters(
        &self,
        topic: &Topic,
        selection: LetterSelection,
    ) -> Result<LetterPage, Refusal> {
        let mut pages = LetterPages::begin(self, topic, &selection).await?;
        let (mut letters, mut bytes) = (Vec::new(), 0);
        while let Some(page) = pages.next().await? {
            for found in page {
                let size = found.letter.original.as_ref().map_or(0, |json| json.get().len());
                bytes += size;
                letters.push(found.letter);
                if letters.len() >= selection.limit || bytes >= MAX_PAGE_BYTES {
                    pages.stop_behind(&letters[letters.len() - 1]);
                    let next = pages.rest();
                    return Ok(LetterPage { letters, next });
                }
            }
        }
        let next = pages.rest();
        Ok(LetterPage { letters, next })
    }
}
