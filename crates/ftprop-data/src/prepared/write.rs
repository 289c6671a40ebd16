//! Making a prepared file from a folder of pictures.
//!
//! Threads decode and resize, one writes, in the folder's order: the file has the same bytes for any number of threads.
//! Each picture is written with a record before it that has checksums of both, so that a file that was interrupted is
//! taken up after the last picture that is whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ftprop_files::{FileError, Unfinished};

use super::layout::{HEADER, Header, Parts, RECORD, encode_names};
use crate::folder::{self, Layout};
use crate::photo::{Scratch, least_side, refused};
use crate::pictures::{CHANNELS, Entry};
use crate::preprocess::Shape;
use crate::resize::Axis;
use crate::sizes::{check_sizes, cover};
use crate::split::Content;
use crate::view::Picture;
use crate::{BadImage, DataError, Dataset, Options, PassedOver};

/// How pictures are prepared.
#[derive(Clone, Copy, Debug)]
pub struct PrepareOptions {
    /// What the shorter edge of every picture is resized to.
    pub edge: usize,
    /// Threads that decode.
    pub threads: usize,
    /// What to do with a picture that cannot be read.
    pub bad_image: BadImage,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Preparing {
    /// Pictures that are done, with those that an earlier call did.
    pub done: usize,
    /// Those that an earlier call did.
    pub before: usize,
    /// All pictures.
    pub of: usize,
}

/// What was made.
#[derive(Debug)]
pub struct Prepared {
    /// Pictures of the training part and of the test part.
    pub examples: [usize; 2],
    /// Classes.
    pub classes: usize,
    /// Pictures that were left out.
    pub skipped: usize,
    /// Why the first of them was.
    pub first_skipped: Option<DataError>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Whether all is done; else what is done is kept, and a call with the same folder and options goes on.
    pub finished: bool,
    /// Files that are no pictures.
    pub passed_over: PassedOver,
}

/// A picture of the folder.
struct Input {
    path: PathBuf,
    label: u32,
    /// In which part it is.
    part: usize,
}

/// Makes a file from a folder of pictures in class folders, or goes on making it. `progress` is told now and then, and may
/// end it.
///
/// ```no_run
/// use ftprop_data::{BadImage, PrepareOptions, prepare};
/// use std::ops::ControlFlow;
/// let options = PrepareOptions { edge: 160, threads: 2, bad_image: BadImage::Stop };
/// let made = prepare("photos".as_ref(), "photos.ftp".as_ref(), &options, &mut |_| ControlFlow::Continue(()))?;
/// assert!(made.finished);
/// # Ok::<(), ftprop_data::DataError>(())
/// ```
pub fn prepare(
    folder: &Path,
    file: &Path,
    options: &PrepareOptions,
    progress: &mut dyn FnMut(Preparing) -> ControlFlow<()>,
) -> Result<Prepared, DataError> {
    let edge = options.edge;
    let window = Shape::new(edge, edge, CHANNELS);
    if edge == 0 {
        return Err(DataError::Option("a picture's shorter edge has at least one pixel".into()));
    }
    check_sizes(edge, window)?;
    let parts = match folder::layout(folder)? {
        Layout::Parts { .. } => Parts::Two,
        Layout::Classes => Parts::One,
    };
    let opened = Options { resize: Some(edge), crop: Some(edge), whole: true, ..Options::default() };
    let dataset = folder::open(folder, &opened)?;
    let inputs = inputs(&dataset, parts);
    let fingerprint = fingerprint(folder, &inputs, &dataset.classes);
    let begun = Header::begun(parts, edge as u32, dataset.classes.len() as u32, fingerprint);
    let unfinished = Unfinished::open(file)?;
    let failed = |why| DataError::from(FileError::new("write", file, why));
    let mut log = Log::take_up(unfinished.file(), &begun, inputs.len()).map_err(failed)?;
    let (before, mut skipped, mut first_skipped) = (log.entries.len(), 0, None);
    let todo: Vec<usize> = (0..inputs.len()).filter(|&i| i as i64 > log.last).collect();
    let shared = Shared::new(options.threads.max(1));
    let mut finished = progress(Preparing { done: before, before, of: inputs.len() }).is_continue();
    let outcome = std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, todo.len().max(1)) {
            scope.spawn(|| shared.work(&todo, &inputs, window));
        }
        let mut write = || -> Result<(), DataError> {
            for (at, &number) in todo.iter().enumerate() {
                if !finished {
                    break;
                }
                match shared.take(at) {
                    Ok((entry, pixels)) => log.add(number, entry, &pixels).map_err(failed)?,
                    Err(why) if options.bad_image == BadImage::Stop => return Err(why),
                    Err(why) => {
                        skipped += 1;
                        first_skipped.get_or_insert(why);
                    }
                }
                let done = before + at + 1;
                finished = progress(Preparing { done, before, of: inputs.len() }).is_continue() || done == inputs.len();
            }
            Ok(())
        };
        let outcome = write();
        shared.end();
        outcome
    });
    // What is done is kept, whatever happened.
    log.flush().map_err(failed)?;
    outcome?;
    let mut examples = [0, 0];
    log.entries.iter().for_each(|&(number, _)| examples[inputs[number as usize].part] += 1);
    let (classes, passed_over) = (dataset.classes.len(), dataset.passed_over.clone());
    let mut bytes = log.end;
    if finished {
        for (part, count) in ["training", "test"].iter().zip(examples) {
            if count == 0 && (parts == Parts::Two || *part == "training") {
                let first = Box::new(first_skipped.unwrap_or(DataError::Empty { what: format!("the {part} part") }));
                return Err(DataError::AllSkipped { count: skipped, first });
            }
        }
        bytes = log.finish(begun, &dataset.classes, examples).map_err(failed)?;
        unfinished.finish()?;
    }
    Ok(Prepared { examples, classes, skipped, first_skipped, bytes, finished, passed_over })
}

