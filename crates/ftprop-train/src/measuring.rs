//! The data that a trained network is measured on: its own, divided as it was in training, or other data, as a whole.
//!
//! A figure flatters where examples are counted that the network has learned from. So data that comes in one piece is
//! divided only where it is known to be what it was in training; what is not is refused, or measured whole.

use crate::checkpoint::ModelInfo;
use crate::error::Error;
use crate::evaluate::check_data;
use crate::recipe::{DataRecipe, Recipe};
use ftprop_data::{DataMark, Dataset, Known, Overlap, Preprocess, Shape, Source, TableTransform};
use ftprop_nn::engine::Part;
use std::fmt;
use std::path::Path;

/// What is to be measured, and what is known of the network's own data.
pub struct Measuring<'a> {
    /// Where the data are, and of which kind.
    pub data: &'a DataRecipe,
    /// What the network was trained on, as far as other data depend on it.
    pub known: Known,
    /// The shape of its examples.
    pub shape: Shape,
    /// How its pictures are made into inputs; none for a table.
    pub preprocess: Option<Preprocess>,
    /// By which its own data are known again; none where it does not say.
    pub trained_on: Option<&'a DataMark>,
    /// Whether they are its own.
    pub which: WhichData,
    /// What of them.
    pub asked: Asked,
}

/// What of the data is to be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// All of other data in one piece, and else the test part.
    #[default]
    Unseen,
    /// One part.
    Part(Part),
    /// All of data in one piece, what was learned from included.
    All,
}

/// Which data a network is to be measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichData {
    /// Its own, where they were in training.
    Own,
    /// Data that were named, and lie where its own did.
    Named,
    /// Data that were named, and lie elsewhere.
    Other,
}

impl WhichData {
    /// By the place that was named, if one was, and the place of the network's own data, if that is known.
    pub fn of(named: Option<&Path>, own: Option<&Path>) -> Self {
        let Some(named) = named else { return WhichData::Own };
        let place = |path: &Path| std::fs::canonicalize(path).ok();
        match own.and_then(place).is_some_and(|own| place(named) == Some(own)) {
            true => WhichData::Named,
            false => WhichData::Other,
        }
    }
}

/// Data to measure on.
pub struct Measured {
    /// The data; its test part is to be measured unless another was asked for.
    pub dataset: Dataset,
    /// Whether the test part is all of it.
    pub whole: bool,
    /// What a person should hear about it.
    pub note: Option<DataNote>,
}

/// What a person should hear about data that are measured.
#[derive(Clone, Debug, PartialEq)]
pub enum DataNote {
    /// They were named as others, and are the ones that the network was trained on.
    Own,
    /// They may be those that it was trained on, in another form.
    PerhapsOwn {
        /// As many as it was trained on.
        examples: u64,
    },
    /// Some of them the network has learned from.
    Learned(Overlap),
    /// They are not as they were in training, but have a part of their own for measuring.
    Changed {
        /// In words.
        difference: String,
    },
    /// The network does not say which data it was trained on.
    Unknown,
}

impl fmt::Display for DataNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataNote::Own => f.write_str("the network was trained on these data, so their test part alone is measured"),
            DataNote::PerhapsOwn { examples } => write!(
                f,
                "the network was trained on {examples} examples, as many as these: if they are the same ones, the figure \
                 flatters"
            ),
            DataNote::Learned(overlap) => {
                let Overlap { examples, learned, known, .. } = overlap;
                match (overlap.is_exact(), 100.0 * overlap.share()) {
                    (true, _) => write!(f, "{learned} of these {examples} examples are")?,
                    // Of so few a share would say more than is known.
                    (false, _) if *known < FEW => {
                        write!(f, "{learned} of the {known} of these examples that it is known of are")?;
                    }
                    (false, percent) if percent < 1.0 => f.write_str("some of these examples, fewer than 1 %, are")?,
                    (false, percent) => write!(f, "about {percent:.0} % of these examples are")?,
                }
                f.write_str(" among those that the network learned from, so the figure flatters")
            }
            DataNote::Changed { difference } => write!(f, "the data are not as they were in training: {difference}"),
            DataNote::Unknown => f.write_str(
                "the network does not say which examples it was trained on, as older ones do not: if these data have \
                 changed since, or hold examples that it learned from, the figure flatters",
            ),
        }
    }
}

