//! `ftprop export`

use super::data::{find_others, is_gone, tell_found};
use super::eval::WhichArg;
use super::outputs::{self, Inputs};
use super::{check_choice, device, load, say, say_json};
use crate::error::Error;
use crate::progress::{Progress, tell};
use clap::{Args, ValueEnum};
use ftprop_data::DataError;
use ftprop_export::classifier::Classifier;
use ftprop_export::packed::{self, Agreement};
use ftprop_export::{onnx, torch, zoo};
use ftprop_runtime::pack::WeightFormat;
use ftprop_train::files::{self, is_packed};
use ftprop_train::measuring::{Asked, Measured, Measuring, WhichData};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a trained network for other programs: packed, for PyTorch, or as ONNX
#[derive(Args)]
#[command(after_help = "\
A packed model is one small file that ftprop predict, ftprop eval and the runtime library take. For PyTorch it is
safetensors with the names of torchvision's resnet18 for that preset, and of an nn.Sequential for other networks;
ftprop import reads it back. ONNX takes normalised pictures, channels first; of a packed model it is exact, so that other
programs get the same classes to the last picture.

Examples:
  ftprop export runs/digits -o digits.ftp --check
  ftprop export runs/c8 -o c8.ftp --weights int4 --check cifar-10-batches-bin
  ftprop export runs/c8 -o c8.safetensors
  ftprop export runs/c8 -o c8.onnx
  ftprop export c8.ftp -o c8-exact.onnx")]
pub(super) struct Export {
    /// A run folder, a checkpoint file or one of the zoo (zoo:NAME); for ONNX also a packed model (.ftp)
    model: PathBuf,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What to write [default: packed for FILE.ftp, onnx for FILE.onnx, torch for FILE.safetensors]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// How a packed model stores weights [default: int8]
    #[arg(long, value_enum)]
    weights: Option<WeightsArg>,
    /// Which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
    /// Before writing, compare the packed model with the network on the test part; DATA is where the data is, if not where it
    /// was in training, or other data, which is compared on whole
    #[arg(long, value_name = "DATA", num_args = 0..=1)]
    #[allow(clippy::option_option, reason = "absent, without a value, with one: the three things clap tells apart")]
    check: Option<Option<PathBuf>>,
    /// Worker threads, 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    Packed,
    Torch,
    Onnx,
}

#[derive(Clone, Copy, ValueEnum)]
enum WeightsArg {
    Int8,
    Int4,
    F32,
}

impl From<WeightsArg> for WeightFormat {
    fn from(arg: WeightsArg) -> Self {
        match arg {
            WeightsArg::Int8 => WeightFormat::Int8,
            WeightsArg::Int4 => WeightFormat::Int4,
            WeightsArg::F32 => WeightFormat::F32,
        }
    }
}

#[derive(Serialize)]
struct Report {
    model: String,
    file: String,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Agreement>,
}

/// Examples a batch while checking.
const BATCH: usize = 64;

impl Export {
    pub(super) fn run(mut self) -> Result<ExitCode, Error> {
        if self.output == Path::new("-") {
            self.output = PathBuf::from("/dev/stdout");
        }
        let data = self.check.as_ref().and_then(Option::as_deref);
        outputs::refuse_inputs(&self.output, &Inputs::of([data]).and_model(&self.model))?;
        let format = self.format()?;
        // Of the zoo's model ONNX is exact; what else is written comes from the weights that it was packed from.
        self.model = match format {
            FormatArg::Onnx => zoo::resolve(&self.model)?,
            FormatArg::Packed | FormatArg::Torch => zoo::resolve_weights(&self.model)?,
        };
        // A name of the zoo has become a file.
        outputs::refuse_inputs(&self.output, &Inputs::default().and_model(&self.model))?;
        if format != FormatArg::Packed && (self.weights.is_some() || self.check.is_some()) {
            return Err(Error::Usage(
                "--weights and --check go with --format packed; other formats keep every bit".into(),
            ));
        }
        check_choice(&self.model, self.checkpoint.into())?;
        if is_packed(&self.model) {
            return self.packed_to_onnx();
        }
        let cpu = device("cpu", self.threads)?;
        let mut model = load(&self.model, self.checkpoint.into(), cpu.clone(), BATCH)?;
        let bytes = match format {
            FormatArg::Packed => packed::pack(&model, self.weights.map_or(WeightFormat::Int8, Into::into))?,
            FormatArg::Torch => torch::to_bytes(&model.recipe, &model.network)?,
            FormatArg::Onnx => onnx::to_bytes(&model)?,
        };
        let check = match &self.check {
            None => None,
            Some(data) => {
                let which = WhichData::of(data.as_deref(), model.recipe.data.path.as_deref());
                let found = find_others(&mut model.recipe, data.as_deref())?;
                let Measured { mut dataset, whole, note } =
                    Measuring::of(&model.recipe, &model.info, which, Asked::Unseen).open().map_err(advised)?;
                if let (Some(found), Some(data)) = (found, data) {
                    tell_found(data, &found, self.json);
                }
                note.iter().for_each(|note| tell(&note.to_string()));
                dataset.normalize = model.info.normalize();
                let mut classifier = Classifier::new(&bytes, cpu.threads())?;
                let mut progress: Option<Progress> = None;
                let agreement = packed::check(&mut model, &mut classifier, &dataset, &mut |step| {
                    progress.get_or_insert_with(|| Progress::of_steps("checking", step.steps, self.json)).step(step);
                })?;
                drop(progress);
                if !self.json {
                    say(&format!(
                        "checked on {} {}examples: same top-1 on {:.2} %; accuracy {:.2} % packed, {:.2} % in float",
                        agreement.examples,
                        if whole { "" } else { "test " },
                        100.0 * agreement.agreement,
                        100.0 * agreement.packed_top1,
                        100.0 * agreement.float_top1
                    ))?;
                }
                Some(agreement)
            }
        };
        self.write(&bytes, model.path.as_deref().unwrap_or(&self.model), check)
    }

