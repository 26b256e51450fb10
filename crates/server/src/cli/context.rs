//! `prombus context`: named servers.

use std::error::Error;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::contexts::{Context, ContextName, Contexts, ContextsFile};
use super::output::print;
use super::server_url::ServerUrl;
use super::table::Table;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  prombus context add local --url http://127.0.0.1:8083
  prombus context add prod --url https://bus.example.com --token-file ~/.prombus-token --use
  prombus context use local
  prombus topics --context prod

A command takes its server from --url or --context, else from PROMBUS_URL, else from PROMBUS_CONTEXT, else
from the current context. The token of a context is sent to the server of that context only. Contexts are
stored in $XDG_CONFIG_HOME/prombus/contexts.toml or ~/.config/prombus/contexts.toml, which only its owner
can read.")]
pub(crate) struct ContextArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the contexts; * marks the current one
    List(PrintArguments),
    /// Add a context
    Add(AddArguments),
    /// Make a context the current one
    Use {
        /// Name of the context
        name: ContextName,
    },
    /// Show a context, by default the current one; never prints its token
    Show {
        /// Name of the context
        name: Option<ContextName>,
        #[command(flatten)]
        print: PrintArguments,
    },
    /// Remove a context
    Remove {
        /// Name of the context
        name: ContextName,
    },
}

#[derive(clap::Args)]
struct AddArguments {
    /// Name of the context
    name: ContextName,
    /// URL of the server: http, https, ws or wss
    #[arg(long, value_name = "URL")]
    url: String,
    /// Authentication token, or - to read it from stdin, where other users cannot see it
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// File whose first line is the token; read each time it is needed
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// PEM file of CA certificates to trust for wss and https, in addition to the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Make it the current context
    #[arg(long = "use")]
    selects: bool,
    /// Replace an existing context of this name
    #[arg(long)]
    replace: bool,
}

#[derive(clap::Args)]
struct PrintArguments {
    /// Print JSON; the default when stdout is not a terminal
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: ContextArguments) -> Result<(), Box<dyn Error>> {
    let file = ContextsFile::locate()?;
    match arguments.action {
        Action::List(print) => list(&file.read()?, &print),
        Action::Add(add) => Ok(add.run(&file)?),
        Action::Use { name } => Ok(file.change(|contexts| contexts.select(&name))?),
        Action::Show { name, print } => show(&file.read()?, name, &print),
        Action::Remove { name } => {
            if file.change(|contexts| contexts.remove(&name))? {
                eprintln!(
                    "prombus: {name} was the current context; commands now use the default server, or name \
                     another with `prombus context use`"
                );
            }
            Ok(())
        }
    }
}

impl AddArguments {
    fn run(self, file: &ContextsFile) -> Result<(), String> {
        ServerUrl::parse(&self.url).map_err(|error| format!("--url {error}"))?;
        if self.url.contains('@') {
            return Err("--url: credentials in the URL are not supported; use --token".to_owned());
        }
        let absolute = |path: Option<PathBuf>| path.map(std::path::absolute).transpose();
        let files =
            absolute(self.token_file).and_then(|token| Ok((token, absolute(self.ca_file)?)));
        let (token_file, ca_file) = files.map_err(|error| error.to_string())?;
        let token = match self.token.as_deref() {
            Some("-") => Some(token_from_stdin()?),
            _ => self.token,
        };
        if token.as_deref() == Some("") {
            return Err("the token is empty".to_owned());
        }
        let (name, path) = (self.name, file.path().display());
        let context = Context { url: self.url, token, token_file, ca_file };
        file.change(|contexts| {
            if contexts.contains(&name) && !self.replace {
                return Err(format!("{path} has a context {name}; --replace replaces it"));
            }
            contexts.insert(name.clone(), context);
            if self.selects { contexts.select(&name) } else { Ok(()) }
        })?;
        if !self.selects {
            eprintln!(
                "prombus: added {name}; `prombus context use {name}` makes it the current one"
            );
        }
        Ok(())
    }
}

fn token_from_stdin() -> Result<String, String> {
    if io::stdin().is_terminal() {
        eprintln!("prombus: type or paste the token, then press enter");
    }
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(|error| format!("cannot read the token: {error}"))?;
    Ok(line.trim().to_owned())
}

fn list(contexts: &Contexts, arguments: &PrintArguments) -> Result<(), Box<dyn Error>> {
    if arguments.json || !io::stdout().is_terminal() {
        let lines = contexts.iter().map(|(name, context)| json_line(contexts, name, context));
        return Ok(print(lines.collect::<String>().as_bytes())?);
    }
    let mut table = Table::new(&["", "NAME", "URL", "TOKEN", "CA FILE"]);
    for (name, context) in contexts.iter() {
        let marker = if contexts.current() == Some(name) { "*" } else { "" };
        let ca_file =
            context.ca_file.as_ref().map_or("-".into(), |file| file.display().to_string());
        let row = [marker, &name.to_string(), &context.url, &token_source(context), &ca_file];
        table.push(row.map(ToOwned::to_owned).to_vec());
    }
    Ok(print(table.render(5).as_bytes())?)
}

fn show(
    contexts: &Contexts,
    name: Option<ContextName>,
    arguments: &PrintArguments,
) -> Result<(), Box<dyn Error>> {
    let current = contexts.current().cloned();
    let name =
        name.or(current).ok_or("no context is current; `prombus context use` selects one")?;
    let context = contexts.get(&name)?;
    if arguments.json || !io::stdout().is_terminal() {
        return Ok(print(json_line(contexts, &name, context).as_bytes())?);
    }
    let mut table = Table::new(&["CONTEXT", &name.to_string()]);
    table.push(vec!["url".to_owned(), context.url.clone()]);
    table.push(vec!["token".to_owned(), token_source(context)]);
    if let Some(file) = &context.ca_file {
        table.push(vec!["ca_file".to_owned(), file.display().to_string()]);
    }
    let is_current = contexts.current() == Some(&name);
    table.push(vec!["current".to_owned(), if is_current { "yes" } else { "no" }.to_owned()]);
    Ok(print(table.render(2).as_bytes())?)
}

/// Says where the token comes from, not what it is.
fn token_source(context: &Context) -> String {
    match (&context.token, &context.token_file) {
        (Some(_), _) => "stored".to_owned(),
        (None, Some(file)) => file.display().to_string(),
        (None, None) => "-".to_owned(),
    }
}

fn json_line(contexts: &Contexts, name: &ContextName, context: &Context) -> String {
    let line = json!({
        "name": name,
        "url": context.url,
        "current": contexts.current() == Some(name),
        "has_token": context.token.is_some() || context.token_file.is_some(),
        "token_file": context.token_file,
        "ca_file": context.ca_file,
    });
    format!("{line}\n")
}
