//! `ftprop recipes`

use super::{say, say_json};
use crate::error::Error;
use clap::Args;
use ftprop_train::built_in::{built_in, names, nearest};
use std::process::ExitCode;

/// List the built-in recipes, or print one
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop recipes
  ftprop recipes convnet8-qrelu-ftpsh > mine.toml    and change it as you like
  ftprop train --recipe convnet8-qrelu-ftpsh --data cifar-10-batches-bin")]
pub(super) struct Recipes {
    /// The recipe to print, as TOML
    name: Option<String>,
    /// The names as a JSON list
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

impl Recipes {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        match self.name {
            None if self.json => say_json(&names().collect::<Vec<_>>())?,
            None => names().try_for_each(say)?,
            Some(name) => {
                let text = built_in(&name).ok_or_else(|| no_such(&name))?;
                say(text.trim_end())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn no_such(name: &str) -> Error {
    let meant = nearest(name).map_or_else(String::new, |known| format!("; did you mean {known}?"));
    Error::Other(format!("there is no built-in recipe '{name}'{meant} (ftprop recipes lists them)"))
}
