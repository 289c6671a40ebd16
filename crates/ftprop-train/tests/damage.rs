//! No damaged checkpoint is taken for a good one.

use ftprop_tensor::random::Stream;
use ftprop_train::Error;
use ftprop_train::checkpoint::{Checkpoint, Note};
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::Place;
use ftprop_train::model::{Model, Which};
use ftprop_train::recipe::Recipe;
use ftprop_train::run::RunFolder;
use ftprop_train::trainer::Trainer;
use std::path::{Path, PathBuf};

/// A run of some epochs on the digits, in a folder that goes away.
struct Run(PathBuf);

impl Run {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ftprop-damage-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
        (recipe.train.epochs, recipe.train.checkpoint_seconds) = (2, 0.0);
        let (dataset, place) = (recipe.data.open().unwrap(), Place::open(DeviceChoice::Cpu, 1).unwrap());
        let folder = RunFolder::planned(&path).unwrap();
        let mut trainer = Trainer::in_folder(recipe.checked().unwrap(), folder, &dataset, &place).unwrap();
        trainer.run(&mut ()).unwrap();
        Run(path)
    }

    fn checkpoint(&self) -> Vec<u8> {
        std::fs::read(self.0.join("checkpoint.safetensors")).unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn parse(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    Checkpoint::parse(Path::new("mutant.safetensors"), bytes)
}

/// The JSON header and what follows it.
fn apart(file: &[u8]) -> (String, &[u8]) {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    (String::from_utf8(file[8..8 + length].to_vec()).unwrap(), &file[8 + length..])
}

fn joined(header: &str, tensors: &[u8]) -> Vec<u8> {
    // Aligned, as safetensors wants it.
    let header = format!("{header}{}", " ".repeat(header.len().next_multiple_of(8) - header.len()));
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), tensors].concat()
}

/// What a disk, a cable or a hand can do to a file.
fn mutant(original: &[u8], stream: Stream) -> (&'static str, Vec<u8>) {
    let mut bytes = original.to_vec();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let pick = |i: u64, below: usize| ((f64::from(stream.uniform(i)) * below as f64) as usize).min(below - 1);
    let kind = match pick(0, 8) {
        0 | 1 => {
            let at = pick(1, bytes.len());
            bytes[at] ^= 1 << pick(2, 8);
            "a flipped bit"
        }
        2 => {
            let at = pick(1, length + 8);
            bytes[at] ^= 1 << pick(2, 8);
            "a flipped bit in the header"
        }
        3 => {
            let page = 512 << pick(2, 4);
            let at = pick(1, bytes.len().div_ceil(page)) * page;
            let end = (at + page).min(bytes.len());
            bytes[at..end].fill(0);
            "a page of zeros"
        }
        4 => {
            let size = 4 * (1 + pick(1, 64));
            let places = (bytes.len() - 8 - length) / size;
            let (a, b) = (pick(2, places) * size, pick(3, places) * size);
            for i in 0..size {
                bytes.swap(8 + length + a + i, 8 + length + b + i);
            }
            "swapped numbers"
        }
        5 => {
            // Offsets of two tensors of one size, changed for each other.
            let (header, tensors) = apart(&bytes);
            let names = ["optimizer.moment0", "optimizer.moment1"];
            let swapped =
                header.replace(names[0], "x").replace(names[1], names[0]).replace("\"x\"", "\"optimizer.moment1\"");
            bytes = joined(&swapped, tensors);
            "swapped tensors"
        }
        6 => {
            let (header, tensors) = apart(&bytes);
            let digits: Vec<usize> =
                header.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(i, _)| i).collect();
            let at = digits[pick(1, digits.len())];
            let mut edited = header.into_bytes();
            edited[at] = b'0' + pick(2, 10) as u8;
            bytes = joined(std::str::from_utf8(&edited).unwrap(), tensors);
            "an edited number of the state"
        }
        _ => {
            bytes.truncate(pick(1, bytes.len()));
            "a truncated file"
        }
    };
    (kind, bytes)
}

