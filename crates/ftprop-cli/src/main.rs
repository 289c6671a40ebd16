//! The program `ftprop`.

fn main() -> std::process::ExitCode {
    ftprop_cli::run(std::env::args_os())
}
