//! The binary `prombus`.

mod cli;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Events are many small pieces that one thread makes and another one drops:
/// `docs/decisions/0012-the-hot-path.md`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("prombus: {error}");
            ExitCode::FAILURE
        }
    }
}
