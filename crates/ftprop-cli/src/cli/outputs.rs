//! Where results will go, tried before the work that makes them.

use super::solve::data::is_table;
use crate::error::Error;
use ftprop_lab::plot::base_path;
use ftprop_train::files;
use ftprop_train::run::{RunFolder, refuse_own_file};
use std::path::{Path, PathBuf};

/// What a command reads, so that nothing of it is written over.
#[derive(Default)]
pub(super) struct Inputs(Vec<PathBuf>);

/// Endings of what is written here and no data set consists of: in a folder of data only these may be written anew.
const RESULTS: [&str; 6] = ["json", "svg", "ftp", "onnx", "safetensors", "ftpictures"];

impl Inputs {
    pub(super) fn of<'a>(paths: impl IntoIterator<Item = Option<&'a Path>>) -> Self {
        Inputs(paths.into_iter().flatten().map(Path::to_path_buf).collect())
    }

    /// With data that may be the name of a problem.
    pub(super) fn and_data(mut self, name: &str) -> Self {
        self.0.extend(is_table(name).then(|| PathBuf::from(name)));
        self
    }

    /// With a network: its file, and the data of its run.
    pub(super) fn and_model(mut self, model: &Path) -> Self {
        let folder = if model.is_dir() { Some(model) } else { model.parent() };
        // What is wrong with a recipe is said by whoever wants to know what is in it.
        if let Some(Ok(recipe)) = folder.map(|folder| RunFolder::open(folder).and_then(|run| run.recipe())) {
            self.0.extend(recipe.data.path.into_iter().chain(recipe.data.csv.test_file));
        }
        // Of a folder a run's own files are looked after anyway.
        self.0.extend(model.is_file().then(|| model.to_path_buf()));
        self
    }

    fn refuse(&self, output: &Path) -> Result<(), Error> {
        // A name that leads nowhere is nobody's; a link is written through.
        let Ok(real) = output.canonicalize() else { return Ok(()) };
        let result = real.extension().is_some_and(|ending| RESULTS.iter().any(|result| ending == *result));
        let holds = |input: &&PathBuf| {
            input
                .canonicalize()
                .is_ok_and(|input| real == input || (!result && input.is_dir() && real.starts_with(input)))
        };
        match self.0.iter().find(holds).filter(|_| real.is_file()) {
            None => Ok(()),
            Some(input) if input.is_dir() => Err(Error::Other(format!(
                "{} is a file in {}, which is read here; choose another name or folder for what is to be written",
                output.display(),
                input.display()
            ))),
            Some(_) => Err(Error::Other(format!(
                "{} is read here; choose another name or folder for what is to be written",
                output.display()
            ))),
        }
    }
}

/// The two files of a picture.
pub(super) fn pictures(path: &Path) -> Result<[PathBuf; 2], Error> {
    let base = base_path(path)?;
    Ok([".svg", ".png"].map(|ending| {
        let mut whole = base.clone().into_os_string();
        whole.push(ending);
        PathBuf::from(whole)
    }))
}

/// The same as [`try_file`] for the two files of a picture.
pub(super) fn try_picture(path: &Path, inputs: &Inputs) -> Result<(), Error> {
    pictures(path)?.iter().try_for_each(|file| try_file(file, inputs))
}

/// Refuses a file that could not be written, in a folder that is not there or not ours or with a folder in its place, and one
/// that a run lives by or that is read.
pub(super) fn try_file(file: &Path, inputs: &Inputs) -> Result<(), Error> {
    refuse_own_file(file)?;
    inputs.refuse(file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Error::Other(format!("{}: there is no folder {}", file.display(), folder.display())));
    }
    Ok(files::try_writing(file)?)
}

/// The same for what is written without being tried.
pub(super) fn refuse_inputs(file: &Path, inputs: &Inputs) -> Result<(), Error> {
    refuse_own_file(file)?;
    inputs.refuse(file)
}

/// Refuses two results in one file, and one where a new run's own file will be.
pub(super) fn refuse_collisions(files: &[PathBuf], run: Option<&Path>) -> Result<(), Error> {
    let places: Vec<PathBuf> = files.iter().map(|file| place(file)).collect();
    for (at, file) in places.iter().enumerate() {
        if places[..at].contains(file) {
            let shown = files[at].display();
            return Err(Error::Usage(format!("two results would go to {shown}; give one of them another name")));
        }
        if run.is_some_and(|run| file.parent() == Some(place(run).as_path())) && ftprop_train::run::is_own_name(file) {
            return Err(ftprop_train::Error::RunsOwn { path: files[at].clone() }.into());
        }
    }
    Ok(())
}

/// Where a file is or will be, whichever links lead there.
fn place(file: &Path) -> PathBuf {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = || folder.canonicalize().ok().and_then(|folder| Some(folder.join(file.file_name()?)));
    file.canonicalize().ok().or_else(new).unwrap_or_else(|| file.to_path_buf())
}
