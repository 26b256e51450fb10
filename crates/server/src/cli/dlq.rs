//! `prombus dlq`: dead letters.
//!
//! - `list`, `show`: what there is; `letter` is how they are printed
//! - `redrive`, `drop`: what is done with them; `selection` says with which, page by page

mod drop;
mod letter;
mod list;
mod redrive;
mod selection;
mod show;

use std::error::Error;

use clap::Subcommand;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus dlq list orders.created
  prombus dlq show orders.created 0198c0de-0000-7000-8000-000000000000
  prombus dlq redrive orders.created --group billing
  prombus dlq drop orders.created --id 0198c0de-0000-7000-8000-000000000000

TOPIC is the topic that the events came from. Its dead letters are events of the topic dlq.TOPIC, which other
commands, such as prombus subscribe, take as well.")]
pub(crate) struct DlqArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the dead letters of a topic
    List(list::ListArguments),
    /// Show the dead letters of one event in full
    Show(show::ShowArguments),
    /// Deliver dead letters again, each to the group that failed
    Redrive(redrive::RedriveArguments),
    /// Give up dead letters: they are no longer listed and cannot be redriven
    Drop(drop::DropArguments),
}

pub(crate) async fn run(arguments: DlqArguments) -> Result<(), Box<dyn Error>> {
    match arguments.action {
        Action::List(arguments) => list::run(arguments).await,
        Action::Show(arguments) => show::run(arguments).await,
        Action::Redrive(arguments) => redrive::run(arguments).await,
        Action::Drop(arguments) => drop::run(arguments).await,
    }
}
