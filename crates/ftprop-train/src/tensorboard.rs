//! Scalars for TensorBoard.
//!
//! An event file is a row of TFRecords, each `length (u64) · checksum of the length · bytes · checksum of the bytes`,
//! little endian, the checksums being masked CRC-32C. The bytes are one `Event` protocol buffer. Only the handful of
//! fields that scalars need are written, so they are put together here by hand.
//!
//! ```
//! use ftprop_train::tensorboard::EventWriter;
//! use std::time::SystemTime;
//!
//! # let folder = std::env::temp_dir().join(format!("ftprop-events-doc-{}", std::process::id()));
//! # ftprop_train::files::create_folder(&folder)?;
//! let mut events = EventWriter::create(&folder, SystemTime::now())?;
//! events.scalars(1, SystemTime::now(), &[("train/loss", 2.3), ("test/top1", 0.1)])?;
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), ftprop_train::files::FileError>(())
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::files::FileError;

/// Writes one event file; each call reaches the file before it returns, so TensorBoard can follow a live run.
#[derive(Debug)]
pub struct EventWriter {
    file: File,
    path: PathBuf,
}

impl EventWriter {
    /// Starts a new event file in `folder`, which must exist. Files of earlier sessions stay: TensorBoard reads
    /// them all, in the order of their names.
    pub fn create(folder: &Path, now: SystemTime) -> Result<Self, FileError> {
        let host = host_name();
        let mut time = now;
        loop {
            let seconds = seconds_since_epoch(time) as u64;
            let path = folder.join(format!("events.out.tfevents.{seconds:010}.{host}.ftprop"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut writer = Self { file, path };
                    writer.event(now, None, &string_field(EVENT_FILE_VERSION, "brain.Event:2"))?;
                    return Ok(writer);
                }
                // Two sessions in one second: the later one must sort after the earlier one.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => time += Duration::from_secs(1),
                Err(error) => return Err(FileError::new("create", &path, error)),
            }
        }
    }

    /// Tells TensorBoard that the run starts again at `step`: it forgets what earlier files hold from there on.
    pub fn restart_at(&mut self, step: u64, now: SystemTime) -> Result<(), FileError> {
        const STATUS_START: u64 = 1;
        let session_log = varint_field(SESSION_LOG_STATUS, STATUS_START);
        self.event(now, Some(step), &bytes_field(EVENT_SESSION_LOG, &session_log))
    }

    /// Adds the values of several tags, such as `train/loss`, at one step.
    pub fn scalars(&mut self, step: u64, now: SystemTime, scalars: &[(&str, f32)]) -> Result<(), FileError> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = string_field(VALUE_TAG, tag);
            entry.push(key(VALUE_SIMPLE_VALUE, WIRE_32_BIT));
            entry.extend(value.to_le_bytes());
            summary.extend(bytes_field(SUMMARY_VALUE, &entry));
        }
        self.event(now, Some(step), &bytes_field(EVENT_SUMMARY, &summary))
    }

    /// Where the events go.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn event(&mut self, now: SystemTime, step: Option<u64>, what: &[u8]) -> Result<(), FileError> {
        let mut event = vec![key(EVENT_WALL_TIME, WIRE_64_BIT)];
        event.extend(seconds_since_epoch(now).to_le_bytes());
        event.extend(step.map(|step| varint_field(EVENT_STEP, step)).unwrap_or_default());
        event.extend(what);
        self.record(&event).map_err(|error| FileError::new("append to", &self.path, error))
    }

    /// One write call a record, so that a kill between two records cannot tear one.
    fn record(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = (bytes.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(bytes.len() + 16);
        record.extend(length);
        record.extend(masked_crc32c(&length).to_le_bytes());
        record.extend(bytes);
        record.extend(masked_crc32c(bytes).to_le_bytes());
        self.file.write_all(&record)
    }
}

// Field numbers of TensorFlow's `event.proto` and `summary.proto`.
const EVENT_WALL_TIME: u8 = 1;
const EVENT_STEP: u8 = 2;
const EVENT_FILE_VERSION: u8 = 3;
const EVENT_SUMMARY: u8 = 5;
const EVENT_SESSION_LOG: u8 = 7;
const SUMMARY_VALUE: u8 = 1;
const VALUE_TAG: u8 = 1;
const VALUE_SIMPLE_VALUE: u8 = 2;
const SESSION_LOG_STATUS: u8 = 1;

// Wire types of protocol buffers.
const WIRE_VARINT: u8 = 0;
const WIRE_64_BIT: u8 = 1;
const WIRE_BYTES: u8 = 2;
const WIRE_32_BIT: u8 = 5;

/// Every field number here is below 16, so a key is one byte.
fn key(field: u8, wire: u8) -> u8 {
    field << 3 | wire
}

fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn varint_field(field: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![key(field, WIRE_VARINT)];
    varint(value, &mut bytes);
    bytes
}

