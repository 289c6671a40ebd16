//! The program's commands, one file each.

mod bench;
mod eval;
mod export;
mod plot;
mod predict;
mod selftest;
mod separable;
mod solve;
mod summary;
mod train;
mod verify;

use crate::error::Error;
use clap::{Parser, Subcommand};
use ftprop_tensor::Cpu;
use std::process::ExitCode;
use std::sync::Arc;

/// Train, prove and ship deep networks with hard-threshold activations.
#[derive(Parser)]
#[command(name = "ftprop", version, about, long_about = None, after_help = "\
Begin with:
  ftprop train                        train on the built-in digits, in seconds
  ftprop predict runs/digits IMAGE    use what was trained
  ftprop COMMAND --help               everything about a command, with examples")]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Train),
    Eval(eval::Eval),
    Export(export::Export),
    Predict(predict::Predict),
    Summary(summary::Summary),
    Plot(plot::Plot),
    Selftest(selftest::Selftest),
    Separable(separable::Separable),
    Solve(solve::Solve),
    Verify(verify::Verify),
    Bench(bench::Bench),
}

/// Runs the program: exit code 0 if all went well, 1 for an error, 2 for a wrong command line, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(e) => {
            // Also how --help and --version end, with their own exit code.
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match program.command {
        Command::Train(command) => command.run(),
        Command::Eval(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Predict(command) => command.run(),
        Command::Summary(command) => command.run(),
        Command::Plot(command) => command.run(),
        Command::Selftest(command) => command.run(),
        Command::Separable(command) => command.run(),
        Command::Solve(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Bench(command) => command.run(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("ftprop: {error}");
        ExitCode::from(error.exit_code())
    })
}

/// The device that a name means.
fn device(name: &str, threads: usize) -> Result<Arc<Cpu>, Error> {
    match name {
        "auto" | "cpu" => Ok(Arc::new(Cpu::new(threads)?)),
        _ => Err(Error::Device { device: name.into(), why: "known are auto and cpu".into() }),
    }
}

/// Prints to standard output; a reader that has gone away is no error.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A value as JSON, for scripts.
fn say_json<T: serde::Serialize>(value: &T) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::Other(e.to_string()))?;
    say(&text);
    Ok(())
}