/// Examples of which a share means little.
const FEW: u64 = 20;

/// Whether what is measured holds examples that the network learned from.
fn seen(then: &DataMark, dataset: &Dataset) -> Option<DataNote> {
    let overlap = then.overlap(&dataset.test);
    overlap.is_clear().then_some(DataNote::Learned(overlap))
}

impl<'a> Measuring<'a> {
    /// For a network that was trained by a recipe, which says where the data are.
    pub fn of(recipe: &'a Recipe, info: &'a ModelInfo, which: WhichData, asked: Asked) -> Self {
        Measuring {
            data: &recipe.data,
            known: info.known(),
            shape: info.shape(),
            preprocess: info.preprocess(),
            trained_on: info.origin.data.as_ref(),
            which,
            asked,
        }
    }

    /// Opens the data, and refuses what the network cannot be measured on.
    pub fn open(&self) -> Result<Measured, Error> {
        self.check_kind()?;
        let whole = match self.asked {
            Asked::Unseen => self.which == WhichData::Other,
            Asked::Part(_) => false,
            Asked::All => true,
        };
        let dataset = self.read(whole)?;
        let in_one_piece = dataset.train.shares_examples(&dataset.test);
        if self.asked == Asked::All && !in_one_piece {
            return Err(Error::InParts);
        }
        let built_in = self.data.source == Source::Digits;
        let Some(then) = self.trained_on else {
            let note = (in_one_piece && !built_in).then_some(DataNote::Unknown);
            return Ok(Measured { dataset, whole: whole && in_one_piece, note });
        };
        if !(whole && in_one_piece) {
            let note = compare(self.data, (self.which, self.asked), then, &dataset)?;
            let other =
                self.which == WhichData::Other && self.asked == Asked::Unseen && then.test != dataset.test.mark();
            let note = note.or_else(|| seen(then, &dataset).filter(|_| other));
            return Ok(Measured { dataset, whole: false, note });
        }
        let now = dataset.mark();
        if now.source == then.source && now.whole == then.whole && self.asked == Asked::Unseen {
            let dataset = self.read(false)?;
            return match dataset.mark().test == then.test {
                true => Ok(Measured { dataset, whole: false, note: Some(DataNote::Own) }),
                false => Err(changed(self.data, "divided into parts otherwise".into())),
            };
        }
        let examples = now.whole.map_or(0, |whole| whole.examples);
        let other_form = now.source != then.source && examples == then.train.examples + then.test.examples;
        let note = other_form.then_some(DataNote::PerhapsOwn { examples }).or_else(|| seen(then, &dataset));
        Ok(Measured { dataset, whole, note })
    }

    /// Refuses tables for pictures and pictures for tables, before anything in them is complained about.
    fn check_kind(&self) -> Result<(), Error> {
        let Some(path) = self.data.path.clone() else { return Ok(()) };
        match (self.data.source, &self.known.table) {
            (Source::Csv, None) if self.shape.height * self.shape.width > 1 => Err(Error::NoPicture { path }),
            (Source::Csv | Source::Arrays, _) | (_, None) => Ok(()),
            (_, Some(_)) => Err(Error::NoTable { path }),
        }
    }

