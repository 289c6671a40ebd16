//! `ftprop completions` and `ftprop man`: what packagers want, made from the same description as `--help`.

use super::Program;
use crate::error::Error;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use ftprop_train::files;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print what makes a shell complete ftprop's commands and options
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop completions bash > ~/.local/share/bash-completion/completions/ftprop
  ftprop completions zsh > ~/.zfunc/_ftprop
  ftprop completions fish > ~/.config/fish/completions/ftprop.fish")]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Program::command(), "ftprop", &mut text);
        super::say(String::from_utf8_lossy(&text).trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Write manual pages, one for each command
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop man --out ~/.local/share/man/man1 && man ftprop-train")]
pub(super) struct Man {
    /// The folder for ftprop.1, ftprop-train.1 and so on; it is made if need be
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Man {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        files::create_folder(&self.out)?;
        let mut program = Program::command();
        program.build();
        let mut pages = vec![("ftprop".to_string(), program.clone())];
        let own = program.get_subcommands().filter(|command| command.get_name() != "help");
        pages.extend(own.map(|command| (format!("ftprop-{}", command.get_name()), command.clone())));
        for (name, command) in &pages {
            let mut page = Vec::new();
            clap_mangen::Man::new(command.clone())
                .title(name)
                .render(&mut page)
                .map_err(|e| Error::Other(e.to_string()))?;
            files::write(&self.out.join(format!("{name}.1")), &page)?;
        }
        super::say(&format!("{} pages in {}", pages.len(), self.out.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
