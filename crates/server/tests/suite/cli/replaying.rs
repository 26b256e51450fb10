use crate::cli::server::Server;

fn with_events(count: u64) -> Server {
    let server = Server::start(&[]);
    let lines: String = (1..=count)
        .map(|n| format!("{{\"id\":\"é {n}\",\"ts\":{n}000,\"payload\":{{\"n\" : {n}.0}}}}\n"))
        .collect();
    server.run(&["import", "t"], &lines).lines();
    server
}

#[test]
fn prints_all_pages_byte_for_byte() {
    let server = with_events(2500);
    let all = server.run(&["export", "t"], "").out;
    let ran = server.run(&["replay", "t"], "");
    assert!(ran.is_success && ran.out == all, "{}", ran.err);
    let lines: Vec<_> = all.lines().collect();
    assert!(lines[0].contains("\"payload\":{\"n\" : 1.0}"), "{}", lines[0]);
    for (flags, expected) in [
        (&["--from", "earliest"][..], &lines[..]),
        (&["--limit", "1"], &lines[..1]),
        (&["--limit", "1000"], &lines[..1000]),
        (&["--limit", "2001"], &lines[..2001]),
        (&["--limit", "9999"], &lines[..]),
        (&["--ts", "2000001"], &lines[2000..]),
        (&["--from", "ts", "--ts", "1000", "--limit", "3"], &lines[..3]),
        (&["--after-id", "é 7"], &lines[7..]),
        (&["--from", "afterId", "--after-id", "é 2500"], &[]),
    ] {
        let ran = server.run(&[&["replay", "t"], flags].concat(), "");
        assert!(ran.is_success, "{ran:?}");
        assert!(ran.out.lines().eq(expected.iter().copied()), "{flags:?}");
    }
}

#[test]
fn contradictory_flags_are_usage_errors_and_rejections_fail() {
    let server = with_events(1);
    for (flags, reason) in [
        (&["--from", "latest"][..], "[possible values: earliest, ts, afterId]"),
        (&["--from", "ts"], "--ts <TIME>"),
        (&["--from", "afterId"], "--after-id <ID>"),
        (&["--ts", "1", "--after-id", "a"], "cannot be used with"),
        (&["--from", "earliest", "--ts", "1"], "--ts conflicts with the start"),
        (&["--from", "ts", "--after-id", "a", "--ts", "1"], "cannot be used with"),
        (&["--from", "afterId", "--ts", "1"], "--after-id <ID>"),
        (&["--limit", "0"], "--limit <COUNT>"),
        (&["--ts", "-1"], "unexpected argument '-1'"),
    ] {
        let ran = server.run(&[&["replay", "t"], flags].concat(), "");
        ran.failed_with(reason);
        assert_eq!(ran.code, Some(2), "{flags:?}");
    }
    for (arguments, reason) in [
        (&["replay", "nobody"][..], "unknown_topic: "),
        (&["replay", "t", "--after-id", "none"], "unknown_id: "),
    ] {
        let ran = server.run(arguments, "");
        ran.failed_with(reason);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    }
}