fn inputs(dataset: &Dataset, parts: Parts) -> Vec<Input> {
    let splits = match parts {
        Parts::Two => vec![&dataset.train, &dataset.test],
        Parts::One => vec![&dataset.train],
    };
    let of_split = |(part, split): (usize, &crate::Split)| {
        let Content::Files { paths, .. } = split.content() else { return Vec::new() };
        let labelled = paths.iter().zip(split.labels());
        labelled.map(|(path, &label)| Input { path: path.clone(), label, part }).collect()
    };
    splits.into_iter().enumerate().flat_map(of_split).collect()
}

/// Tells whether a file under way is of the same pictures: their names in the folder, in order, and the classes.
fn fingerprint(folder: &Path, inputs: &[Input], classes: &[String]) -> u64 {
    let mut sums = [crc32fast::Hasher::new(), crc32fast::Hasher::new_with_initial(0x5bd1_e995)];
    let mut add = |bytes: &[u8]| sums.iter_mut().for_each(|sum| [bytes, b"\0"].iter().for_each(|b| sum.update(b)));
    classes.iter().for_each(|class| add(class.as_bytes()));
    for Input { path, .. } in inputs {
        add(path.strip_prefix(folder).unwrap_or(path).as_os_str().as_encoded_bytes());
    }
    let [low, high] = sums.map(|sum| u64::from(sum.finalize()));
    high << 32 | low
}

/// The file as it grows.
struct Log<'a> {
    file: BufWriter<&'a File>,
    /// Pictures with their numbers, in order.
    entries: Vec<(u32, Entry)>,
    /// The number of the last of them.
    last: i64,
    end: u64,
}

impl<'a> Log<'a> {
    /// What is there of the same pictures, or an empty file.
    fn take_up(mut file: &'a File, begun: &Header, inputs: usize) -> std::io::Result<Self> {
        let mut head = [0; HEADER];
        file.rewind()?;
        let same = file.read_exact(&mut head).is_ok() && Header::decode(&head).is_ok_and(|found| found == *begun);
        let (entries, end) = if same { whole_records(file, inputs)? } else { (Vec::new(), HEADER as u64) };
        file.set_len(if same { end } else { 0 })?;
        if !same {
            file.rewind()?;
            file.write_all(&begun.encode())?;
        }
        file.seek(SeekFrom::Start(end))?;
        let last = entries.last().map_or(-1, |&(number, _)| i64::from(number));
        Ok(Log { file: BufWriter::with_capacity(1 << 20, file), entries, last, end })
    }

    fn add(&mut self, number: usize, mut entry: Entry, pixels: &[u8]) -> std::io::Result<()> {
        entry.offset = self.end + RECORD as u64;
        self.file.write_all(&entry.record(number as u32))?;
        self.file.write_all(pixels)?;
        self.entries.push((number as u32, entry));
        self.end += (RECORD + pixels.len()) as u64;
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }

