//! Parses the sessions of the document.

use serde_json::Value;

/// One fenced block: a connection to a fresh server.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The line of the document where it starts.
    pub(crate) line: usize,
    /// Settings of the server, as `key=value`.
    pub(crate) settings: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// A step of a session, with its line.
#[derive(Debug)]
pub(crate) enum Step {
    Send(usize, String),
    /// Frames in any order; usually one.
    Receive(Vec<(usize, Value)>),
    Closed(usize, u16, String),
}

const FENCE: &str = "```";
const START: &str = "```session";

/// Returns all sessions of `document`, or the line of a syntax error.
pub(crate) fn all_of(document: &str) -> Result<Vec<Session>, String> {
    let mut sessions = Vec::new();
    let mut current: Option<Session> = None;
    let mut in_any_order = false;
    for (line, text) in (1..).zip(document.lines()) {
        let Some(session) = &mut current else {
            if let Some(settings) = text.strip_prefix(START) {
                let settings = settings.split_whitespace().map(str::to_owned).collect();
                current = Some(Session { line, settings, steps: vec![] });
            }
            continue;
        };
        if text == FENCE {
            sessions.extend(current.take());
            continue;
        }
        let json = |text| {
            serde_json::from_str(text).map_err(|error| format!("line {line}: not JSON: {error}"))
        };
        let was_in_any_order = std::mem::take(&mut in_any_order);
        if let Some(frame) = text.strip_prefix("> ") {
            session.steps.push(Step::Send(line, frame.to_owned()));
        } else if let Some(close) = text.strip_prefix("< close ") {
            let (code, reason) = close.split_once(' ').unwrap_or((close, ""));
            let code =
                code.parse().map_err(|_| format!("line {line}: not a close code: {code}"))?;
            session.steps.push(Step::Closed(line, code, reason.to_owned()));
        } else if let Some(frame) = text.strip_prefix("< ") {
            session.steps.push(Step::Receive(vec![(line, json(frame)?)]));
        } else if let Some(frame) = text.strip_prefix("<~ ") {
            in_any_order = true;
            let frame = (line, json(frame)?);
            match session.steps.last_mut() {
                Some(Step::Receive(frames)) if was_in_any_order => frames.push(frame),
                _ => session.steps.push(Step::Receive(vec![frame])),
            }
        } else {
            return Err(format!("line {line}: starts with none of `> `, `< `, `<~ `: {text}"));
        }
    }
    match current {
        Some(open) => Err(format!("line {}: the session is not closed", open.line)),
        None => Ok(sessions),
    }
}

#[test]
fn a_malformed_line_is_an_error() {
    let read = |lines: &str| all_of(&format!("text\n{START}\n{lines}\n{FENCE}\n"));
    assert_eq!(read("> a\n< {}\n<~ {}\n<~ {}\n< close 4401 why").unwrap()[0].steps.len(), 4);
    for wrong in ["{}", "<{}", "< {", "< close soon", ""] {
        assert!(read(wrong).unwrap_err().starts_with("line 3: "), "{wrong}");
    }
    assert!(all_of(START).is_err());
}
