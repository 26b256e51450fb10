//! What must hold of dead letters that are redriven again and again: each is redriven once.

use std::collections::BTreeMap;

use serde_json::Value;

/// The letters of one event in one group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LettersOf {
    pub(crate) all: u64,
    pub(crate) redriven: u64,
}

/// A letter as it was listed.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) id: String,
    pub(crate) group: String,
    /// The position of its event.
    pub(crate) original: u64,
    pub(crate) redriven: bool,
}

/// What requests to redrive letters were answered.
#[derive(Debug, Default)]
pub(crate) struct Redrives {
    /// How many letters answered requests redrove, altogether.
    redriven: u64,
    /// The same of requests that named one letter.
    by_id: BTreeMap<String, u64>,
}

impl Letter {
    pub(crate) fn listed(letter: &Value) -> Self {
        let text = |name: &str| letter[name].as_str().expect("a text").to_owned();
        let original = letter["original"]["seq"].as_u64().expect("a position");
        assert_eq!(text("original_id"), format!("e{original}"), "{letter}");
        let redriven = letter["redriven"].as_bool().expect("true or false");
        Self { id: text("id"), group: text("group"), original, redriven }
    }
}

impl Redrives {
    /// A request for the letter `id`, or for several, redrove so many.
    pub(crate) fn answered(&mut self, id: Option<&str>, redriven: u64) {
        self.redriven += redriven;
        if let Some(id) = id {
            let of_letter = self.by_id.entry(id.to_owned()).or_default();
            *of_letter += redriven;
            assert!(*of_letter <= 1, "the letter {id} was redriven {of_letter} times");
        }
    }

    /// Checks what was answered against all letters.
    pub(crate) fn check_end(&self, letters: &[Letter]) {
        let marked = letters.iter().filter(|letter| letter.redriven).count() as u64;
        // A request without an answer may have redriven some as well.
        assert!(
            self.redriven <= marked,
            "{} were redriven, but only {marked} are marked",
            self.redriven
        );
        for (id, redriven) in &self.by_id {
            let letter = letters.iter().find(|letter| letter.id == *id).expect("letters stay");
            assert!(letter.redriven || *redriven == 0, "{letter:?} was redriven");
        }
        assert!(self.redriven > 0, "the run redrove letters");
    }
}

/// Returns the letters of `group` by event.
pub(crate) fn letters_of(group: &str, letters: &[Letter]) -> BTreeMap<u64, LettersOf> {
    let mut events = BTreeMap::<u64, LettersOf>::new();
    for letter in letters.iter().filter(|letter| letter.group == group) {
        let event = events.entry(letter.original).or_default();
        event.all += 1;
        event.redriven += u64::from(letter.redriven);
    }
    events
}