    /// Writes the table and the names, then the header that makes the file whole. Gives its length.
    fn finish(mut self, begun: Header, classes: &[String], examples: [usize; 2]) -> std::io::Result<u64> {
        let mut tail: Vec<u8> = self.entries.iter().flat_map(|(_, entry)| entry.encode()).collect();
        let (table, names) = (self.end, self.end + tail.len() as u64);
        tail.extend(encode_names(classes));
        self.file.write_all(&tail)?;
        self.file.flush()?;
        let bytes = table + tail.len() as u64;
        // All else is on the disk before the header says so.
        self.file.get_ref().sync_data()?;
        let (examples, table_sum) = (examples.map(|count| count as u64), crc32fast::hash(&tail));
        let header = Header { examples, bytes, table, names, table_sum, ..begun };
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header.encode())?;
        self.file.flush()?;
        Ok(bytes)
    }
}

/// The pictures after the header up to the first that is not whole, and where that begins.
fn whole_records(file: &File, inputs: usize) -> std::io::Result<(Vec<(u32, Entry)>, u64)> {
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut end = file.seek(SeekFrom::Start(HEADER as u64))?;
    let (mut entries, mut record, mut pixels): (Vec<(u32, Entry)>, _, _) = (Vec::new(), [0; RECORD], Vec::new());
    while file.read_exact(&mut record).is_ok() {
        let Some((entry, number)) = Entry::of_record(&record, end) else { break };
        let next = entries.last().is_none_or(|&(last, _)| number > last) && (number as usize) < inputs;
        pixels.resize(entry.len(), 0);
        if !next || file.read_exact(&mut pixels).is_err() || crc32fast::hash(&pixels) != entry.sum {
            break;
        }
        entries.push((number, entry));
        end += (RECORD + pixels.len()) as u64;
    }
    Ok((entries, end))
}

type Outcome = Result<(Entry, Vec<u8>), DataError>;

/// What the threads share: pictures are claimed in order, and none is far ahead of what is written.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
    ahead: usize,
}

#[derive(Default)]
struct State {
    claimed: usize,
    written: usize,
    done: BTreeMap<usize, Outcome>,
}

impl Shared {
    fn new(threads: usize) -> Self {
        let (state, changed, stop) = Default::default();
        Shared { state, changed, stop, ahead: 16 * threads }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn work(&self, todo: &[usize], inputs: &[Input], window: Shape) {
        let mut scratch = Scratch::default();
        loop {
            let mut state = self.lock();
            while state.claimed >= state.written + self.ahead && !self.stop.load(Ordering::Relaxed) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let at = state.claimed;
            if at >= todo.len() || self.stop.load(Ordering::Relaxed) {
                return;
            }
            state.claimed += 1;
            drop(state);
            let outcome = one(&inputs[todo[at]], window, &mut scratch);
            self.lock().done.insert(at, outcome);
            self.changed.notify_all();
        }
    }

    /// Waits for a picture.
    fn take(&self, at: usize) -> Outcome {
        let mut state = self.lock();
        loop {
            if let Some(outcome) = state.done.remove(&at) {
                state.written = at + 1;
                self.changed.notify_all();
                return outcome;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        // Under the lock, so that no thread is between looking at the flag and going to sleep.
        let _state = self.lock();
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

/// A picture, decoded and resized.
fn one(input: &Input, window: Shape, scratch: &mut Scratch) -> Outcome {
    let (height, width, pixels) = scratch.decode(&input.path, CHANNELS, false, least_side(window, window.height))?;
    let edge = window.height;
    let (new_height, new_width) = cover(height, width, window, edge).ok_or_else(|| {
        refused(&input.path, &format!("{width}×{height} pixels are too long and thin to be resized to {edge}"))
    })?;
    let pixels = if (new_height, new_width) == (height, width) {
        pixels
    } else {
        let rows = Axis::whole(height, new_height, 0, new_height);
        let columns = Axis::whole(width, new_width, 0, new_width);
        let picture = Picture { height, width, pixels: &pixels };
        scratch.viewer.resample(&picture, CHANNELS, rows, columns).to_vec()
    };
    let (height, width, sum) = (new_height as u32, new_width as u32, crc32fast::hash(&pixels));
    Ok((Entry { offset: 0, height, width, label: input.label, sum }, pixels))
}
