//! Folders that the environment names. One that is empty or relative is passed over: what it leads to would depend on where
//! the program is started, and code that lies there must not run.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder in a variable.
pub(crate) fn folder(variable: &str) -> Option<PathBuf> {
    absolute(std::env::var_os(variable)?)
}

/// The folders in a variable, as in `PATH`.
fn folders(variable: &str) -> Vec<PathBuf> {
    std::env::var_os(variable).as_deref().map(several).unwrap_or_default()
}

/// Where a library of one of these names may be, in the order in which they are tried: first in the folders that the user
/// names, then where the system looks, then where installers put it.
pub(crate) fn library_paths(names: &[&str]) -> Vec<PathBuf> {
    let inside = |folders: Vec<PathBuf>| {
        folders.into_iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)).collect::<Vec<_>>())
    };
    let mut paths: Vec<PathBuf> = inside(named_folders()).collect();
    paths.extend(names.iter().map(PathBuf::from));
    paths.extend(inside(usual_folders()));
    paths
}

/// The folders in which libraries are looked for beside the system's own places.
pub(crate) fn library_folders() -> Vec<PathBuf> {
    [named_folders(), usual_folders()].concat()
}

fn named_folders() -> Vec<PathBuf> {
    folders("FTPROP_CUDA_LIBRARIES")
}

fn usual_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for home in ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder) {
        folders.extend([home.join("lib64"), home.join("bin")]);
    }
    if cfg!(unix) {
        folders.extend(
            ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"]
                .map(PathBuf::from),
        );
    }
    folders
}

/// Whether `FTPROP_CUDA_TRY`, words with commas between them, asks for something that is not the usual way.
pub(crate) fn tries(word: &str) -> bool {
    static WORDS: OnceLock<String> = OnceLock::new();
    let words = WORDS.get_or_init(|| std::env::var("FTPROP_CUDA_TRY").unwrap_or_default());
    words.split(',').any(|one| one.trim() == word)
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
        // The system's places come after the folders that are named, whatever the library is called.
        let paths = library_paths(&["a.so.2", "a.so.1"]);
        let plain = paths.iter().position(|path| path == "a.so.2").unwrap();
        assert!(paths[..plain].iter().all(|path| named_folders().contains(&path.parent().unwrap().to_path_buf())));
        let joined = std::env::join_paths([PathBuf::new(), here.clone(), "cuda".into()]).unwrap();
        assert_eq!(several(&joined), [here]);
    }
}
