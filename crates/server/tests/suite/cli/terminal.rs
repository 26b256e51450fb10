//! Runs commands on a terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A command that has ended, and what was on its terminal.
#[derive(Debug)]
pub(crate) struct OnTerminal {
    pub(crate) code: Option<i32>,
    /// What the user typed, stdout and stderr.
    pub(crate) screen: String,
}

/// Runs a command whose input, output and errors are a terminal. The user types `typed`, then ctrl-d.
pub(crate) fn run_on_terminal(mut command: Command, typed: &str) -> OnTerminal {
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&main).expect("it is ours");
    unlockpt(&main).expect("it can be opened");
    let name = ptsname(&main, Vec::new()).expect("it has a name");
    let name = name.to_str().expect("the name is ASCII");
    let terminal = OpenOptions::new().read(true).write(true).open(name).expect("it opens");
    let copy = || Stdio::from(terminal.try_clone().expect("a file can be copied"));
    command.stdin(copy()).stdout(copy()).stderr(copy());
    let mut child = command.spawn().expect("the binary starts");
    // The command holds copies too: they keep the terminal open for as long as it runs.
    drop((command, terminal));
    let mut main = File::from(main);
    main.write_all(typed.as_bytes()).and_then(|()| main.write_all(&[4])).expect("typing works");
    let mut screen = Vec::new();
    let mut block = [0; 4096];
    // Reading fails once the last process has closed the terminal.
    while let Ok(count @ 1..) = main.read(&mut block) {
        screen.extend_from_slice(&block[..count]);
    }
    let code = child.wait().expect("the command exits").code();
    OnTerminal { code, screen: String::from_utf8_lossy(&screen).into_owned() }
}
