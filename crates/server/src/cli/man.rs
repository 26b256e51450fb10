//! `prombus man`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_mangen::Man;

use super::Arguments;
use super::output::print;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus man | man -l -
  prombus man --output ~/.local/share/man/man1     # then: man prombus-subscribe

Without --output, prints the page of prombus itself.")]
pub(crate) struct ManArguments {
    /// Write the pages of all commands into this folder, and create it
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: ManArguments) -> Result<(), Box<dyn Error>> {
    let Some(folder) = arguments.output else {
        let mut page = Vec::new();
        Man::new(Arguments::command()).render(&mut page)?;
        return Ok(print(&page)?);
    };
    let failed = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    // `prombus help` needs no page of its own.
    let command = Arguments::command().disable_help_subcommand(true);
    Ok(clap_mangen::generate_to(command, &folder).map_err(failed)?)
}