fn bytes_field(field: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![key(field, WIRE_BYTES)];
    varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

fn string_field(field: u8, content: &str) -> Vec<u8> {
    bytes_field(field, content.as_bytes())
}

fn seconds_since_epoch(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The machine's name where it is easily had; TensorBoard only needs the file names to differ.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// TFRecords hold checksums rotated and offset, so that a checksum of data that holds checksums stays sound.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc32c_table();
    !bytes.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

const fn crc32c_table() -> [u32; 256] {
    const CASTAGNOLI_REVERSED: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ CASTAGNOLI_REVERSED } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One field of a message: its number and its content, as a number or as bytes.
    #[derive(Debug, PartialEq)]
    enum Content {
        Number(u64),
        Bytes(Vec<u8>),
    }

    /// CRC-32C from its definition: polynomial division over all bits, most significant coefficient first.
    fn crc32c_by_division(bytes: &[u8]) -> u32 {
        let mut remainder = !0_u32;
        for byte in bytes {
            for bit in 0..8 {
                let incoming = u32::from(byte >> bit & 1);
                let top = remainder >> 31;
                remainder <<= 1;
                if top ^ incoming == 1 {
                    remainder ^= 0x1edc_6f41;
                }
            }
        }
        !remainder.reverse_bits()
    }

    fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(count);
        *bytes = rest;
        taken
    }

    fn take_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = take(bytes, 1)[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn fields(mut bytes: &[u8]) -> Vec<(u64, Content)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = take_varint(&mut bytes);
            let content = match key & 7 {
                0 => Content::Number(take_varint(&mut bytes)),
                1 => Content::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
                2 => {
                    let length = take_varint(&mut bytes) as usize;
                    Content::Bytes(take(&mut bytes, length).to_vec())
                }
                5 => Content::Number(u32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap()).into()),
                other => panic!("wire type {other}"),
            };
            fields.push((key >> 3, content));
        }
        fields
    }

    /// The events of a file, after checking both checksums of every record.
    fn events(path: &Path) -> Vec<Vec<(u64, Content)>> {
        let unmask =
            |masked: &[u8]| u32::from_le_bytes(masked.try_into().unwrap()).wrapping_sub(0xa282_ead8).rotate_left(15);
        let file = std::fs::read(path).unwrap();
        let mut rest = file.as_slice();
        let mut events = Vec::new();
        while !rest.is_empty() {
            let length = take(&mut rest, 8);
            assert_eq!(unmask(take(&mut rest, 4)), crc32c_by_division(length));
            let bytes = take(&mut rest, u64::from_le_bytes(length.try_into().unwrap()) as usize);
            assert_eq!(unmask(take(&mut rest, 4)), crc32c_by_division(bytes));
            events.push(fields(bytes));
        }
        events
    }

    #[test]
    fn crc32c_has_its_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_by_division(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn an_independent_reader_finds_every_scalar() {
        let folder = std::env::temp_dir().join(format!("ftprop-events-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        let wall = || (1, Content::Number(1_700_000_000.25_f64.to_bits()));

        let mut writer = EventWriter::create(&folder, now).unwrap();
        writer.scalars(300, now, &[("train/loss", 0.5), ("test/top1", -0.0)]).unwrap();
        let second = EventWriter::create(&folder, now).and_then(|mut second| {
            second.restart_at(200, now)?;
            Ok(second)
        });
        let second = second.unwrap();
        let (first, second) = (events(writer.path()), events(second.path()));
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        std::fs::remove_dir_all(&folder).unwrap();

        assert!(names.iter().all(|name| {
            let name = name.to_str().unwrap();
            name.starts_with("events.out.tfevents.17000000") && name.ends_with(".ftprop")
        }));
        assert_eq!(names.len(), 2);
        let version = || vec![wall(), (3, Content::Bytes(b"brain.Event:2".to_vec()))];
        let value = |tag: &str, value: f32| {
            let mut bytes = vec![0x0a, tag.len() as u8];
            bytes.extend(tag.as_bytes());
            bytes.push(0x15);
            bytes.extend(value.to_le_bytes());
            (1, Content::Bytes(bytes))
        };
        assert_eq!(first[0], version());
        assert_eq!(first[1][..2], [wall(), (2, Content::Number(300))]);
        let (5, Content::Bytes(summary)) = &first[1][2] else { panic!("no summary: {first:?}") };
        assert_eq!(fields(summary), [value("train/loss", 0.5), value("test/top1", -0.0)]);
        assert_eq!(first.len(), 2);
        assert_eq!(second[0], version());
        assert_eq!(second[1], [wall(), (2, Content::Number(200)), (7, Content::Bytes(vec![8, 1]))]);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = EventWriter::create(Path::new("no/such/folder"), UNIX_EPOCH).unwrap_err().to_string();
        assert!(error.starts_with("cannot create no/such/folder/events.out.tfevents.0000000000."), "{error}");
    }
}
