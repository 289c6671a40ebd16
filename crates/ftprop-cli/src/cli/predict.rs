//! `ftprop predict`

mod inputs;
mod output;

use super::eval::WhichArg;
use super::{check_choice, load};
use crate::error::Error;
use clap::Args;
use ftprop_data::{Preprocess, TableTransform};
use ftprop_export::classifier::Classifier;
use ftprop_export::zoo;
use ftprop_tensor::Cpu;
use ftprop_train::device::Place;
use ftprop_train::evaluate::{Predictor, predict, predict_rows, predictor};
use ftprop_train::files::is_packed;
use ftprop_train::views::Views;
use inputs::{Input, STDIN, STDIN_PATH, inputs};
use output::{Format, Writer};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Rows of a table that are classified together.
const ROWS: usize = 64;

/// Tell the class of pictures, or of the rows of a table
#[derive(Args)]
#[command(after_help = "\
A network that was trained on pictures takes image files, and folders of them. One that was trained on a table takes
tables with the same columns, in any order; a column of labels is passed over. - reads paths of pictures from standard
input, one a line, or a table. What cannot be read is named on standard error and, but for the plain format, in the
output; the exit code is then 1. In CSV and JSON a file is called image, or table for a network of tables, whose rows have
their line as well.

Examples:
  ftprop predict runs/photos cat.jpg dog.png
  ftprop predict photos.ftp holiday --format csv > holiday.csv
  find . -name '*.jpg' | ftprop predict runs/photos - --format jsonl
  ftprop predict runs/flowers new.csv --top 3")]
pub(super) struct Predict {
    /// A run folder, a checkpoint file, a packed model (.ftp) or one of the zoo (zoo:NAME)
    model: PathBuf,
    /// Image files, folders, tables, or - for standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// How many classes to show for each
    #[arg(long, default_value_t = 1)]
    top: usize,
    /// How to write the answers: plain, csv, json (one list) or jsonl (a value a line)
    #[arg(long, value_enum, default_value = "plain")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
    /// Test-time augmentation: the mean over views of each picture, flip, shift (by a pixel each way) or flip,shift; said
    /// with each answer
    #[arg(long, value_name = "VIEWS")]
    tta: Option<Views>,
    /// cpu, or cuda:0 and so on: a GPU takes longer to start than a few images take
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Worker threads, 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// A network and what it needs to be asked.
struct Asked {
    network: Box<dyn Predictor>,
    classes: Vec<String>,
    preprocess: Option<Preprocess>,
    table: Option<TableTransform>,
    /// Whether the first line of a table names the columns, if that was said in training.
    header: Option<bool>,
    cpu: Arc<Cpu>,
}

impl Predict {
    pub(super) fn run(mut self) -> Result<ExitCode, Error> {
        self.model = zoo::resolve(&self.model)?;
        if self.top == 0 {
            return Err(Error::Usage("--top must be at least 1".into()));
        }
        let mut asked = self.network()?;
        if let Some(views) = self.tta {
            asked = asked.through(views)?;
        }
        let format = if self.json { Format::Json } else { self.format };
        let tables = asked.preprocess.is_none();
        let mut out = Writer::new(format, tables, self.top.min(asked.classes.len()), self.tta);
        for path in &self.inputs {
            for input in inputs(path, tables)? {
                match input {
                    Input::Picture(path) => asked.picture(&path, &mut out)?,
                    Input::Table { name, path } => asked.rows(&name, &path, &mut out)?,
                    Input::Wrong(name, why) => out.failed(&name, None, &why)?,
                }
            }
        }
        let failed = out.finish()?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn network(&self) -> Result<Asked, Error> {
        let place = Place::open(self.device.parse()?, self.threads)?;
        let cpu = place.cpu.clone();
        if is_packed(&self.model) {
            if place.gpu.is_some() {
                return Err(Error::Usage("a packed model runs on the CPU; leave --device out".into()));
            }
            check_choice(&self.model, self.checkpoint.into())?;
            let packed = Classifier::open(&self.model, cpu.threads())?;
            let (classes, preprocess, table) =
                (packed.classes().to_vec(), packed.preprocess(), packed.table().cloned());
            return Ok(Asked { network: Box::new(packed), classes, preprocess, table, header: None, cpu });
        }
        let batch = if place.gpu.is_some() { 1 } else { ROWS };
        let model = load(&self.model, self.checkpoint.into(), cpu.clone(), batch)?;
        let (classes, preprocess, table) =
            (model.info.classes.clone(), model.info.preprocess(), model.info.table.clone());
        let header = model.recipe.data.csv.header;
        Ok(Asked { network: predictor(model, &place, ROWS)?, classes, preprocess, table, header, cpu })
    }
}

impl Asked {
    /// Asked about several views of each picture.
    fn through(self, views: Views) -> Result<Self, Error> {
        let Some(preprocess) = &self.preprocess else {
            return Err(Error::Usage("--tta is for pictures; the rows of a table have no views".into()));
        };
        let network = views.through(self.network, preprocess.shape);
        Ok(Asked { network, ..self })
    }

    fn picture(&mut self, path: &Path, out: &mut Writer) -> Result<(), Error> {
        let name = path.display().to_string();
        let Some(preprocess) = &self.preprocess else {
            let why = ftprop_train::Error::NoTable { path: path.to_owned() };
            return out.failed(&name, None, &Error::from(why).to_string());
        };
        // One bad file does not keep the others from their answer.
        match self.cpu.enter(|| predict(&mut *self.network, preprocess, path)) {
            Ok(ranked) => out.answer(&name, None, &ranked, &self.classes),
            Err(e @ (ftprop_train::Error::Data(_) | ftprop_train::Error::File(_))) => {
                out.failed(&name, None, &Error::from(e).to_string())
            }
            Err(e) => Err(e.into()),
        }
    }

    fn rows(&mut self, name: &str, path: &Path, out: &mut Writer) -> Result<(), Error> {
        let Some(transform) = &self.table else {
            let why = match self.preprocess {
                Some(_) => ftprop_train::Error::NoPicture { path: PathBuf::from(name) },
                None => ftprop_train::Error::NoColumns,
            };
            return out.failed(name, None, &Error::from(why).to_string());
        };
        let header = self.header;
        let read = transform.read_sound(path, header);
        let answered = read.map_err(ftprop_train::Error::from).and_then(|(table, wrong)| {
            let answers = self.cpu.enter(|| predict_rows(&mut *self.network, transform, &table, ROWS))?;
            Ok((table, answers, wrong))
        });
        match answered {
            Ok((table, answers, wrong)) => {
                // One bad row does not keep the others from their answer.
                let mut wrong = wrong.into_iter().peekable();
                for (row, ranked) in answers.iter().enumerate() {
                    while let Some(why) = wrong.next_if(|why| why.line() < Some(table.line(row))) {
                        out.failed(name, why.line(), &Error::from(why).to_string())?;
                    }
                    out.answer(name, Some(table.line(row)), ranked, &self.classes)?;
                }
                wrong.try_for_each(|why| out.failed(name, why.line(), &Error::from(why).to_string()))
            }
            Err(e @ (ftprop_train::Error::Data(_) | ftprop_train::Error::File(_))) => {
                // What is called - has another path where it is read.
                let why = Error::from(e).to_string();
                let why = if name == STDIN { why.replace(STDIN_PATH, "standard input") } else { why };
                out.failed(name, None, &why)
            }
            Err(e) => Err(e.into()),
        }
    }
}
