use std::io::Write;

use super::*;

fn line(seq: u64, topic: &str) -> String {
    format!(
        "{{\"seq\":{seq},\"id\":\"e-{seq}\",\"ts\":1,\"topic\":\"{topic}\",\"payload\":null}}\n"
    )
}

struct Opened {
    result: Result<Option<BegunFile>, String>,
    left: Vec<u8>,
}

/// What becomes of a file with this in it.
fn opened(content: &[u8]) -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.ndjson");
    std::fs::write(&path, content).unwrap();
    let result = BegunFile::open(&path, &Topic::new("t").unwrap());
    if let Ok(Some(begun)) = &result {
        (&begun.file).write_all(b"+").unwrap();
    }
    Opened { result, left: std::fs::read(&path).unwrap() }
}

#[test]
fn goes_on_behind_the_last_whole_line() {
    let lines: String = (1..=3000).map(|seq| line(seq, "t")).collect();
    let torn = [lines.as_str(), &line(3001, "t").trim_end()[..20]].concat();
    let complete_but_for_its_newline = [lines.as_str(), line(3001, "t").trim_end()].concat();
    let long = format!("{lines}{{\"seq\":3001,{}", "x".repeat(300_000));
    for content in [&lines, &torn, &complete_but_for_its_newline, &long] {
        let Opened { result, left } = opened(content.as_bytes());
        assert_eq!(result.unwrap().unwrap().last, StoredLine::parse(line(3000, "t").as_bytes()));
        assert_eq!(left, format!("{lines}+").as_bytes());
    }
    let Opened { result, left } = opened(line(7, "t").as_bytes());
    assert_eq!(result.unwrap().unwrap().last.unwrap().seq.0, 7);
    assert_eq!(left, format!("{}+", line(7, "t")).as_bytes());
}

#[test]
fn a_first_line_that_was_torn_is_begun_anew() {
    let whole = line(1, "t");
    for torn in ["", "{", "{\"seq", "{\"seq\":1,\"id\":\"e", whole.trim_end()] {
        let Opened { result, left } = opened(torn.as_bytes());
        assert_eq!(result.unwrap().unwrap().last, None);
        assert_eq!(left, b"+");
    }
}

#[test]
fn what_is_no_export_of_the_topic_is_left_as_it_is() {
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
        let Opened { result, left } = opened(content.as_bytes());
        let error = result.unwrap_err();
        assert!(error.contains("is no export of t: "), "{error}");
        assert!(left == content.as_bytes(), "it was changed");
    }
}

#[test]
fn no_file_is_no_error_and_a_folder_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let topic = Topic::new("t").unwrap();
    assert!(BegunFile::open(&folder.path().join("none"), &topic).unwrap().is_none());
    BegunFile::open(folder.path(), &topic).unwrap_err();
}
