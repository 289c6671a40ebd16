//! The program `ftprop`: commands, words for people, progress bars. What it does is in the libraries.

mod board;
mod cli;
mod error;
mod progress;

fn main() -> std::process::ExitCode {
    let program = match cli::Program::from_arguments() {
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
