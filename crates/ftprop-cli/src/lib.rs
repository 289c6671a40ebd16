//! The program `ftprop`: commands, words for people, progress bars. What it does is in the libraries.
//!
//! It is a library only so that other programs can carry it: the Python package does.

#![deny(missing_docs)]

mod board;
mod cli;
mod error;
mod progress;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

/// Does what a command line asks for, the program's own name first, and gives the exit code. Call it before anything else
/// in the process has begun threads: it may change the environment.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let program = match cli::Program::from_arguments(arguments) {
        Ok(program) => program,
        Err(code) => return code,
    };
    // Runs that share a GPU have a stream each, and streams that share one of the driver's queues wait for each other.
    // It has eight of them unless it is told otherwise before it starts; more make it start a little later.
    const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    if program.trains_several() && std::env::var_os(QUEUES).is_none() {
        // SAFETY: no other thread has begun that could read the environment.
        unsafe { std::env::set_var(QUEUES, "32") };
    }
    program.run()
}
