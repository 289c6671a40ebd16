//! The program `ftprop`.

fn main() -> std::process::ExitCode {
    // A limit on the size of files is to be an error with a word, as a full disk is, and not a sudden end.
    #[cfg(unix)]
    // SAFETY: no other thread has begun, and ignoring a signal runs no code.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    ftprop_cli::run(std::env::args_os())
}
