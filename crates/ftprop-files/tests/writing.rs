//! Files are whole whatever happens around them: other writers, links, pipes, processes that were killed.

use ftprop_files::{clear_leftovers, keep_previous, read, try_writing, write, write_new, write_with};
use std::fs;
use std::io::ErrorKind;
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

/// A folder of the test's own that goes away with it.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn names(folder: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn writing_replaces_the_whole_file() {
    let folder = folder();
    let path = folder.path().join("summary.json");
    write(&path, b"a long first version").unwrap();
    write(&path, b"second").unwrap();
    assert_eq!(read(&path).unwrap(), b"second");
    assert_eq!(names(&folder), ["summary.json"]);
}

#[test]
fn a_failure_in_the_middle_leaves_the_old_file() {
    let folder = folder();
    let path = folder.path().join("checkpoint.safetensors");
    write(&path, b"old").unwrap();
    let error = write_with(&path, |file| {
        file.write_all(&[7; 100_000])?;
        Err(ErrorKind::StorageFull.into())
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(read(&path).unwrap(), b"old");
    assert_eq!(names(&folder), ["checkpoint.safetensors"]);
    let expected = format!("cannot write {}: the disk is full; free some space and try again", path.display());
    assert_eq!(error.to_string(), expected);
}

/// `FTPROP_PAIRS` pairs of writers, 200 unless told otherwise: one content wins whole, and nothing is left.
#[test]
fn writers_of_one_file_do_not_mix() {
    let pairs = std::env::var("FTPROP_PAIRS").map_or(200, |n| n.parse::<usize>().unwrap());
    let folder = folder();
    let path = folder.path().join("model.ftp");
    let contents = [vec![1u8; 20_000], vec![2u8; 30_000]];
    for pair in 0..pairs {
        let together = Barrier::new(3);
        std::thread::scope(|scope| {
            for content in &contents {
                let (together, path) = (&together, &path);
                scope.spawn(move || {
                    together.wait();
                    // In pieces, so that two that shared a file would mix.
                    let written = write_with(path, |file| content.chunks(1000).try_for_each(|c| file.write_all(c)));
                    written.unwrap();
                });
            }
            together.wait();
            if let Ok(seen) = fs::read(&path) {
                assert!(contents.contains(&seen), "a reader saw a mixture in pair {pair}");
            }
        });
        assert!(contents.contains(&read(&path).unwrap()), "pair {pair} left a mixture");
        assert_eq!(names(&folder), ["model.ftp"], "pair {pair} left something");
    }
}

#[test]
fn of_many_that_write_a_new_file_one_succeeds() {
    for _ in 0..50 {
        let folder = folder();
        let path = folder.path().join("recipe.toml");
        let outcomes: Vec<Result<u8, ErrorKind>> = std::thread::scope(|scope| {
            let write = |i: u8| {
                let path = &path;
                scope.spawn(move || write_new(path, &[i; 100]).map(|()| i).map_err(|e| e.kind()))
            };
            (0..4).map(write).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<u8> = outcomes.iter().filter_map(|o| o.ok()).collect();
        assert_eq!(winners.len(), 1, "{outcomes:?}");
        assert!(outcomes.iter().all(|o| matches!(o, Ok(_) | Err(ErrorKind::AlreadyExists))), "{outcomes:?}");
        assert_eq!(read(&path).unwrap(), [winners[0]; 100]);
        assert_eq!(names(&folder), ["recipe.toml"]);
    }
}

#[test]
fn only_old_leftovers_are_removed() {
    let folder = folder();
    let leftover = |name: &str, age: u64| {
        let file = fs::File::create(folder.path().join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    };
    leftover(".ftprop-abcdef.part", 3600);
    leftover(".ftprop-ghijkl.part", 1);
    leftover("mine.part", 3600);
    clear_leftovers(folder.path());
    assert_eq!(names(&folder), [".ftprop-ghijkl.part", "mine.part"]);
    clear_leftovers(&folder.path().join("missing"));
}

#[test]
fn the_previous_file_is_kept_and_the_last_one_stays() {
    let folder = folder();
    let (last, previous) = (folder.path().join("last"), folder.path().join("previous"));
    write(&last, b"first").unwrap();
    // Twice, as after a kill between keeping and writing.
    for _ in 0..2 {
        keep_previous(&last, &previous).unwrap();
        assert_eq!((read(&last).unwrap(), read(&previous).unwrap()), (b"first".to_vec(), b"first".to_vec()));
    }
    write(&last, b"second").unwrap();
    assert_eq!(read(&previous).unwrap(), b"first");
    keep_previous(&last, &previous).unwrap();
    assert_eq!((read(&last).unwrap(), read(&previous).unwrap()), (b"second".to_vec(), b"second".to_vec()));
    assert_eq!(names(&folder), ["last", "previous"]);
}

#[test]
fn trying_leaves_nothing_behind() {
    let folder = folder();
    let path = folder.path().join("certificate.json");
    try_writing(&path).unwrap();
    assert!(names(&folder).is_empty());
    write(&path, b"old").unwrap();
    try_writing(&path).unwrap();
    assert_eq!(read(&path).unwrap(), b"old");
    assert_eq!(try_writing(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
    assert_eq!(try_writing(&folder.path().join("no/file")).unwrap_err().kind(), ErrorKind::NotFound);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::path::{Path, PathBuf};
    use std::process::Command;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn fifo(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// The names that were used aside before are not followed any more, and no name can be guessed.
    #[test]
    fn a_planted_link_leaves_its_target_alone() {
        let folder = folder();
        let (path, victim) = (folder.path().join("model.ftp"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        for name in [".model.ftp.part", ".ftprop-.part", "model.ftp.part", "model.ftp.tmp"] {
            symlink(&victim, folder.path().join(name)).unwrap();
        }
        write(&path, b"new").unwrap();
        assert_eq!(read(&victim).unwrap(), b"precious");
        assert_eq!(read(&path).unwrap(), b"new");
    }

    #[test]
    fn links_are_followed_and_stay() {
        let folder = folder();
        let (link, real) = (folder.path().join("latest.ftp"), folder.path().join("real.ftp"));
        write(&real, b"old").unwrap();
        symlink("real.ftp", &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(read(&real).unwrap(), b"new");
        fs::remove_file(&real).unwrap();
        let nowhere = write(&link, b"newer").unwrap_err().to_string();
        assert!(nowhere.contains("a link that leads nowhere"), "{nowhere}");
        assert_eq!(names(&folder), ["latest.ftp"]);
    }

    #[test]
    fn modes_are_kept_and_new_files_follow_the_umask() {
        let folder = folder();
        let (path, plain) = (folder.path().join("secret.ftp"), folder.path().join("plain"));
        fs::write(&plain, "").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(mode(&path), mode(&plain), "a new file is like any other");
        for kept in [0o600, 0o640, 0o604] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            write(&path, b"newer").unwrap();
            assert_eq!(mode(&path), kept);
        }
    }

    #[test]
    fn pipes_are_written_through_and_stay() {
        let folder = folder();
        let pipe = fifo(&folder);
        try_writing(&pipe).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write(&pipe, &[5; 200_000]).unwrap();
        assert_eq!(reader.join().unwrap(), [5; 200_000]);
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(names(&folder), ["pipe"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_are_written_through_and_stay() {
        write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let full = write(Path::new("/dev/full"), b"no room").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        write(Path::new("/dev/stderr"), b"").unwrap();
    }
}
