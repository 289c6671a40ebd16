//! The program's commands, one file each.

mod bench;
mod devices;
mod eval;
mod export;
mod import;
mod plot;
mod predict;
mod recipes;
mod reproduce;
mod robust;
mod selftest;
mod separable;
mod solve;
mod study;
mod summary;
mod sweep;
mod train;
mod verify;

use crate::error::Error;
use crate::progress::tell;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use ftprop_tensor::Cpu;
use ftprop_train::choice::DeviceChoice;
use std::process::ExitCode;
use std::sync::Arc;

/// Train, prove and ship deep networks with hard-threshold activations.
#[derive(Parser)]
#[command(name = "ftprop", version, about, long_about = None, after_help = "\
Begin with:
  ftprop train                        train on the built-in digits, in seconds
  ftprop predict runs/digits IMAGE    use what was trained
  ftprop COMMAND --help               everything about a command, with examples")]
pub(crate) struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Train),
    Reproduce(reproduce::Reproduce),
    Recipes(recipes::Recipes),
    Sweep(sweep::Sweep),
    Eval(eval::Eval),
    Export(export::Export),
    Import(import::Import),
    Predict(predict::Predict),
    Summary(summary::Summary),
    Plot(plot::Plot),
    Selftest(selftest::Selftest),
    Devices(devices::Devices),
    Separable(separable::Separable),
    Solve(solve::Solve),
    Robust(robust::Robust),
    Verify(verify::Verify),
    Bench(bench::Bench),
}

impl Program {
    /// What the command line asks for; where there is nothing to run, the exit code after everything was said.
    pub(crate) fn from_arguments() -> Result<Self, ExitCode> {
        Program::try_parse().map_err(|e| {
            // The bare program shows what it can do; --help and --version end here, too.
            let bare = e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            if e.use_stderr() && !bare {
                tell(&format!("ftprop: {}", one_line(&e.to_string())));
            } else {
                let _ = e.print();
            }
            if e.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
        })
    }

    /// Whether it may train several networks at the same time.
    pub(crate) fn trains_several(&self) -> bool {
        match &self.command {
            Command::Reproduce(_) | Command::Sweep(_) => true,
            Command::Train(command) => command.trains_several(),
            Command::Bench(command) => command.trains_several(),
            _ => false,
        }
    }

    /// Does it: exit code 0 if all went well, 1 for an error, 2 for a wrong command line, 130 after Ctrl-C.
    pub(crate) fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Train(command) => command.run(),
            Command::Reproduce(command) => command.run(),
            Command::Recipes(command) => command.run(),
            Command::Sweep(command) => command.run(),
            Command::Eval(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Import(command) => command.run(),
            Command::Predict(command) => command.run(),
            Command::Summary(command) => command.run(),
            Command::Plot(command) => command.run(),
            Command::Selftest(command) => command.run(),
            Command::Devices(command) => command.run(),
            Command::Separable(command) => command.run(),
            Command::Solve(command) => command.run(),
            Command::Robust(command) => command.run(),
            Command::Verify(command) => command.run(),
            Command::Bench(command) => command.run(),
        };
        outcome.unwrap_or_else(|error| {
            tell(&format!("ftprop: {error}"));
            ExitCode::from(error.exit_code())
        })
    }
}

/// What the parser says in several lines, in one: the first paragraph, and where to read on.
fn one_line(message: &str) -> String {
    let paragraph: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let tip = message.lines().find_map(|line| line.trim().strip_prefix("tip: ")).map(|tip| format!(" ({tip})"));
    format!("{text}{}; see ftprop --help or ftprop COMMAND --help", tip.unwrap_or_default())
}

/// The CPU, for commands that know no other device.
fn device(name: &str, threads: usize) -> Result<Arc<Cpu>, Error> {
    match name.parse()? {
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(Arc::new(Cpu::new(threads)?)),
        DeviceChoice::Cuda(_) => {
            let why = "this command runs on the CPU; use auto or cpu".into();
            Err(ftprop_train::Error::Device { device: name.into(), why }.into())
        }
    }
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_string()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

/// Prints to standard output. A reader that has gone away is no error, and words that cannot be printed are lost.
fn say(text: &str) {
    let _ = print_line(text);
}

/// A value as JSON, for scripts, which must know when it did not get through.
fn say_json<T: serde::Serialize>(value: &T) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::Other(e.to_string()))?;
    print_line(&text).map_err(|e| Error::Other(format!("cannot write to standard output: {e}")))
}

fn print_line(text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_one_line() {
        let wrong = |arguments: &[&str]| match Program::try_parse_from(arguments) {
            Ok(_) => panic!("{arguments:?} is not wrong"),
            Err(e) => one_line(&e.to_string()),
        };
        let message = wrong(&["ftprop", "trian"]);
        assert!(message.contains("'trian'") && message.contains("'train'") && !message.contains('\n'), "{message}");
        let message = wrong(&["ftprop", "eval"]);
        assert!(message.contains("<MODEL>") && message.contains("--help") && !message.contains('\n'), "{message}");
    }
}
