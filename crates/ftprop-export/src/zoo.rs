//! The zoo: packed models that come with the program, by name.
//!
//! A zoo is a folder with the models and `index.toml`, which says what each is, how it was trained and what it reaches. A
//! model is used only if it is the file that the index means: its SHA-256 is compared.

use crate::error::Error;
use ftprop_train::files;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// What stands before the name of a model in a zoo where a path is expected.
pub const PREFIX: &str = "zoo:";
/// The folder, where it is not beside the program.
pub const VARIABLE: &str = "FTPROP_ZOO";
/// What the folder is called, and the file that says what is in it.
const FOLDER: &str = "zoo";
const INDEX: &str = "index.toml";

/// A model of a zoo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it is called.
    pub name: String,
    /// The file's SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The file's size.
    pub bytes: u64,
    /// The recipe that it was trained by, and with what else.
    pub recipe: String,
    /// The seed.
    pub seed: u64,
    /// The data's test part that the accuracy is of.
    pub data: String,
    /// The share of test examples that the packed model is right about, without test-time augmentation.
    pub accuracy: f64,
    /// Of the weights that it was packed from, where they are there to begin training with: their SHA-256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    #[serde(default, rename = "model")]
    models: Vec<Entry>,
}

/// Models in a folder.
pub struct Zoo {
    folder: PathBuf,
    models: Vec<Entry>,
}

impl Zoo {
    /// The zoo that comes with the program: where the environment's `FTPROP_ZOO` says, else `zoo` beside the program or in
    /// a folder above it, else `zoo` here.
    pub fn find() -> Result<Self, Error> {
        if let Some(folder) = std::env::var_os(VARIABLE) {
            return Zoo::open(Path::new(&folder));
        }
        let program = std::env::current_exe().ok();
        // Beside it, in share/ftprop of where it was installed, or at the top of the repository that it was built in.
        let above = program.iter().flat_map(|program| program.ancestors().skip(1).take(3));
        let places = above.flat_map(|folder| [folder.join(FOLDER), folder.join("share/ftprop").join(FOLDER)]);
        let place = places.chain([PathBuf::from(FOLDER)]).find(|folder| folder.join(INDEX).is_file());
        place.map_or(Err(Error::NoZoo), |folder| Zoo::open(&folder))
    }

    /// The zoo in a folder.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(INDEX);
        let wrong = |why: String| Error::NotAModel { path: path.clone(), why };
        let text = String::from_utf8(files::read(&path)?).map_err(|e| wrong(e.to_string()))?;
        let index: Index = toml::from_str(&text).map_err(|e| wrong(e.message().to_string()))?;
        match index.models.iter().find(|model| !is_name(&model.name)) {
            Some(model) => Err(wrong(format!("'{}' is no name of a model", model.name))),
            None => Ok(Zoo { folder: folder.to_path_buf(), models: index.models }),
        }
    }

    /// A new one in a folder, or the one that is there.
    pub fn open_or_new(folder: &Path) -> Result<Self, Error> {
        match folder.join(INDEX).exists() {
            true => Zoo::open(folder),
            false => Ok(Zoo { folder: folder.to_path_buf(), models: Vec::new() }),
        }
    }

    /// Whether it lies in this folder.
    pub fn is_in(&self, folder: &Path) -> bool {
        let place = |path: &Path| std::fs::canonicalize(path).ok();
        place(&self.folder).is_some() && place(&self.folder) == place(folder)
    }

    /// What is in it.
    pub fn models(&self) -> &[Entry] {
        &self.models
    }

    /// A model's file, once it was found to be the one that the index means.
    pub fn model(&self, name: &str) -> Result<PathBuf, Error> {
        let entry = self.entry(name)?;
        sound(self.path(name), &entry.sha256)
    }

    /// The weights that a model was packed from, a checkpoint, once found to be those that the index means.
    pub fn weights(&self, name: &str) -> Result<PathBuf, Error> {
        match &self.entry(name)?.weights {
            Some(expected) => sound(self.weights_path(name), expected),
            None => Err(Error::NoWeights { name: name.into(), recipe: self.entry(name)?.recipe.clone() }),
        }
    }

    fn entry(&self, name: &str) -> Result<&Entry, Error> {
        let known = || self.models.iter().map(|model| model.name.clone()).collect::<Vec<_>>().join(", ");
        let found = self.models.iter().find(|model| model.name == name);
        found.ok_or_else(|| Error::NotInZoo { name: name.into(), known: known() })
    }

    /// Whether a model of this name can be put in: it is one, and is free or may be replaced.
    pub fn check_name(&self, name: &str, replace: bool) -> Result<(), Error> {
        if !is_name(name) {
            return Err(Error::NoName { name: name.into() });
        }
        match self.models.iter().any(|model| model.name == name) && !replace {
            true => Err(Error::InZoo { name: name.into() }),
            false => Ok(()),
        }
    }

    /// Puts a model in, in place of one of the same name, and the weights that it was packed from, where they are to be
    /// there too; `entry` has SHA-256 and size from the bytes.
    pub fn add(&mut self, entry: Entry, model: &[u8], weights: Option<&[u8]>) -> Result<(), Error> {
        self.check_name(&entry.name, true)?;
        std::fs::create_dir_all(&self.folder)
            .map_err(|e| Error::NotAModel { path: self.folder.clone(), why: e.to_string() })?;
        files::write(&self.path(&entry.name), model)?;
        match weights {
            Some(weights) => files::write(&self.weights_path(&entry.name), weights)?,
            // Those of a model that stood here are of no use any more, and the index does not mean them.
            None => drop(std::fs::remove_file(self.weights_path(&entry.name))),
        }
        self.models.retain(|known| known.name != entry.name);
        let (own, bytes, weights) = (sha256(model), model.len() as u64, weights.map(sha256));
        self.models.push(Entry { sha256: own, bytes, weights, ..entry });
        self.models.sort_by(|a, b| a.name.cmp(&b.name));
        let index = Index { models: self.models.clone() };
        let text =
            toml::to_string(&index).map_err(|e| Error::Unwritable { what: "the zoo's index", why: e.to_string() })?;
        Ok(files::write(&self.folder.join(INDEX), text.as_bytes())?)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.ftp"))
    }

    fn weights_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.safetensors"))
    }
}

