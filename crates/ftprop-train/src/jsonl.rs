//! Files of one JSON value a line, which a run appends to while others read them.

use crate::error::Error;
use crate::files;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// All values. A last line without its end is one that a killed run, or one still at work, was writing; it does not
/// count. `what` says in an error what a line should be.
pub fn read<T: DeserializeOwned>(path: &Path, what: &str) -> Result<Vec<T>, Error> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = files::read_text(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .enumerate()
        .map(|(i, line)| {
            serde_json::from_str(line).map_err(|e| Error::Line {
                path: path.to_path_buf(),
                line: i + 1,
                what: what.to_string(),
                why: e.to_string(),
            })
        })
        .collect()
}

/// Adds a line.
pub fn append<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    let line = serde_json::to_string(value)
        .map_err(|e| Error::Unwritable { what: format!("a line of {}", path.display()), why: e.to_string() })?;
    Ok(files::append_line(path, &line)?)
}

/// Drops everything from the first value that is not to be kept, or the first line that is none: a killed run may
/// have recorded, or begun to record, what it will now go through again. Gives back what is left.
pub fn cut<T: DeserializeOwned>(path: &Path, keep: impl Fn(&T) -> bool) -> Result<Vec<T>, Error> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = files::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let parsed = text.lines().map_while(|line| Some((line, serde_json::from_str::<T>(line).ok()?)));
    let (lines, kept): (Vec<&str>, Vec<T>) = parsed.take_while(|(_, value)| keep(value)).unzip();
    let whole: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    if whole.as_bytes() != bytes {
        files::write(path, whole.as_bytes())?;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_up_to_the_first_that_is_not_wanted_or_whole() {
        let folder = std::env::temp_dir().join(format!("ftprop-jsonl-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("numbers.jsonl");
        let read_all = || read::<u32>(&path, "a number");
        assert!(read_all().unwrap().is_empty());
        assert!(cut(&path, |_: &u32| true).unwrap().is_empty());
        for value in 1..=3 {
            append(&path, &value).unwrap();
        }
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "4").unwrap();
        assert_eq!(read_all().unwrap(), [1, 2, 3]);
        assert_eq!(cut(&path, |value: &u32| *value < 3).unwrap(), [1, 2]);
        assert_eq!(read_all().unwrap(), [1, 2]);
        std::fs::write(&path, "1\n[\n2\n").unwrap();
        let message = read_all().unwrap_err().to_string();
        assert!(message.contains("numbers.jsonl:2: not a number"), "{message}");
        assert_eq!(cut(&path, |_: &u32| true).unwrap(), [1]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