    /// As the command line says, or the file's ending.
    fn format(&self) -> Result<FormatArg, Error> {
        let ending = self.output.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        let meant = match ending.as_deref() {
            Some("onnx") => Some(FormatArg::Onnx),
            Some("safetensors") => Some(FormatArg::Torch),
            Some("ftp") => Some(FormatArg::Packed),
            _ => None,
        };
        match (self.format.or(meant), ending.as_deref()) {
            // Whoever finds the file later goes by its ending.
            (Some(format), Some(ending)) if meant.is_some_and(|meant| meant != format) => Err(Error::Usage(format!(
                "{}: .{ending} is not the ending of what --format says; leave one of the two out",
                self.output.display()
            ))),
            (Some(format), _) => Ok(format),
            // A pipe or a device has no ending.
            (None, None) if self.output.exists() && !self.output.is_file() && !self.output.is_dir() => {
                Ok(FormatArg::Packed)
            }
            (None, None) if files::is_standard_output(&self.output) => Ok(FormatArg::Packed),
            (None, _) => Err(Error::Usage(format!(
                "{}: the ending does not say what to write; use .ftp (packed), .onnx or .safetensors (for PyTorch), or \
                 give --format",
                self.output.display()
            ))),
        }
    }

    /// A packed model can go on to ONNX.
    fn packed_to_onnx(&self) -> Result<ExitCode, Error> {
        if self.format()? != FormatArg::Onnx {
            return Err(Error::Usage(
                "a packed model can only become --format onnx; give its run for the others".into(),
            ));
        }
        let refused =
            |e: ftprop_runtime::Error| ftprop_export::Error::NotAModel { path: self.model.clone(), why: e.to_string() };
        let file = files::read(&self.model)?;
        let packed = ftprop_runtime::Model::parse(&file).map_err(refused)?;
        self.write(&onnx::packed::to_bytes(&packed)?, &self.model, None)
    }

    fn write(&self, bytes: &[u8], from: &Path, check: Option<Agreement>) -> Result<ExitCode, Error> {
        files::write(&self.output, bytes)?;
        let report = Report {
            model: from.display().to_string(),
            file: self.output.display().to_string(),
            bytes: bytes.len(),
            check,
        };
        let words = format!("{}: {} bytes, from {}", report.file, report.bytes, report.model);
        if files::is_standard_output(&self.output) {
            tell(&words);
        } else if self.json {
            say_json(&report)?;
        } else {
            say(&words)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What stands in the way of a check, with what to do about it here.
fn advised(error: ftprop_train::Error) -> Error {
    use ftprop_train::Error as Train;
    match error {
        error if is_gone(&error) => Error::Other(format!("{error}, or say where the data are now: --check PATH")),
        Train::Data(DataError::PathNeeded { .. }) => {
            Error::Other("the network does not say where its data are; say it: --check PATH".into())
        }
        changed @ Train::NotAsTrained { .. } => {
            Error::Other(Error::from(changed).to_string().replace(", with --data", ": --check PATH"))
        }
        other => other.into(),
    }
}
