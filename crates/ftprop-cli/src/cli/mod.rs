//! The program's commands, one file each.

mod bench;
mod data;
mod devices;
mod eval;
mod export;
mod help;
mod import;
mod manual;
mod outputs;
mod plot;
mod predict;
mod prepare;
mod ranks;
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
mod watch;
mod zoo;

use crate::error::Error;
use crate::progress::{LogLevel, complain, set_log_level, tell};
use crate::terminal::Stream;
use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::Isa;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::model::{Model, Which};
use ftprop_train::recipe::Recipe;
use ftprop_train::words::{plain_json, plain_lines};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Train, prove and ship deep networks with hard-threshold activations.
#[derive(Parser)]
#[command(name = "ftprop", version = VERSION, about, long_about = None, after_help = "\
Begin with:
  ftprop train                        train on the built-in digits, in seconds
  ftprop train --data DIR             train on your pictures or a table (.csv)
  ftprop predict runs/digits IMAGE    use what was trained
  ftprop COMMAND --help               everything about a command, with examples

Exit codes: 0 all went well; 1 what the data, the files or the settings say; 2 a wrong command line; 3 verify: part of the
claim is on trust, robust: not every instance was decided; 130 stopped by Ctrl-C, SIGTERM or SIGHUP, or by --minutes, all
saved; 141 whoever read the output has gone.")]
pub(crate) struct Program {
    /// What to tell on standard error beside the result: errors alone, or also how things go
    #[arg(long, global = true, value_enum, default_value = "info", value_name = "LEVEL")]
    log_level: LogLevel,
    #[command(subcommand)]
    command: Command,
    /// The instruction set of the CPU, in float; all but portable give the same bytes
    #[arg(long, global = true, value_enum, default_value = "auto", help_heading = "Everywhere")]
    isa: IsaArg,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IsaArg {
    Auto,
    Avx512,
    Avx2,
    Neon,
    Portable,
}

impl IsaArg {
    fn choose(self) -> Result<(), Error> {
        let isa = match self {
            IsaArg::Auto => return Ok(()),
            IsaArg::Avx512 => Isa::Avx512,
            IsaArg::Avx2 => Isa::Avx2,
            IsaArg::Neon => Isa::Neon,
            IsaArg::Portable => Isa::Portable,
        };
        Ok(isa.choose()?)
    }
}

/// The version, and the commit that it was built from where that is known.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("FTPROP_BUILT_FROM"));

#[derive(Subcommand)]
enum Command {
    Train(train::Train),
    Reproduce(reproduce::Reproduce),
    Recipes(recipes::Recipes),
    Zoo(zoo::Zoos),
    Sweep(sweep::Sweep),
    Eval(eval::Eval),
    Export(export::Export),
    Import(import::Import),
    Predict(predict::Predict),
    Prepare(prepare::Prepare),
    Summary(summary::Summary),
    Plot(plot::Plot),
    Watch(watch::Watch),
    Selftest(selftest::Selftest),
    Devices(devices::Devices),
    Separable(separable::Separable),
    Solve(solve::Solve),
    Robust(robust::Robust),
    Verify(verify::Verify),
    Bench(bench::Bench),
    Completions(manual::Completions),
    Man(manual::Man),
}

impl Program {
    /// What the command line asks for; where there is nothing to run, the exit code after everything was said.
    pub(crate) fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ExitCode> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let parsed = help::fitted(Program::command()).try_get_matches_from(&arguments);
        let understood = |matches| Program::from_arg_matches(&matches).map_err(|e| e.format(&mut Program::command()));
        parsed.and_then(understood).map_err(|e| {
            // The bare program shows what it can do; --help and --version end here, too.
            let bare = e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            if e.use_stderr() && !bare {
                complain(&one_line(&e.to_string(), &arguments));
            } else {
                let printed = e.print();
                if let (false, Err(why)) = (e.use_stderr(), printed) {
                    return Error::output(why).tell();
                }
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

    /// Does it: exit code 0 if all went well, 1 for an error, 2 for a wrong command line, 130 after Ctrl-C, 141 where
    /// whoever read the output has gone.
    pub(crate) fn run(self) -> ExitCode {
        set_log_level(self.log_level);
        let outcome = self.isa.choose().and_then(|()| match self.command {
            Command::Train(command) => command.run(),
            Command::Reproduce(command) => command.run(),
            Command::Recipes(command) => command.run(),
            Command::Zoo(command) => command.run(),
            Command::Sweep(command) => command.run(),
            Command::Eval(command) => command.run(),
            Command::Export(command) => command.run(),
            Command::Import(command) => command.run(),
            Command::Predict(command) => command.run(),
            Command::Prepare(command) => command.run(),
            Command::Summary(command) => command.run(),
            Command::Plot(command) => command.run(),
            Command::Watch(command) => command.run(),
            Command::Selftest(command) => command.run(),
            Command::Devices(command) => command.run(),
            Command::Separable(command) => command.run(),
            Command::Solve(command) => command.run(),
            Command::Robust(command) => command.run(),
            Command::Verify(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(),
        });
        ftprop_cuda::take_notes().iter().for_each(|note| tell(note));
        outcome.unwrap_or_else(|error| error.tell())
    }
}

/// Commands that take the settings of a recipe.
const TAKE_SETTINGS: [&str; 3] = ["train", "sweep", "reproduce"];

/// The key of a recipe that an unknown option may mean, as in `--batch 16` for `--set train.batch=16`.
fn meant_setting(message: &str, arguments: &[OsString]) -> Option<String> {
    let option = message.split_once("unexpected argument '--")?.1.split_once('\'')?.0;
    if !arguments.iter().skip(1).any(|argument| TAKE_SETTINGS.iter().any(|command| argument == command)) {
        return None;
    }
    let name = match option.replace('-', "_").as_str() {
        "learning_rate" => "lr".to_string(),
        "batch_size" => "batch".to_string(),
        other => other.to_string(),
    };
    let defaults = Recipe::defaults().ok()?;
    let tables = defaults.table().iter().filter_map(|(key, value)| Some((key, value.as_table()?)));
    let inner = tables.flat_map(|(key, table)| table.keys().map(move |inner| format!("{key}.{inner}")));
    let all = defaults.table().keys().cloned().chain(inner);
    all.into_iter().find(|key| *key == name || key.ends_with(&format!(".{name}")))
}

/// What the parser says in several lines, in one: the first paragraph, and where to read on.
fn one_line(message: &str, arguments: &[OsString]) -> String {
    let paragraph: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let tip = message.lines().find_map(|line| line.trim().strip_prefix("tip: ")).map(|tip| format!(" ({tip})"));
    let tip = meant_setting(message, arguments)
        .map(|key| format!(" (settings of a recipe are made by --set {key}=VALUE)"))
        .or(tip);
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

/// A trained network, and a word about its file where there is something to say.
fn load(path: &Path, which: Which, cpu: Arc<Cpu>, batch: usize) -> Result<Model, Error> {
    check_choice(path, which)?;
    let model = Model::load(path, which, cpu, batch)?;
    model.notes.iter().for_each(|note| tell(&note.to_string()));
    Ok(model)
}

/// Refuses to choose among networks where there is one.
fn check_choice(path: &Path, which: Which) -> Result<(), Error> {
    match which {
        Which::Last if path.is_file() => Err(Error::Usage(format!(
            "{} is a single network; --checkpoint chooses among those of a run folder",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The most examples that `--batch` asks for at once.
const MOST_BATCH: u64 = 1 << 24;

/// Takes a count of at least 1, and at most so many.
fn counts(most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=most)
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

/// Prints a line to standard output. What does not get through is an error: nobody must take half of an answer for all.
fn say(text: &str) -> Result<(), Error> {
    print_line(&Stream::Out.fitted(&plain_lines(text)))
}

fn print_line(text: &str) -> Result<(), Error> {
    use std::io::Write;
    let mut out = std::io::stdout();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Error::output)
}

/// A value as JSON, for scripts.
fn say_json<T: serde::Serialize>(value: &T) -> Result<(), Error> {
    say_json_text(&serde_json::to_string_pretty(value).map_err(|e| Error::Other(e.to_string()))?)
}

/// A text that is JSON already.
fn say_json_text(text: &str) -> Result<(), Error> {
    print_line(&plain_json(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_is_one_line() {
        let wrong = |arguments: &[&str]| match Program::try_parse_from(arguments) {
            Ok(_) => panic!("{arguments:?} is not wrong"),
            Err(e) => one_line(&e.to_string(), &arguments.iter().map(OsString::from).collect::<Vec<_>>()),
        };
        let message = wrong(&["ftprop", "trian"]);
        assert!(message.contains("'trian'") && message.contains("'train'") && !message.contains('\n'), "{message}");
        for (option, key) in [("--lr", "optimizer.lr"), ("--batch-size", "train.batch"), ("--activation", "activation")]
        {
            let message = wrong(&["ftprop", "train", option, "1"]);
            assert!(message.contains(&format!("--set {key}=VALUE")), "{message}");
        }
        assert!(!wrong(&["ftprop", "eval", "--lr", "1"]).contains("--set"));
        let message = wrong(&["ftprop", "eval"]);
        assert!(message.contains("<MODEL>") && message.contains("--help") && !message.contains('\n'), "{message}");
    }
}
