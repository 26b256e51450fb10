use std::io::Write;

use super::*;

fn line(seq: u64, topic: &str) -> String {
    format!(
        "{{\"seq\":{seq},\"id\":\"e-{seq}\",\"ts\":1,\"topic\":\"{topic}\",\"payload\":null}}\n"
    )
}

struct Opened {
    result: Result<Option<ResumableFile>, String>,
    content: Vec<u8>,
}

/// Opens a file with this content and appends a `+`.
fn opened(content: &[u8]) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export.ndjson");
    std::fs::write(&path, content).unwrap();
    let result = ResumableFile::open(&path, &Topic::new("t").unwrap());
    if let Ok(Some(resumable)) = &result {
        (&resumable.file).write_all(b"+").unwrap();
    }
    Opened { result, content: std::fs::read(&path).unwrap() }
}

#[test]
fn resumes_after_the_last_complete_line() {
    let lines: String = (1..=3000).map(|seq| line(seq, "t")).collect();
    let torn = [lines.as_str(), &line(3001, "t").trim_end()[..20]].concat();
    let without_the_last_newline = [lines.as_str(), line(3001, "t").trim_end()].concat();
    let long = format!("{lines}{{\"seq\":3001,{}", "x".repeat(300_000));
    for content in [&lines, &torn, &without_the_last_newline, &long] {
        let Opened { result, content: after } = opened(content.as_bytes());
        assert_eq!(result.unwrap().unwrap().last, EventLine::parse(line(3000, "t").as_bytes()));
        assert_eq!(after, format!("{lines}+").as_bytes());
    }
    let Opened { result, content: after } = opened(line(7, "t").as_bytes());
    assert_eq!(result.unwrap().unwrap().last.unwrap().seq.0, 7);
    assert_eq!(after, format!("{}+", line(7, "t")).as_bytes());
}

#[test]
fn discards_an_incomplete_first_line() {
    let whole = line(1, "t");
    for torn in ["", "{", "{\"seq", "{\"seq\":1,\"id\":\"e", whole.trim_end()] {
        let Opened { result, content: after } = opened(torn.as_bytes());
        assert_eq!(result.unwrap().unwrap().last, None);
        assert_eq!(after, b"+");
    }
}

#[test]
fn leaves_other_files_unchanged() {
    let (ours, other) = (line(1, "t"), line(1, "other"));
    let endless = "x".repeat(MAX_EVENT_BYTES + 300_000);
    for content in [
        "a text".to_owned(),
        "a text\n".to_owned(),
        "\n".to_owned(),
        other.clone(),
        format!("{other}{ours}"),
        format!("{ours}{other}"),
        format!("{ours}\n"),
        format!("{ours}a text\n"),
        format!("a text\n{ours}"),
        format!("{other}{{\"seq\":2"),
        format!("{ours}{endless}"),
        format!("{ours}{endless}\n"),
    ] {
        let Opened { result, content: after } = opened(content.as_bytes());
        let error = result.unwrap_err();
        assert!(error.contains("is not an export of t: "), "{error}");
        assert!(after == content.as_bytes(), "it was changed");
    }
}

#[test]
fn a_missing_file_is_none_and_a_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let topic = Topic::new("t").unwrap();
    assert!(ResumableFile::open(&dir.path().join("none"), &topic).unwrap().is_none());
    ResumableFile::open(dir.path(), &topic).unwrap_err();
}