/// A file, if it has the hash that is expected.
fn sound(path: PathBuf, expected: &str) -> Result<PathBuf, Error> {
    match sha256(&files::read(&path)?) == expected {
        true => Ok(path),
        false => Err(Error::NotAModel { path, why: "it is not the file that the zoo's index means".into() }),
    }
}

/// The file that a path means: `zoo:NAME` is a model of the zoo, anything else is itself.
pub fn resolve(path: &Path) -> Result<PathBuf, Error> {
    match path.to_str().and_then(|text| text.strip_prefix(PREFIX)) {
        Some(name) => Zoo::find()?.model(name),
        None => Ok(path.to_path_buf()),
    }
}

/// The run or checkpoint that a path means to learn from or to begin with: `zoo:NAME` is one of the zoo's, anything else is itself.
pub fn resolve_weights(path: &Path) -> Result<PathBuf, Error> {
    match path.to_str().and_then(|text| text.strip_prefix(PREFIX)) {
        Some(name) => Zoo::find()?.weights(name),
        None => Ok(path.to_path_buf()),
    }
}

/// Whether a name is one that a file can have anywhere.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_index_means_is_given_out() {
        let folder = std::env::temp_dir().join(format!("ftprop-zoo-{}", std::process::id()));
        let entry = |name: &str| Entry {
            name: name.into(),
            sha256: String::new(),
            bytes: 0,
            recipe: "digits".into(),
            seed: 1,
            data: "digits".into(),
            accuracy: 0.9,
            weights: None,
        };
        let mut zoo = Zoo::open_or_new(&folder).unwrap();
        zoo.add(entry("b"), b"second", None).unwrap();
        zoo.add(entry("a-1"), b"abc", None).unwrap();
        zoo.add(entry("b"), b"another", Some(b"weights")).unwrap();
        assert!(zoo.add(entry("../c"), b"", None).is_err() && zoo.add(entry(""), b"", None).is_err());
        assert_eq!(std::fs::read(zoo.weights("b").unwrap()).unwrap(), b"weights");
        assert!(zoo.check_name("b", false).unwrap_err().to_string().contains("already"));
        assert!(zoo.check_name("b", true).is_ok() && zoo.check_name("c", false).is_ok());
        assert!(zoo.weights("a-1").unwrap_err().to_string().contains("digits"));
        let zoo = Zoo::open(&folder).unwrap();
        let names: Vec<&str> = zoo.models().iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["a-1", "b"]);
        // As FIPS 180 has it for these three letters.
        assert!(zoo.models()[0].sha256.starts_with("ba7816bf8f01cfea414140de5dae2223"));
        assert_eq!(std::fs::read(zoo.model("b").unwrap()).unwrap(), b"another");
        std::fs::write(folder.join("b.ftp"), b"altered").unwrap();
        assert!(zoo.model("b").unwrap_err().to_string().contains("not the file"));
        std::fs::write(folder.join("b.safetensors"), b"Weights").unwrap();
        assert!(zoo.weights("b").unwrap_err().to_string().contains("not the file"));
        assert!(zoo.model("c").unwrap_err().to_string().contains("a-1, b"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
