//! What `solve`, `separable` and `verify` are asked about: tables, built-in problems, and digits from data sets.

use crate::error::Error;
use ftprop_data::{DataError, Options, Source, Split};
use ftprop_search::{Labelled, Points, Problem, ProblemName, SearchError};
use ftprop_train::files::FileError;
use ftprop_train::searched::Origin;
use ftprop_train::words::plain;
use std::path::Path;

/// The problem of a name: a built-in one, or a CSV file.
pub(in crate::cli) fn problem(
    name: &str,
    path: Option<&Path>,
    test: Option<&Path>,
    seed: u64,
) -> Result<(Problem, Origin), Error> {
    if is_table(name) {
        let train = table(Path::new(name), Labelled::from_csv)?;
        let test = test.map(|test| table(test, |text| Labelled::test_from_csv(text, &train))).transpose()?;
        let file = name.strip_suffix(".gz").unwrap_or(name);
        let label = Path::new(file).file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy());
        return Ok((Problem::new(plain(&label), train, test)?, Origin::Table));
    }
    if test.is_some() {
        return Err(Error::Usage("--test goes with a CSV file; built-in problems have their own test part".into()));
    }
    let problem: ProblemName = name.parse()?;
    let (source, count) = match problem {
        ProblemName::Digits(count) => (Source::Digits, count),
        ProblemName::Mnist(count) => (Source::Mnist, count),
        _ => return Ok((Problem::generate(problem, seed)?, Origin::Table)),
    };
    let (train, test) = pixels(source, path)?;
    let problem = Problem::few_of_each(problem, count, seed, &train, Some(test))?;
    Ok((problem, Origin::Pixels(source, path.map(ftprop_train::recipe::absolute))))
}

/// Rows and columns of a problem's pictures, which are square; none for a table.
pub(in crate::cli) fn picture(problem: &Problem, origin: &Origin) -> Option<[usize; 2]> {
    let side = problem.train.points.inputs().isqrt();
    matches!(origin, Origin::Pixels(..)).then_some([side; 2])
}

/// The training instances of a name, which may also be all of `digits` or `mnist`; only some classes if any are named.
pub(in crate::cli) fn instances(
    name: &str,
    path: Option<&Path>,
    seed: u64,
    classes: &[String],
) -> Result<Labelled, Error> {
    let data = match name {
        "digits" => pixels(Source::Digits, path)?.0,
        "mnist" => pixels(Source::Mnist, path)?.0,
        _ => problem(name, path, None, seed)?.0.train,
    };
    if classes.is_empty() {
        return Ok(data);
    }
    if let Some(unknown) = classes.iter().find(|class| !data.classes.contains(class)) {
        let known = data.classes.join(", ");
        return Err(Error::Usage(format!("--classes: there is no class '{unknown}'; there are {known}")));
    }
    let place = |label: usize| classes.iter().position(|class| *class == data.classes[label]);
    let chosen: Vec<usize> = (0..data.labels.len()).filter(|&i| place(data.labels[i]).is_some()).collect();
    let labels = chosen.iter().filter_map(|&i| place(data.labels[i])).collect();
    Ok(Labelled::new(data.points.select(&chosen), labels, classes.to_vec())?)
}

/// A CSV file, gzipped or not.
fn table(path: &Path, read: impl Fn(&str) -> Result<Labelled, SearchError>) -> Result<Labelled, Error> {
    let failed = |source| SearchError::InFile { path: path.display().to_string(), source: Box::new(source) };
    let text = ftprop_data::read_text(path).map_err(|why| match why {
        DataError::Read { path, why } => FileError::new("open", &path, why).into(),
        other => Error::from(other),
    })?;
    Ok(read(&text).map_err(failed)?)
}

/// A name with an ending or a folder in it is a file.
pub(in crate::cli) fn is_table(name: &str) -> bool {
    name.parse::<ProblemName>().is_err_and(|why| matches!(why, SearchError::UnknownProblem { .. }))
        && (name.contains(['.', '/', '\\']) || Path::new(name).exists())
}

/// Training and test part of a data set of pictures, values between 0 and 1.
fn pixels(source: Source, path: Option<&Path>) -> Result<(Labelled, Labelled), Error> {
    let dataset = ftprop_data::open(source, path, &Options::default()).map_err(|why| match why {
        // --data is the problem here, and no path.
        DataError::PathNeeded { .. } => Error::Usage(format!("{why}, with --data-path PATH")),
        other => other.into(),
    })?;
    let labelled = |split: &Split| -> Result<Labelled, Error> {
        let (bytes, shape) =
            split.bytes().ok_or_else(|| Error::Other(format!("{source} is not a data set of pixels in memory")))?;
        let size = shape.size();
        let numbers = (0..split.len()).map(|position| split.number(position));
        let values = numbers.flat_map(|number| &bytes[number * size..][..size]).map(|&b| i64::from(b)).collect();
        let labels = (0..split.len()).map(|position| split.label(position) as usize).collect();
        Ok(Labelled::new(
            Points::from_ratios(size, values, dataset.normalize.full as u32)?,
            labels,
            dataset.classes.clone(),
        )?)
    };
    Ok((labelled(&dataset.train)?, labelled(&dataset.test)?))
}
