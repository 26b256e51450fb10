//! Runs the drill of `docs/backup.md` as it is written.
//!
//! Every block marked `console` runs in one shell, in order. Lines after a command are its output.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

struct Step {
    line: usize,
    command: String,
    output: Vec<String>,
}

fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut in_example = false;
    for (number, line) in document.lines().enumerate() {
        match (in_example, line) {
            (false, "```console") => in_example = true,
            (false, _) => {}
            (true, "```") => in_example = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => {
                    let (command, output) = (command.to_owned(), Vec::new());
                    steps.push(Step { line: number + 1, command, output });
                }
                None => steps.last_mut().unwrap().output.push(line.to_owned()),
            },
        }
    }
    steps
}

/// Returns `true` if `found` is `expected`, in which `<…>` stands for anything but spaces and quotes.
fn matches(expected: &str, found: &str) -> bool {
    let Some((before, rest)) = expected.split_once('<') else { return expected == found };
    let Some((name, after)) = rest.split_once('>') else { return expected == found };
    let Some(found) = found.strip_prefix(before) else { return false };
    let may_contain = |text: &str| match name {
        "id" => text.len() == 36,
        "ts" | "n" => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
        "kinds" => text.starts_with("\"catalog\":"),
        _ => panic!("an unknown placeholder: {name}"),
    };
    (0..=found.len())
        .filter(|end| found.is_char_boundary(*end))
        .any(|end| may_contain(&found[..end]) && matches(after, &found[end..]))
}

/// Two ports below those that the system gives to clients, which nobody uses.
fn free_ports() -> [u16; 2] {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let start = 20_000 + u16::try_from(std::process::id() % 9000).unwrap();
    let mut ports = (start..30_000).chain(10_000..start).filter(is_free);
    [ports.next().unwrap(), ports.next().unwrap()]
}

/// Puts a `prombus` into `folder` that uses these ports, and waits for the server before it talks to it.
fn install(folder: &Path, [ws, http]: [u16; 2]) {
    let binary = env!("CARGO_BIN_EXE_prombus");
    let script = format!(
        "#!/bin/bash\n\
         ready() {{ until (echo > /dev/tcp/127.0.0.1/{http}) 2>/dev/null; do sleep 0.05; done; }}\n\
         case $1 in\n\
         serve) exec {binary} \"$@\" --ws 127.0.0.1:{ws} --http 127.0.0.1:{http} ;;\n\
         publish|subscribe) ready; exec {binary} \"$@\" --url ws://127.0.0.1:{ws}/ ;;\n\
         verify|restore) exec {binary} \"$@\" ;;\n\
         *) ready; exec {binary} \"$@\" --url http://127.0.0.1:{http} ;;\n\
         esac\n"
    );
    let path = folder.join("prombus");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

const END: &str = "--- end of the output ---";

impl Shell {
    fn start(folder: &Path, programs: &Path) -> Self {
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut child = Command::new("bash")
            .current_dir(folder)
            .env("PATH", path)
            .env("LC_ALL", "C")
            .env_remove("PROMBUS_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn run(&mut self, command: &str) -> Vec<String> {
        writeln!(self.input, "{{ {command}\n}} 2>&1 </dev/null; echo '{END}'").unwrap();
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the shell ended: {lines:?}");
            let line = line.trim_end_matches('\n');
            if line == END {
                return lines;
            }
            lines.push(line.to_owned());
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A failing test leaves no server behind.
        let _ = writeln!(self.input, "kill -KILL $server; exit");
        let _ = self.child.wait();
    }
}

#[test]
fn the_restore_drill_works_as_it_is_documented() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/backup.md");
    let steps = steps(&fs::read_to_string(document).unwrap());
    assert!(steps.len() > 20, "{} steps", steps.len());
    let (folder, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    install(programs.path(), free_ports());
    let mut shell = Shell::start(folder.path(), programs.path());
    for Step { line, command, output } in &steps {
        let found = shell.run(command);
        // What the shell says about jobs that were killed is its own affair.
        let found: Vec<_> = found.iter().filter(|line| !line.contains("Killed")).collect();
        let is_expected = found.len() == output.len()
            && output.iter().zip(&found).all(|(expected, found)| matches(expected, found));
        assert!(
            is_expected,
            "docs/backup.md:{line}: {command}\nexpected {output:#?}\nfound {found:#?}"
        );
    }
}
