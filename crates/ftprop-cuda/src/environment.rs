//! Folders that the environment names. One that is empty or relative is passed over: what it leads to would depend on where
//! the program is started, and code that lies there must not run.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The folder in a variable.
pub(crate) fn folder(variable: &str) -> Option<PathBuf> {
    absolute(std::env::var_os(variable)?)
}

/// The folders in a variable, as in `PATH`.
pub(crate) fn folders(variable: &str) -> Vec<PathBuf> {
    std::env::var_os(variable).as_deref().map(several).unwrap_or_default()
}

fn absolute(value: OsString) -> Option<PathBuf> {
    Some(PathBuf::from(value)).filter(|path| path.is_absolute())
}

fn several(value: &OsStr) -> Vec<PathBuf> {
    std::env::split_paths(value).filter(|path| path.is_absolute()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_folders_count() {
        for relative in ["", ".", "cuda", "./cuda", "../cuda"] {
            assert_eq!(absolute(relative.into()), None, "{relative:?}");
            assert!(several(OsStr::new(relative)).is_empty(), "{relative:?}");
        }
        let here = std::env::temp_dir();
        assert_eq!(absolute(here.clone().into()), Some(here.clone()));
        let joined = std::env::join_paths([PathBuf::new(), here.clone(), "cuda".into()]).unwrap();
        assert_eq!(several(&joined), [here]);
    }
}
