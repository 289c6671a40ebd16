//! Tells the program which commit it is built from, where git can say.

use std::process::Command;

fn main() {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
    };
    // An archive of the sources may lie inside another project's repository.
    let ours = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = git(&["rev-parse", "--short=10", "HEAD"]).filter(|_| ours);
    println!("cargo::rustc-env=FTPROP_BUILT_FROM={}", commit.map_or_else(String::new, |commit| format!(" ({commit})")));
    println!("cargo::rerun-if-changed=build.rs");
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", path]).filter(|_| ours) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}
