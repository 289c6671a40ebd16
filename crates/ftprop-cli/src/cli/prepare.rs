//! `ftprop prepare`

use super::outputs::{self, Inputs};
use super::{say, say_json};
use crate::error::Error;
use crate::progress::{Progress, counted, tell};
use clap::{Args, ValueEnum};
use ftprop_data::{BadImage, PrepareOptions, Prepared, Preparing, prepare};
use ftprop_train::words::plain;
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Decode a folder of pictures once, into one file that `train --data` reads at full speed
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop prepare imagenet -o imagenet-160.ftpictures --resize 160
  ftprop train --recipe resnet18-sign-ftpsh --data imagenet-160.ftpictures --set data.crop=128

DIR is laid out as train/CLASS/* and val/CLASS/*, or as CLASS/* alone. What is interrupted goes on with the same command.")]
pub(super) struct Prepare {
    /// The folder of class folders
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The file to make; what is under way is kept beside it, as FILE.part
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// What the shorter edge of every picture is resized to
    #[arg(long, value_name = "PIXELS", default_value_t = 256)]
    resize: usize,
    /// What to do with pictures that do not decode
    #[arg(long, value_enum, value_name = "WHAT", default_value = "stop")]
    bad_images: Bad,
    /// Threads that decode; 0 takes one for each core
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// No progress, and no line at the end
    #[arg(long)]
    quiet: bool,
    /// What was made, as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Bad {
    /// End with an error that names the picture
    Stop,
    /// Leave them out, and count them
    Skip,
}

#[derive(Serialize)]
struct Report {
    train: usize,
    test: usize,
    classes: usize,
    skipped: usize,
    bytes: u64,
    images_per_s: f64,
}

impl Prepare {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        outputs::refuse_inputs(&self.output, &Inputs::of([Some(self.folder.as_path())]))?;
        let threads = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            threads => threads,
        };
        let bad_image = if self.bad_images == Bad::Skip { BadImage::Skip } else { BadImage::Stop };
        let options = PrepareOptions { edge: self.resize, threads, bad_image };
        let stop = super::solve::stop_on_ctrl_c("stopping after this picture");
        let (mut shown, started, mut rate) = (None, Instant::now(), 0.0);
        let made = prepare(&self.folder, &self.output, &options, &mut |at: Preparing| {
            let progress = shown.get_or_insert_with(|| {
                if at.before > 0 && !self.quiet {
                    tell(&format!("going on after {}", counted(at.before as u64, "picture")));
                }
                Progress::of_steps("preparing", at.of, self.quiet).resumed(0, at.before)
            });
            rate = (at.done - at.before) as f64 / started.elapsed().as_secs_f64().max(1e-9);
            progress.count(at.done, rate);
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        drop(shown);
        if !made.finished {
            tell("interrupted; what is done is kept, and the same command goes on");
            return Ok(ExitCode::from(super::solve::INTERRUPTED));
        }
        self.tell_left_out(&made);
        let Prepared { examples: [train, test], classes, skipped, bytes, .. } = made;
        if self.json {
            say_json(&Report { train, test, classes, skipped, bytes, images_per_s: rate })?;
        } else if !self.quiet {
            let test = if test > 0 { format!(" and {test} to test") } else { String::new() };
            say(&format!(
                "{}: {train} pictures to train{test}, {}, {:.1} MB, {rate:.0} pictures/s",
                plain(&self.output.display().to_string()),
                format_args!("{classes} classes"),
                bytes as f64 / 1e6
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn tell_left_out(&self, made: &Prepared) {
        if made.passed_over.count() > 0 {
            tell(&made.passed_over.to_string());
        }
        if let Some(first) = &made.first_skipped {
            tell(&format!("{} left out; the first: {first}", counted(made.skipped as u64, "picture")));
        }
    }
}