/// `FTPROP_MUTANTS` of them, 1,000 unless told otherwise.
#[test]
fn no_mutant_is_taken_in_silence() {
    let run = Run::new("mutants");
    let original = run.checkpoint();
    assert!(parse(original.clone()).unwrap().notes.is_empty());
    let count = std::env::var("FTPROP_MUTANTS").map_or(1000, |n| n.parse::<u64>().unwrap());
    let mut same = 0;
    for number in 0..count {
        let (kind, bytes) = mutant(&original, Stream::numbered(number));
        if bytes == original {
            same += 1;
            continue;
        }
        match parse(bytes) {
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
            Ok(_) => panic!("mutant {number}, {kind}, was accepted"),
        }
    }
    println!("{} of {count} differed from the original, and all were refused", count - same);
    assert!(same < count / 5, "{same} of {count} are no mutants");
}

/// Files from before there were checksums are read, with a note; what cannot be is refused there too.
#[test]
fn a_file_without_a_checksum_is_read_with_a_note() {
    let run = Run::new("old");
    let original = run.checkpoint();
    let (header, tensors) = apart(&original);
    let from = header.find(r#"\"checksum\""#).unwrap();
    let to = from + header[from..].find(',').unwrap() + 1;
    let old = format!("{}{}", &header[..from], &header[to..]).replacen(r#"\"version\":2"#, r#"\"version\":1"#, 1);
    let read = parse(joined(&old, tensors)).unwrap();
    assert!(matches!(&read.notes[..], [Note::NoChecksum { .. }]), "{:?}", read.notes);
    assert!(read.notes[0].to_string().contains("no checksum"));
    let refused = |header: String, tensors: &[u8], word: &str| {
        let error = parse(joined(&header, tensors)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(word), "{error:?} has no {word}");
    };
    // A new file that lost its checksum is no old one.
    refused(old.replacen(r#"\"version\":1"#, r#"\"version\":2"#, 1), tensors, "checksum");
    refused(old.replacen(r#"\"top1\":0"#, r#"\"top1\":1139"#, 1), tensors, "more examples are right");
    refused(old.replacen(r#"\"epoch\":3"#, r#"\"epoch\":0"#, 1), tensors, "counted from 1");
    refused(old.replacen(r#"\"full\":16.0"#, r#"\"full\":0.0"#, 1), tensors, "normalised");
    // A small file that claims a large network takes no memory for it.
    let claims = old.replacen("out = 32", "out = 30000000", 1);
    assert_ne!(claims, old);
    let path = run.0.join("claims.safetensors");
    std::fs::write(&path, joined(&claims, tensors)).unwrap();
    let cpu = Place::open(DeviceChoice::Cpu, 1).unwrap().cpu;
    let error = Model::load(&path, Which::Best, cpu, 1).err().unwrap().to_string();
    assert!(error.contains("is of another network") && error.contains("30000000"), "{error}");
    let nan = [&f32::NAN.to_le_bytes()[..], &tensors[4..]].concat();
    refused(old, &nan, "no number");
}

/// The checkpoint before the last one is kept, and used where the last is damaged.
#[test]
fn the_previous_checkpoint_is_fallen_back_to() {
    let run = Run::new("previous");
    let folder = RunFolder::open(&run.0).unwrap();
    let (last, previous) = (run.checkpoint(), std::fs::read(folder.previous()).unwrap());
    assert!(last != previous);
    assert!(folder.last().unwrap().unwrap().notes.is_empty());
    std::fs::write(folder.checkpoint(), &last[..last.len() - 1]).unwrap();
    let used = folder.last().unwrap().unwrap();
    assert_eq!(used.path(), folder.previous());
    let said = used.notes[0].to_string();
    assert!(said.contains("checkpoint.safetensors") && said.contains("using the one before it"), "{said}");
    // Nothing to fall back to: the error is that of the last one.
    std::fs::write(folder.previous(), b"").unwrap();
    let error = folder.last().err().unwrap().to_string();
    assert!(error.contains("checkpoint.safetensors"), "{error}");
}
