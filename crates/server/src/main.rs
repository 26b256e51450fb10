//! The binary `prombus`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("prombus: {error}");
            ExitCode::FAILURE
        }
    }
}
