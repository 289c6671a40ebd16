//! Finding run folders: those that are named, and those in folders that are, such as a study's.

use crate::Error;
use ftprop_train::run::RunFolder;
use std::path::{Path, PathBuf};

/// The most runs on one page.
pub(super) const MOST: usize = 200;
/// How many folders down from one that is named runs are looked for; those of a sweep are four down.
const DEEPEST: usize = 5;
/// The most folders that are looked into for one that is named: somebody may name their home.
const MOST_LOOKED_INTO: usize = 5000;

/// The run folders at and below a path, folder by folder and by name. What is in a run's folder is none.
pub(super) fn runs_at(path: &Path) -> Vec<PathBuf> {
    let mut found = Found::default();
    found.look(path, DEEPEST);
    found.runs
}

/// Refuses a path at which there are no runs and, as it looks, never will be. An empty folder waits for them, as does one
/// with an empty folder of runs in it.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    if !path.is_dir() {
        // Says what is wrong with it.
        RunFolder::open(path)?;
    }
    let mut found = Found::default();
    found.look(path, DEEPEST);
    let waits = !found.any_file || path.join("runs").is_dir();
    if found.runs.is_empty() && !waits { Err(Error::NoRuns { path: path.to_path_buf() }) } else { Ok(()) }
}

/// What there is at a path.
#[derive(Default)]
struct Found {
    runs: Vec<PathBuf>,
    /// Whether there is anything but folders.
    any_file: bool,
    looked_into: usize,
}

impl Found {
    fn look(&mut self, path: &Path, deeper: usize) {
        if self.runs.len() >= MOST || self.looked_into >= MOST_LOOKED_INTO {
            return;
        }
        self.looked_into += 1;
        if path.join("recipe.toml").is_file() {
            self.runs.push(path.to_path_buf());
            return;
        }
        let mut inside: Vec<PathBuf> =
            std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        inside.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
        inside.sort();
        for path in inside {
            if !path.is_dir() {
                self.any_file = true;
            } else if deeper > 0 {
                // A link to a run is a run; others may lead in a circle.
                self.look(&path, if path.is_symlink() { 0 } else { deeper - 1 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn runs_are_found_in_the_folders_of_studies() {
        let temp = std::env::temp_dir().join(format!("ftprop-find-{}", std::process::id()));
        let _ = fs::remove_dir_all(&temp);
        let run = |path: &str| {
            fs::create_dir_all(temp.join(path)).unwrap();
            fs::write(temp.join(path).join("recipe.toml"), "").unwrap();
        };
        let found = |path: &str| -> Vec<String> {
            let inside = |run: PathBuf| run.strip_prefix(temp.join(path)).unwrap().display().to_string();
            runs_at(&temp.join(path)).into_iter().map(inside).collect()
        };
        run("sweep/runs/small/layer_loss-hinge/seed-1");
        run("sweep/runs/small/layer_loss-hinge/seed-2");
        run("sweep/runs/bare/seed-1");
        // What a run's folder holds is its own.
        run("sweep/runs/bare/seed-1/more");
        let all = ["runs/bare/seed-1", "runs/small/layer_loss-hinge/seed-1", "runs/small/layer_loss-hinge/seed-2"];
        assert_eq!(found("sweep"), all);
        assert_eq!(found("sweep/runs"), all.map(|run| run.strip_prefix("runs/").unwrap()));
        assert_eq!(found("sweep/runs/bare/seed-1"), [""]);
        run("a/b/c/d/e/f/too-deep");
        assert_eq!(found("a"), [""; 0]);
        #[cfg(unix)]
        {
            fs::create_dir_all(temp.join("linked")).unwrap();
            std::os::unix::fs::symlink(temp.join("sweep/runs/bare/seed-1"), temp.join("linked/run")).unwrap();
            std::os::unix::fs::symlink(temp.join("linked"), temp.join("linked/circle")).unwrap();
            assert_eq!(found("linked"), ["run"]);
        }

        fs::create_dir_all(temp.join("empty")).unwrap();
        fs::write(temp.join("empty/.hidden"), "").unwrap();
        fs::create_dir_all(temp.join("begun/runs")).unwrap();
        fs::write(temp.join("begun/report.md"), "").unwrap();
        fs::create_dir_all(temp.join("other")).unwrap();
        fs::write(temp.join("other/picture.png"), "").unwrap();
        for path in ["sweep", "sweep/runs", "sweep/runs/bare/seed-1", "empty", "begun", "begun/runs"] {
            assert!(check(&temp.join(path)).is_ok(), "{path}");
        }
        for (path, says) in [("other", "holds no runs"), ("other/picture.png", "it is a file"), ("none", "none")] {
            let said = check(&temp.join(path)).unwrap_err().to_string();
            assert!(said.contains(says) && said.contains(path) && said.lines().count() == 1, "{said}");
        }
        fs::remove_dir_all(&temp).unwrap();
    }
}
