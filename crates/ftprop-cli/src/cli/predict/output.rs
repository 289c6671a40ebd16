//! The answers of `predict`, one after another or as one list.

use crate::cli::{say, say_json, say_json_text};
use crate::error::Error;
use crate::progress::complain;
use clap::ValueEnum;
use ftprop_train::views::Views;
use ftprop_train::words::plain;
use serde::Serialize;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A line for people
    Plain,
    /// A header and a line for each
    Csv,
    /// One list
    Json,
    /// A value a line
    Jsonl,
}

/// What the network says of one picture or row, or why it says nothing.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    file: File,
    /// The line of a table.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<Guess>,
    /// Test-time augmentation, where there is some.
    #[serde(skip_serializing_if = "Option::is_none")]
    tta: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What was asked about, by the kind of network: all answers of a call have the same key.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum File {
    Image(String),
    Table(String),
}

#[derive(Serialize)]
struct Guess {
    class: String,
    confidence: f32,
}

impl Answer {
    fn file(&self) -> &str {
        match &self.file {
            File::Image(name) | File::Table(name) => name,
        }
    }

    fn name(&self) -> String {
        match self.line {
            Some(line) => format!("{}, line {line}", plain(self.file())),
            None => plain(self.file()).into_owned(),
        }
    }
}

/// Writes answers as they come.
pub(super) struct Writer {
    format: Format,
    /// Whether the network takes tables, and not pictures.
    tables: bool,
    /// Classes of an answer.
    top: usize,
    begun: bool,
    /// For one list.
    all: Vec<Answer>,
    failed: usize,
    tta: Option<Views>,
}

impl Writer {
    pub(super) fn new(format: Format, tables: bool, top: usize, tta: Option<Views>) -> Self {
        Writer { format, tables, top, begun: false, all: Vec::new(), failed: 0, tta }
    }

    /// The classes of a picture or row, the likeliest first.
    pub(super) fn answer(
        &mut self,
        name: &str,
        line: Option<u64>,
        ranked: &[(usize, f32)],
        names: &[String],
    ) -> Result<(), Error> {
        let guess = |&(class, confidence): &(usize, f32)| Guess { class: names[class].clone(), confidence };
        self.write(name, line, ranked.iter().take(self.top).map(guess).collect(), None)
    }

    fn write(
        &mut self,
        name: &str,
        line: Option<u64>,
        classes: Vec<Guess>,
        error: Option<String>,
    ) -> Result<(), Error> {
        let file = if self.tables { File::Table(name.into()) } else { File::Image(name.into()) };
        let answer = Answer { file, line, classes, tta: self.tta.map(|views| views.to_string()), error };
        let header = !std::mem::replace(&mut self.begun, true);
        match self.format {
            Format::Plain => {
                let guesses: Vec<String> = answer
                    .classes
                    .iter()
                    .map(|g| format!("{} {:.1} %", plain(&g.class), 100.0 * g.confidence))
                    .collect();
                let views = self.tta.map_or_else(String::new, |views| format!(" (mean over {views})"));
                say(&format!("{}: {}{views}", answer.name(), guesses.join(", ")))
            }
            Format::Csv => {
                if header {
                    let columns = (1..=self.top).map(|n| format!(",class{n},confidence{n}"));
                    let tta = if self.tta.is_some() { ",tta" } else { "" };
                    let file = if self.tables { "table" } else { "image" };
                    say(&format!("{file},line{}{tta},error", columns.collect::<String>()))?;
                }
                say(&self.csv(&answer))
            }
            Format::Jsonl => {
                let text = serde_json::to_string(&answer).map_err(|e| Error::Other(e.to_string()))?;
                say_json_text(&text)
            }
            Format::Json => {
                self.all.push(answer);
                Ok(())
            }
        }
    }

    fn csv(&self, answer: &Answer) -> String {
        let mut cells = vec![field(answer.file()), answer.line.map_or_else(String::new, |line| line.to_string())];
        for place in 0..self.top {
            match answer.classes.get(place) {
                Some(guess) => cells.extend([field(&guess.class), guess.confidence.to_string()]),
                None => cells.extend([String::new(), String::new()]),
            }
        }
        cells.extend(answer.tta.as_deref().map(field));
        cells.push(answer.error.as_deref().map_or_else(String::new, field));
        cells.join(",")
    }

    /// Something has no answer; people hear of it at once.
    pub(super) fn failed(&mut self, name: &str, line: Option<u64>, why: &str) -> Result<(), Error> {
        self.failed += 1;
        complain(why);
        match self.format {
            Format::Plain => Ok(()),
            _ => self.write(name, line, Vec::new(), Some(why.into())),
        }
    }

    /// How many have no answer.
    pub(super) fn finish(self) -> Result<usize, Error> {
        if self.format == Format::Json {
            say_json(&self.all)?;
        }
        Ok(self.failed)
    }
}

/// A cell of a CSV file, on one line.
fn field(text: &str) -> String {
    let text = plain(text);
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}
