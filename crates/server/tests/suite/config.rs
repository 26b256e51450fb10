//! The configuration, through its public interface.

mod defaults;
mod errors;
mod every_key;
mod precedence;
mod secrets;

use std::path::{Path, PathBuf};

use prombus_server::config::{Config, ConfigError, Sources};

fn set(assignments: &[&str]) -> Sources {
    Sources { set: assignments.iter().map(|&text| text.to_owned()).collect(), ..Sources::default() }
}

fn environment(variables: &[(&str, &str)]) -> Sources {
    let variables = variables.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    Sources { environment: variables, ..Sources::default() }
}

fn file(dir: &Path, text: &str) -> (Sources, PathBuf) {
    let path = dir.join("own.toml");
    std::fs::write(&path, text).expect("the directory exists");
    (Sources { file: Some(path.clone()), ..Sources::default() }, path)
}

fn loaded(sources: &Sources) -> Config {
    Config::load(sources).unwrap_or_else(|error| panic!("{error}"))
}

fn rejected(sources: &Sources) -> ConfigError {
    Config::load(sources).expect_err("the configuration is rejected")
}
