//! `ftprop predict`

use super::eval::WhichArg;
use super::{load, say, say_json};
use crate::error::Error;
use crate::progress::tell;
use clap::Args;
use ftprop_export::classifier::Classifier;
use ftprop_train::device::Place;
use ftprop_train::evaluate::{Predictor, predict, predictor};
use ftprop_train::files::is_packed;
use ftprop_train::words::plain;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tell the class of image files
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop predict runs/photos cat.jpg dog.png
  ftprop predict photos.ftp cat.jpg
  ftprop predict runs/photos --top 3 --json *.jpg")]
pub(super) struct Predict {
    /// A run folder, a checkpoint file or a packed model (.ftp)
    model: PathBuf,
    /// JPEG or PNG files
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// How many classes to show for each
    #[arg(long, default_value_t = 1)]
    top: usize,
    /// Which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
    /// cpu, or cuda:0 and so on: a GPU takes longer to start than a few images take
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Worker threads, 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Prediction {
    image: String,
    classes: Vec<Guess>,
}

#[derive(Serialize)]
struct Guess {
    class: String,
    confidence: f32,
}

impl Predict {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        if self.top == 0 {
            return Err(Error::Usage("--top must be at least 1".into()));
        }
        let place = Place::open(self.device.parse()?, self.threads)?;
        let cpu = place.cpu.clone();
        let (mut network, classes, preprocess): (Box<dyn Predictor>, _, _) = if is_packed(&self.model) {
            if place.gpu.is_some() {
                return Err(Error::Usage("a packed model runs on the CPU; leave --device out".into()));
            }
            let packed = Classifier::open(&self.model, cpu.threads())?;
            let (classes, preprocess) = (packed.classes().to_vec(), packed.preprocess());
            (Box::new(packed), classes, preprocess)
        } else {
            let model = load(&self.model, self.checkpoint.into(), cpu.clone(), 1)?;
            let preprocess = model.info.preprocess().ok_or(ftprop_train::Error::NoPictures)?;
            let classes = model.info.classes.clone();
            (predictor(model, &place, 1)?, classes, preprocess)
        };
        let mut predictions = Vec::new();
        let mut failed = 0;
        for path in &self.images {
            // One bad file does not keep the others from their answer.
            let ranked = match cpu.enter(|| predict(&mut *network, &preprocess, path)) {
                Ok(ranked) => ranked,
                Err(e @ (ftprop_train::Error::Data(_) | ftprop_train::Error::File(_))) => {
                    tell(&format!("ftprop: {}", plain(&Error::from(e).to_string())));
                    failed += 1;
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            let guesses: Vec<Guess> = ranked
                .into_iter()
                .take(self.top)
                .map(|(class, confidence)| Guess { class: classes[class].clone(), confidence })
                .collect();
            let prediction = Prediction { image: path.display().to_string(), classes: guesses };
            if !self.json {
                let guesses: Vec<String> = prediction
                    .classes
                    .iter()
                    .map(|g| format!("{} {:.1} %", plain(&g.class), 100.0 * g.confidence))
                    .collect();
                say(&format!("{}: {}", plain(&prediction.image), guesses.join(", ")));
            }
            predictions.push(prediction);
        }
        if self.json {
            say_json(&predictions)?;
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
