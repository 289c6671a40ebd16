//! What `predict` is asked about.

use crate::error::Error;
use ftprop_train::files::FileError;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What standard input is called, and where a table is read from it.
pub(super) const STDIN: &str = "-";
pub(super) const STDIN_PATH: &str = "/dev/stdin";

/// Something to answer.
pub(super) enum Input {
    Picture(PathBuf),
    /// A table in a file, and what it is called.
    Table {
        name: String,
        path: PathBuf,
    },
    /// A name that nothing can be made of, and why.
    Wrong(String, String),
}

/// What a path of the command line stands for: itself, the pictures in a folder, or what standard input names. `tables`
/// says whether the network takes tables, and not pictures.
pub(super) fn inputs(path: &Path, tables: bool) -> Result<Vec<Input>, Error> {
    if path == Path::new(STDIN) {
        let stdin = || Input::Table { name: STDIN.into(), path: STDIN_PATH.into() };
        return if tables { Ok(vec![stdin()]) } else { pictures_from_stdin() };
    }
    if path.is_dir() {
        let mut found = Vec::new();
        collect(path, tables, &mut found)?;
        if found.is_empty() {
            let what = if tables { "no table (.csv, .tsv or gzipped)" } else { "no picture" };
            return Ok(vec![Input::Wrong(path.display().to_string(), format!("{}: it holds {what}", path.display()))]);
        }
        return Ok(found);
    }
    Ok(vec![one(path, tables)])
}

fn one(path: &Path, tables: bool) -> Input {
    match (tables && !ftprop_data::is_picture(path)) || is_table(path) {
        true => Input::Table { name: path.display().to_string(), path: path.to_owned() },
        false => Input::Picture(path.to_owned()),
    }
}

fn is_table(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    stem.ends_with(".csv") || stem.ends_with(".tsv")
}

/// The files of a folder and of the folders in it that the network may take, in the order of their names.
fn collect(folder: &Path, tables: bool, found: &mut Vec<Input>) -> Result<(), Error> {
    let failed = |why| FileError::new("read", folder, why);
    let entries = std::fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    // As in training: what is hidden is the business of whoever hid it, such as a Mac's `._` files.
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    for path in paths.into_iter().filter(|path| !hidden(path)) {
        // A link to a folder may lead back here.
        if path.is_dir() && !path.is_symlink() {
            collect(&path, tables, found)?;
        } else if path.is_file() && (if tables { is_table(&path) } else { ftprop_data::is_picture(&path) }) {
            found.push(one(&path, tables));
        }
    }
    Ok(())
}

fn pictures_from_stdin() -> Result<Vec<Input>, Error> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|why| FileError::new("read", Path::new("standard input"), why))?;
    let found = paths(&bytes).map_err(Error::Other)?;
    // As a folder without pictures is: whoever gave it expects answers.
    Ok(match found.is_empty() {
        true => vec![Input::Wrong(STDIN.into(), "standard input names no picture; give paths, one a line".into())],
        false => found,
    })
}

/// How pictures of the kinds that are read begin.
const PICTURES: [&[u8]; 7] = [b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*"];

/// The pictures that lines name.
fn paths(bytes: &[u8]) -> Result<Vec<Input>, String> {
    const WANTED: &str = "- reads paths of pictures from standard input, one a line";
    if bytes.contains(&0) {
        let what = match PICTURES.iter().any(|begin| bytes.starts_with(begin)) {
            true => "the bytes of a picture: give its path instead of -",
            false => "binary data",
        };
        return Err(format!("{WANTED}, and what came is {what}"));
    }
    let mut found = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.trim_ascii().is_empty() {
            found.push(Input::Picture(path_of(line).ok_or_else(|| format!("{WANTED}, as UTF-8"))?));
        }
    }
    Ok(found)
}

/// A path may be any bytes here.
#[cfg(unix)]
fn path_of(line: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(line)))
}

#[cfg(not(unix))]
fn path_of(line: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(line).ok().map(PathBuf::from)
}
