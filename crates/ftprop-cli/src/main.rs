//! The program `ftprop`: commands, words for people, progress bars. What it does is in the libraries.

mod board;
mod cli;
mod error;
mod progress;

fn main() -> std::process::ExitCode {
    // A limit on the size of files is to be an error with a word, as a full disk is, and not a sudden end.
    #[cfg(unix)]
    // SAFETY: no other thread has begun, and ignoring a signal runs no code.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
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
