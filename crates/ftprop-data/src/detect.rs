//! What a path holds, found out from what is there.

use std::fmt;
use std::path::Path;

use crate::source::Source;
use crate::{DataError, cifar, folder, idx, prepared};

/// What was found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What to open it as.
    pub source: Source,
    /// What it is, in words: `a folder of pictures in class folders`.
    pub what: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Source {
    /// Finds out what a path holds: a table (`.csv`, `.tsv`, gzipped or not), CIFAR-10's or CIFAR-100's binary files or
    /// the archive of them, MNIST's or Fashion-MNIST's files, pictures in class folders, or a file of prepared ones.
    ///
    /// MNIST and Fashion-MNIST have files of the same names; `fashion` in the path tells the one from the other.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("ftprop-detect-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("flowers.csv");
    /// use ftprop_data::Source;
    /// std::fs::write(&path, "1,2,iris\n")?;
    /// let found = Source::detect(&path)?;
    /// assert_eq!((found.source, found.what.as_str()), (Source::Csv, "a table"));
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn detect(path: &Path) -> Result<Found, DataError> {
        let about = std::fs::metadata(path).map_err(|why| DataError::Read { path: path.to_owned(), why })?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
        let found = |source, what: &str| Ok(Found { source, what: what.into() });
        if !about.is_dir() {
            let stem = name.strip_suffix(".gz").unwrap_or(&name);
            if stem.ends_with(".csv") || stem.ends_with(".tsv") {
                return found(Source::Csv, "a table");
            }
            if about.is_file() && (stem.ends_with(".tar") || stem.ends_with(".tgz")) {
                match cifar::in_archive(path)? {
                    Some(Source::Cifar10) => return found(Source::Cifar10, "the archive of CIFAR-10"),
                    Some(source) => return found(source, "the archive of CIFAR-100"),
                    None => {}
                }
            }
            if about.is_file() && prepared::is_prepared(path) {
                return found(Source::Prepared, "prepared pictures");
            }
            return Err(DataError::Unrecognised { path: path.to_owned() });
        }
        match cifar::in_folder(path) {
            Some(Source::Cifar10) => return found(Source::Cifar10, "the files of CIFAR-10"),
            Some(source) => return found(source, "the files of CIFAR-100"),
            None => {}
        }
        if idx::in_folder(path) {
            // The folder itself may be called `.`.
            let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let fashion = place.to_string_lossy().to_ascii_lowercase().contains("fashion")
                || idx::in_folder(&path.join("fashion-mnist"))
                || idx::in_folder(&path.join("FashionMNIST"));
            return match fashion {
                true => found(Source::FashionMnist, "the files of Fashion-MNIST"),
                false => found(Source::Mnist, "the files of MNIST"),
            };
        }
        match folder::layout(path) {
            Ok(folder::Layout::Parts { train, test, others }) => {
                let name = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let parts = format!("{} to learn from, {} to measure by", name(&train), name(&test));
                let others: Vec<String> = others.iter().map(|other| name(other)).collect();
                let left = match others.is_empty() {
                    true => String::new(),
                    false => format!(" ({} is left out, and can be measured by its own path)", others.join(" and ")),
                };
                found(Source::Folder, &format!("pictures in class folders, {parts}{left}"))
            }
            Ok(folder::Layout::Classes) => found(Source::Folder, "a folder of pictures in class folders"),
            Err(error @ (DataError::LoosePictures { .. } | DataError::LoneClass { .. })) => Err(error),
            // There is a folder `train`: what lacks is beside it.
            Err(error) if folder::has_train(path) => Err(error),
            Err(_) => Err(DataError::Unrecognised { path: path.to_owned() }),
        }
    }
}
