//! `prombus completions`.

use std::error::Error;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Arguments;
use super::output::print;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus completions bash > ~/.local/share/bash-completion/completions/prombus
  prombus completions zsh > ~/.zfunc/_prombus        # with fpath+=~/.zfunc before compinit in ~/.zshrc
  prombus completions fish > ~/.config/fish/completions/prombus.fish")]
pub(crate) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Box<dyn Error>> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "prombus", &mut script);
    Ok(print(&script)?)
}
