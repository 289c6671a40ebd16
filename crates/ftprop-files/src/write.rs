//! Replacing a file as a whole.
//!
//! The new content goes into a file of a random name beside the destination, which is opened exclusively: a link that
//! somebody planted is not followed, and two writers never share one. Then it is renamed, so the last of several writers
//! wins and every reader finds one whole content. What is replaced keeps its mode; a new file's is as the umask says.
//!
//! A destination that is a link is followed, as a shell's `>` does: the link stays and what it leads to is replaced. A link
//! that leads nowhere is refused. Devices, pipes and sockets cannot be replaced, so they are written through: nothing else
//! could be meant by `/dev/stdout`.

use crate::{FileError, sync_folder_of};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::NamedTempFile;

/// What names of unfinished files begin and end with.
const UNFINISHED: (&str, &str) = (".ftprop-", ".part");
/// A file that nobody has written to for so long was left by a process that was killed.
const LEFT: Duration = Duration::from_secs(60);

/// Where bytes go.
enum Destination {
    /// A file that is replaced, or a new one.
    File { path: PathBuf, mode: Option<Permissions> },
    /// Something that cannot be replaced.
    Through(Box<dyn Write>),
}

/// Replaces the file at `path` by `bytes`, durably: after this returns, the new content survives a power cut.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_with(path, |file| file.write_all(bytes))
}

/// As [`write()`], for content that is produced piece by piece. If `produce` fails, `path` keeps its old content.
pub fn write_with(path: &Path, produce: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
    let written = destination(path).and_then(|destination| match destination {
        Destination::File { path, mode } => {
            let file = unfinished(&path, mode, produce)?;
            file.persist(&path).map_err(|e| e.error)?;
            sync_folder_of(&path)
        }
        Destination::Through(mut stream) => {
            produce(&mut *stream)?;
            stream.flush()
        }
    });
    written.map_err(|error| FileError::new("write", path, error))
}

/// As [`write()`], for its owner alone, whatever the mode was.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    #[cfg(unix)]
    let mode = Some(std::os::unix::fs::PermissionsExt::from_mode(0o600));
    #[cfg(not(unix))]
    let mode = None;
    let written = unfinished(path, mode, |file| file.write_all(bytes))
        .and_then(|file| file.persist(path).map_err(|e| e.error))
        .and_then(|_| sync_folder_of(path));
    written.map_err(|error| FileError::new("write", path, error))
}

/// As [`write()`], but only where there is nothing of this name yet: of several writers exactly one succeeds, the others
/// fail with [`ErrorKind::AlreadyExists`].
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let written = unfinished(path, None, |file| file.write_all(bytes))
        .and_then(|file| file.persist_noclobber(path).map_err(|e| e.error))
        .and_then(|_| sync_folder_of(path));
    written.map_err(|error| FileError::new("write", path, error))
}

/// Gives the file at `path` a second name, `previous`, which whatever had that name loses. The file stays where it is for
/// the next writer to replace.
pub fn keep_previous(path: &Path, previous: &Path) -> Result<(), FileError> {
    let (begin, end) = UNFINISHED;
    let folder = folder_of(previous);
    let linked = tempfile::Builder::new().prefix(begin).suffix(end).make_in(folder, |aside| fs::hard_link(path, aside));
    let kept = match linked {
        Ok(link) => {
            // Where both names are of one file already, a rename does nothing; then dropping the link removes it.
            fs::rename(link.path(), previous)
        }
        // Some file systems have no second names. Then there is a moment without the first.
        Err(_) => fs::rename(path, previous),
    };
    kept.map_err(|error| FileError::new("keep", path, error))
}

/// Finds out whether `path` could be written, before the work that makes its content. Nothing is left behind.
pub fn try_writing(path: &Path) -> Result<(), FileError> {
    let tried = match fs::metadata(path) {
        // Opening a pipe would wait for its reader, and closing it would end what the reader reads.
        Ok(found) if !found.is_file() && !found.is_dir() => Ok(()),
        _ => destination(path).and_then(|destination| match destination {
            Destination::File { path, .. } => unfinished(&path, None, |_| Ok(())).map(drop),
            Destination::Through(_) => Ok(()),
        }),
    };
    tried.map_err(|error| FileError::new("write", path, error))
}

/// Removes what processes that were killed while they wrote left in a folder. Failures are passed over: what stays takes
/// room and does no harm.
pub fn clear_leftovers(folder: &Path) {
    let old = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
        modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > LEFT))
    };
    let (begin, end) = UNFINISHED;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let unfinished = name.to_str().is_some_and(|name| name.starts_with(begin) && name.ends_with(end));
        if unfinished && old(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn destination(path: &Path) -> io::Result<Destination> {
    if let Some(stream) = standard_stream(path) {
        return Ok(Destination::Through(stream));
    }
    let found = match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound && path.is_symlink() => {
            return Err(io::Error::other("it is a link that leads nowhere; remove it, or make what it leads to"));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Ok(Destination::File { path: path.to_path_buf(), mode: None });
        }
        found => found?,
    };
    if found.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    // What is write-protected stays as it is, although its folder would let it be replaced.
    let opened = OpenOptions::new().write(true).open(path)?;
    if found.is_file() {
        Ok(Destination::File { path: fs::canonicalize(path)?, mode: Some(found.permissions()) })
    } else {
        Ok(Destination::Through(Box::new(BufWriter::new(opened))))
    }
}

/// Whether a path names the process's standard output, which then has no room for words about the file.
pub fn is_standard_output(path: &Path) -> bool {
    cfg!(unix) && ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// The process's own streams. Opened again by their names they would begin anew where they lead to a file.
fn standard_stream(path: &Path) -> Option<Box<dyn Write>> {
    let errors = || cfg!(unix) && ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"].iter().any(|n| path == Path::new(n));
    if is_standard_output(path) {
        return Some(Box::new(io::stdout()));
    }
    errors().then(|| Box::new(io::stderr()) as Box<dyn Write>)
}

/// The content in a file of its own beside `path`, on the disk.
fn unfinished(
    path: &Path,
    mode: Option<Permissions>,
    produce: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<NamedTempFile> {
    let (begin, end) = UNFINISHED;
    let mut builder = tempfile::Builder::new();
    builder.prefix(begin).suffix(end);
    // One that replaces a file is its owner's alone until it has that file's mode.
    #[cfg(unix)]
    if mode.is_none() {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(Permissions::from_mode(0o666));
    }
    let mut file = BufWriter::new(builder.tempfile_in(folder_of(path))?);
    produce(&mut file)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    finish(file.as_file(), mode)?;
    Ok(file)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn finish(file: &File, mode: Option<Permissions>) -> io::Result<()> {
    if let Some(mode) = mode {
        file.set_permissions(mode)?;
    }
    file.sync_all()
}
