//! Small files that unpack to gigabytes are refused before memory is taken.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use ftprop_data::{DataError, Options, Source, open};

/// Counts the bytes in use, and the most there ever were.
struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// One test at a time, for there is one count.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Opens a data set that must be refused, in little memory.
fn refused(source: Source, path: &Path) -> DataError {
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let error = open(source, Some(path), &Options::default()).unwrap_err();
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(most < 512 << 20, "{} MB were taken before `{error}`", most >> 20);
    error
}

/// Gzipped: a head, then so many megabytes of a text that repeats.
fn bomb(head: &[u8], text: &[u8], megabytes: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(head).unwrap();
    let block = text.repeat((1 << 20) / text.len());
    (0..megabytes).for_each(|_| encoder.write_all(&block).unwrap());
    encoder.finish().unwrap()
}

#[test]
fn a_table_that_unpacks_to_gigabytes() {
    let _alone = ALONE.lock();
    let temp = Temp::new();
    let path = temp.write("t.csv.gz", bomb(b"a,b\n", b"0,1\n", 200));
    assert!(matches!(refused(Source::Csv, &path), DataError::UnpacksTooLarge { .. }));
}

#[test]
fn pictures_whose_header_announces_what_a_bomb_then_holds() {
    let _alone = ALONE.lock();
    let temp = Temp::new();
    write_mnist(&temp, 5, 5);
    let head = idx(&[200 << 10, 32, 32], &[]);
    temp.write("train-images-idx3-ubyte", bomb(&head, &[0; 1024], 200));
    assert!(matches!(refused(Source::Mnist, temp.path()), DataError::UnpacksTooLarge { .. }));
    // Announced little, followed by much.
    temp.write("train-images-idx3-ubyte", bomb(&idx(&[5, 3, 2], &[]), &[0; 1024], 200));
    assert!(matches!(refused(Source::Mnist, temp.path()), DataError::UnpacksTooLarge { .. }));
}

fn tar_with(name: &str, size: u64, change: impl FnOnce(&mut tar::Header), body: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    change(&mut header);
    header.set_cksum();
    let mut archive = header.as_bytes().to_vec();
    archive.extend(body);
    archive.resize(archive.len().next_multiple_of(512) + 1024, 0);
    archive
}

#[test]
fn archives_that_unpack_to_gigabytes() {
    let _alone = ALONE.lock();
    let temp = Temp::new();
    // A sparse file of 16 GB of which nothing is stored.
    let sparse = tar_with(
        "x/data_batch_1.bin",
        0,
        |header| {
            let gnu = header.as_gnu_mut().unwrap();
            gnu.typeflag[0] = b'S';
            gnu.sparse[0].offset.copy_from_slice(b"00000000000\0");
            gnu.sparse[0].numbytes.copy_from_slice(b"00000000000\0");
            gnu.sparse[1].offset.copy_from_slice(b"160000000000");
            gnu.sparse[1].numbytes.copy_from_slice(b"000000000000");
            gnu.realsize.copy_from_slice(b"160000000000");
        },
        &[],
    );
    assert!(sparse.len() < 4000);
    let path = temp.write("sparse.tar", &sparse);
    assert!(matches!(refused(Source::Cifar10, &path), DataError::UnpacksTooLarge { .. }));
    // Files that are passed over are unpacked on the way.
    for name in ["x/data_batch_1.bin", "x/something.else"] {
        let head = tar_with(name, 200 << 20, |_| {}, &[]);
        let path = temp.write("bomb.tar.gz", bomb(&head[..512], &[0; 1024], 200));
        let error = refused(Source::Cifar10, &path);
        assert!(matches!(error, DataError::UnpacksTooLarge { .. }), "{name}: {error}");
    }
    // A name of a gigabyte.
    let head = tar_with("././@LongLink", 200 << 20, |header| header.set_entry_type(tar::EntryType::GNULongName), &[]);
    let path = temp.write("name.tar.gz", bomb(&head[..512], &[b'a'; 1024], 200));
    let error = refused(Source::Cifar10, &path);
    assert!(matches!(error, DataError::UnpacksTooLarge { .. }), "{error}");
}

#[test]
fn what_data_really_compress_to_is_read() {
    let _alone = ALONE.lock();
    let temp = Temp::new();
    // 26 MB of text in 200 kB.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..500_000 {
        encoder.write_all(b"0.000000,0.000000,0.000000,0.000000,cat\n1,1,1,1,dog\n").unwrap();
    }
    let path = temp.write("zeros.csv.gz", encoder.finish().unwrap());
    let table = open(Source::Csv, Some(&path), &Options::default()).unwrap();
    assert_eq!(table.train.len() + table.test.len(), 1_000_000);
}