    fn read(&self, whole: bool) -> Result<Dataset, Error> {
        let mut data = self.data.clone();
        if let (Some(preprocess), false) = (&self.preprocess, data.source == Source::Csv) {
            if matches!(data.source, Source::Folder | Source::Prepared) {
                data.resize = Some(preprocess.resize);
            }
            if self.shape.height == self.shape.width {
                data.crop = Some(self.shape.height);
            }
        }
        // A packed model has no recipe that says it.
        if data.csv.test_file.is_none() && data.csv.test_fraction.is_none() {
            data.csv.test_fraction = self.trained_on.and_then(DataMark::test_fraction);
        }
        let dataset = data.open_for(self.known.clone(), whole)?;
        check_data(&dataset, self.shape, &self.known.classes)?;
        let edge = |preprocess: Option<Preprocess>| preprocess.map(|p| p.resize);
        let (found, wanted) = (edge(dataset.preprocess()), edge(self.preprocess.clone()));
        match (found, wanted) {
            (Some(found), Some(wanted)) if found != wanted => Err(Error::OtherEdge { found, wanted }),
            _ => Ok(dataset),
        }
    }
}

/// Compares data that are a network's own, or have parts of their own, with what it was trained on, and refuses what cannot
/// be told apart from that.
pub fn compare(
    data: &DataRecipe,
    (which, asked): (WhichData, Asked),
    then: &DataMark,
    dataset: &Dataset,
) -> Result<Option<DataNote>, Error> {
    let now = dataset.mark();
    let in_one_piece = now.whole.is_some();
    let same = match asked {
        Asked::Part(Part::Train | Part::Validation) => then.train == now.train,
        _ => then.test == now.test,
    };
    let Some(difference) = then.difference(&now).filter(|_| !same) else { return Ok(None) };
    match which {
        // The same pictures, prepared or not, have other marks.
        WhichData::Other if then.source != now.source || !in_one_piece => Ok(None),
        WhichData::Named if !in_one_piece => Ok(Some(DataNote::Changed { difference })),
        _ => Err(changed(data, difference)),
    }
}

/// Opens the data for a run that goes on. One from before columns of a table had origins goes on without them.
pub fn open_again(data: &DataRecipe, model: &ModelInfo) -> Result<Dataset, Error> {
    let dataset = data.open()?;
    let has_origins = |table: &TableTransform| table.origins().iter().any(Option::is_some);
    match (&model.table, &dataset.table) {
        (Some(then), Some(now)) if has_origins(now) && !has_origins(then) => data.open_for(model.known(), false),
        _ => Ok(dataset),
    }
}

fn changed(data: &DataRecipe, difference: String) -> Error {
    let path = data.path.clone().unwrap_or_else(|| data.source.name().into());
    Error::NotAsTrained { path, difference }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_data::ColumnKind;
    use std::path::PathBuf;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ftprop-measuring-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn from(source: Source, path: Option<PathBuf>) -> DataRecipe {
        DataRecipe { source, path, ..Recipe::default().data }
    }

    /// A run on a table with times that began before columns had origins.
    #[test]
    fn a_run_goes_on_with_the_columns_that_it_began_with() {
        let folder = folder("times");
        let path = folder.join("times.csv");
        let rows: String = (0..40).map(|i| format!("{},{}\n", 1_700_000_000 + 7 * i, i % 2)).collect();
        std::fs::write(&path, format!("time,kind\n{rows}")).unwrap();
        let data = from(Source::Csv, Some(path));
        let now = ModelInfo::of(&data.open().unwrap());
        let mut then = now.clone();
        let columns = &mut then.table.as_mut().unwrap().columns;
        let ColumnKind::Number { origin, mean, .. } = &mut columns[0].kind else { panic!("{now:?}") };
        assert!(origin.take().is_some());
        *mean = 1_700_000_128.0;
        for info in [now, then] {
            let again = open_again(&data, &info).unwrap();
            assert_eq!(again.table, info.table);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Files of the same names hold one set or the other, and the network knows which.
    #[test]
    fn sets_that_cannot_be_told_apart_are_the_networks_own() {
        let folder = folder("sets");
        for name in
            ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
        {
            std::fs::write(folder.join(name), b"").unwrap();
        }
        for source in [Source::Mnist, Source::FashionMnist] {
            let mut data = from(source, None);
            data.locate_others(&folder).unwrap();
            assert_eq!(data.source, source);
        }
        let mut data = from(Source::Folder, None);
        data.locate_others(&folder).unwrap();
        assert_eq!(data.source, Source::Mnist);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
