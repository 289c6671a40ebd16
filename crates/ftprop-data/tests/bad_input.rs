//! What is wrong is said in one line that names the place; nothing panics.

mod common;

use std::fs;
use std::path::Path;

use common::*;
use ftprop_data::{
    Augment, BadImage, CsvOptions, DataError, HoldOut, LabelColumn, Loader, LoaderConfig, Normalize, Options,
    Preprocess, Shape, Source, Split, TestPart, load_image, open,
};
use ftprop_tensor::random::Stream;

/// Checks that a message is one line and has all the words.
fn says(error: &DataError, words: &[&str]) {
    let message = error.to_string();
    assert!(!message.contains('\n'), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

fn refused(source: Source, path: &Path, words: &[&str]) {
    let error = open(source, Some(path), &Options::default()).unwrap_err();
    says(&error, words);
}

#[test]
fn missing_files_say_what_was_looked_for_and_where() {
    let temp = Temp::new();
    let place = temp.path().display().to_string();
    refused(Source::Cifar10, temp.path(), &["CIFAR-10", "data_batch_1.bin", "cifar-10-binary.tar.gz", &place]);
    refused(Source::Cifar100, temp.path(), &["CIFAR-100", "train.bin", &place]);
    refused(Source::Mnist, temp.path(), &["MNIST", "train-images-idx3-ubyte", &place]);
    refused(Source::FashionMnist, temp.path(), &["Fashion-MNIST", "train-images-idx3-ubyte.gz", &place]);
    refused(Source::Folder, temp.path(), &["train/CLASS", &place]);
    refused(Source::Csv, &temp.path().join("no.csv"), &["cannot read", "no.csv"]);
    says(&open(Source::Mnist, None, &Options::default()).unwrap_err(), &["mnist", "path"]);
    fs::create_dir(temp.path().join("train")).unwrap();
    refused(Source::Folder, temp.path(), &["val/CLASS", &place]);
}

#[test]
fn cifar_files_that_are_not_whole_or_not_right() {
    let broken = |change: &dyn Fn(&mut Vec<Named>)| {
        let (temp, mut files) = (Temp::new(), cifar10_files());
        change(&mut files);
        files.iter().for_each(|(name, content)| drop(temp.write(name, content)));
        temp
    };
    let cut = broken(&|files| files[2].1.truncate(5000));
    refused(Source::Cifar10, cut.path(), &["data_batch_3.bin", "truncated", "5000"]);
    let empty = broken(&|files| files[5].1.clear());
    refused(Source::Cifar10, empty.path(), &["test_batch.bin", "truncated"]);
    let label = broken(&|files| files[1].1[3073] = 10);
    refused(Source::Cifar10, label.path(), &["data_batch_2.bin", "example 1", "label 10", "10 classes"]);
    let gone = broken(&|files| drop(files.remove(3)));
    refused(Source::Cifar10, gone.path(), &["data_batch_4.bin", "a part of CIFAR-10 only"]);

    let temp = Temp::new();
    let archive = tar_gz("x", &cifar10_files());
    let path = temp.write("cut.tar.gz", &archive[..archive.len() / 2]);
    refused(Source::Cifar10, &path, &["cut.tar.gz", "truncated"]);
    let path = temp.write("part.tar.gz", tar_gz("x", &cifar10_files()[..3]));
    refused(Source::Cifar10, &path, &["data_batch_4.bin", "part.tar.gz"]);
    let path = temp.write("noise.tar.gz", noise(1, 4000));
    refused(Source::Cifar10, &path, &["noise.tar.gz", "not a tar archive"]);
    let path = temp.write("none.tar.gz", "");
    refused(Source::Cifar10, &path, &["data_batch_1.bin", "none.tar.gz"]);
}

#[test]
fn idx_files_that_are_not_whole_or_not_right() {
    let with = |name: &str, content: Vec<u8>| {
        let temp = Temp::new();
        write_mnist(&temp, 5, 5);
        temp.write(name, content);
        temp
    };
    let images = "train-images-idx3-ubyte";
    let refuse = |name: &str, content: Vec<u8>, words: &[&str]| {
        refused(Source::Mnist, with(name, content).path(), words);
    };
    refuse(images, idx(&[5, 3, 2], &noise(1, 29)), &[images, "truncated", "5 × 3 × 2"]);
    refuse(images, idx(&[5, 3, 2], &noise(1, 31)), &[images, "31 bytes"]);
    refuse(images, vec![0, 0], &[images, "truncated"]);
    refuse(images, vec![], &[images, "truncated"]);
    refuse(images, idx(&[u32::MAX; 3], &[]), &[images, "truncated"]);
    refuse(images, idx(&[5], &noise(1, 5)), &[images, "0x00000801", "0x00000803"]);
    refuse(images, gzip(&idx(&[5, 3, 2], &noise(1, 30)))[..30].to_vec(), &[images, "truncated"]);
    refuse("t10k-images-idx3-ubyte", idx(&[0, 3, 2], &[]), &["t10k-labels-idx1-ubyte", "5 labels for the 0 pictures"]);
    refuse("t10k-images-idx3-ubyte", idx(&[5, 2, 2], &noise(1, 20)), &["3×2", "2×2"]);
    let labels = "train-labels-idx1-ubyte";
    refuse(labels, idx(&[4], &[1; 4]), &[labels, "4 labels for the 5 pictures"]);
    refuse(labels, idx(&[5], &[0, 1, 2, 12, 3]), &[labels, "example 3", "label 12", "10 classes"]);
    let temp = Temp::new();
    write_mnist(&temp, 0, 0);
    refused(Source::Mnist, temp.path(), &["no examples"]);
}

#[test]
fn folders_without_pictures() {
    let temp = Temp::new();
    write_photos(&temp);
    fs::create_dir(temp.path().join("train/fish")).unwrap();
    temp.write("train/fish/readme.md", "soon");
    refused(Source::Folder, temp.path(), &["fish", ".png"]);
    fs::remove_dir_all(temp.path().join("train/fish")).unwrap();
    temp.write("val/bird/x.png", "");
    refused(Source::Folder, temp.path(), &["bird", "training classes"]);

    let none = Temp::new();
    fs::create_dir_all(none.path().join("train")).unwrap();
    fs::create_dir_all(none.path().join("val")).unwrap();
    refused(Source::Folder, none.path(), &["train", "no examples"]);
}

#[test]
fn sizes_that_cannot_be() {
    let temp = Temp::new();
    write_photos(&temp);
    let open = |source, resize, crop| {
        let options = Options { resize, crop, ..Options::default() };
        let path = (source != Source::Digits).then_some(temp.path());
        open(source, path, &options).unwrap_err()
    };
    refused(Source::Digits, temp.path(), &["digits", "built in"]);
    says(&open(Source::Folder, Some(16), Some(17)), &["17", "16"]);
    says(&open(Source::Folder, Some(0), Some(0)), &["crop"]);
    says(&open(Source::Digits, None, Some(9)), &["9", "8"]);
    says(&open(Source::Digits, Some(9), None), &["resize", "digits"]);
    says(&open(Source::Folder, Some(1 << 61), None), &["2305843009213693952", "at most 16384"]);
    says(&open(Source::Folder, Some(16_000), Some(16_000)), &["16000×16000", "more than"]);
    let preprocess = Preprocess { shape: Shape::new(8, 8, 3), resize: 1 << 61, normalize: Normalize::imagenet() };
    says(&load_image(&temp.path().join("train/cat/b.png"), &preprocess).unwrap_err(), &["at most 16384"]);
}

#[test]
fn tables_with_wrong_rows_say_which_line() {
    let temp = Temp::new();
    let refuse = |text: &str, words: &[&str]| refused(Source::Csv, &temp.write("t.csv", text), words);
    refuse("a,b,c\n1,2,x\n1,2,3,y\n", &["t.csv, line 3", "4 columns", "3"]);
    refuse("a,b,c\n1,2,x\n1,y\n", &["line 3", "2 columns"]);
    refuse("1,2,x\n1,nan,y\n", &["line 2", "`nan` in column 2, a missing value", "mean, median or indicator"]);
    refuse("1,2,x\n1,inf,y\n", &["line 2", "inf"]);
    refuse("1,2,x\n1,1e99,y\n", &["line 2", "1e99"]);
    refuse("1,2,x\n1,two,y\n", &["line 2", "`two`", "not a number"]);
    refuse("1,2,x\n1,\"two\nlines\",y\n", &["line 2", r"`two\nlines`"]);
    refuse("1,2,x\n,2,y\n", &["line 2", "column 1"]);
    refuse("1,2,x\n1,2,\n", &["line 2", "no label"]);
    refuse("1,2,x\n3,4,x\n", &["`x`", "right column"]);
    refuse("a,b\n", &["no examples", "header"]);
    refuse("", &["no examples"]);
    refuse("1\n2\n", &["single column"]);

    let table = temp.write("good.csv", "a,b\n1,x\n2,y\n3,x\n");
    let with = |csv: CsvOptions| open(Source::Csv, Some(&table), &Options { csv, ..Options::default() }).unwrap_err();
    let label = |label| with(CsvOptions { label, ..CsvOptions::default() });
    says(&label(LabelColumn::Name("z".into())), &["`z`", "`a`, `b`"]);
    says(&label(LabelColumn::Index(2)), &["column 2"]);
    let test = |test| with(CsvOptions { test, ..CsvOptions::default() });
    says(&test(TestPart::Fraction(0.0)), &["hold out", "3 examples"]);
    says(&test(TestPart::Fraction(f64::NAN)), &["hold out"]);
    says(&test(TestPart::Fraction(2.0)), &["hold out"]);
    let other = temp.write("other.csv", "a,b\n1,x\n2,w\n");
    says(&test(TestPart::File(other)), &["other.csv, line 3", "`w`", "training"]);
    let wide = temp.write("wide.csv", "a,b,c\n1,2,x\n");
    says(&test(TestPart::File(wide)), &["wide.csv", "the training file has not", "`c`"]);
    let bare = temp.write("bare.csv", "1,2,3,x\n1,2,4,y\n");
    says(&test(TestPart::File(bare)), &["bare.csv", "3 features", "1"]);
    let other = temp.write("named.csv", "b,c\nx,1\n");
    says(&test(TestPart::File(other)), &["named.csv", "missing", "`a`"]);
    let prices: String = (0..90).map(|i| format!("{i},{}.5\n", i % 30)).collect();
    refuse(&prices, &["column 2", "30 different numbers in 90 rows", "another label column"]);
    let years: String = (0..40).map(|i| format!("{i},{}\n", 1900 + i % 30)).collect();
    refuse(&years, &["column 2", "30 different labels in 40 rows", "another label column"]);
    refuse("a,b,c\n1,red,x\n2,,y\n", &["line 3", "column 2 (`b`)", "mean, median or indicator"]);
    refuse("a,b,c\n1,NA,x\n2,3,y\n", &["line 2", "`NA`", "a missing value"]);
    let ids: String = (0..300).map(|i| format!("{i},id{i},{}\n", i % 2)).collect();
    refuse(&ids, &["column 2", "256 different texts"]);
}

#[test]
fn pictures_that_do_not_decode_stop_or_are_skipped_and_counted() {
    let temp = Temp::new();
    write_photos(&temp);
    let whole = fs::read(temp.path().join("train/cat/c.jpg")).unwrap();
    temp.write("train/cat/d.jpg", &whole[..whole.len() - 40]);
    temp.write("train/dog/3.png", "no picture at all");
    let options = Options { resize: Some(10), crop: Some(8), ..Options::default() };
    let photos = open(Source::Folder, Some(temp.path()), &options).unwrap();
    for workers in [0, 1, 3] {
        let config =
            |bad_image| LoaderConfig { workers, bad_image, ..LoaderConfig::evaluation(3, photos.normalize.clone()) };
        let stopping = Loader::new(&photos.train, config(BadImage::Stop)).unwrap();
        let mut epoch = stopping.epoch(0, 0);
        assert_eq!(epoch.next_batch().unwrap().unwrap().len(), 3);
        // All of them at once, and what can be done.
        let error = epoch.next_batch().unwrap_err();
        says(&error, &["2 of the 8 images", "d.jpg", "truncated", "3.png", "bad_images = \"skip\""]);
        assert!(epoch.next_batch().unwrap().is_none());

        let skipping = Loader::new(&photos.train, config(BadImage::Skip)).unwrap();
        let mut epoch = skipping.epoch(0, 0);
        let mut seen = Vec::new();
        while let Some(batch) = epoch.next_batch().unwrap() {
            assert_eq!(batch.images.len(), batch.len() * 192);
            seen.push((batch.index, batch.numbers.to_vec(), batch.labels.to_vec()));
        }
        let expected = [(0, vec![0, 1, 2], vec![0, 0, 0]), (1, vec![4, 5], vec![1, 1]), (2, vec![6], vec![1])];
        assert_eq!(seen, expected);
        assert_eq!(epoch.skipped(), 2);
        says(epoch.first_skipped().unwrap(), &["d.jpg"]);
    }
    for (name, words) in [("train/cat/d.jpg", "truncated"), ("train/dog/3.png", "PNG"), ("no.png", "cannot read")] {
        let error = load_image(&temp.path().join(name), &photos.preprocess().unwrap()).unwrap_err();
        says(&error, &[name, words]);
    }
}

#[test]
fn an_epoch_of_nothing_but_bad_pictures_is_an_error() {
    let temp = Temp::new();
    for name in ["train/a/1.png", "train/a/2.png", "val/a/1.png"] {
        temp.write(name, "no");
    }
    let photos = open(Source::Folder, Some(temp.path()), &Options::default()).unwrap();
    let config = LoaderConfig { bad_image: BadImage::Skip, ..LoaderConfig::evaluation(1, photos.normalize.clone()) };
    let loader = Loader::new(&photos.train, config).unwrap();
    let mut epoch = loader.epoch(0, 0);
    says(&epoch.next_batch().unwrap_err(), &["2 images", "1.png"]);
    assert!(epoch.next_batch().unwrap().is_none());
    // An epoch that is taken up again may have had its good ones before.
    let mut resumed = loader.epoch(0, 1);
    assert!(resumed.next_batch().unwrap().is_none());
    assert_eq!(resumed.skipped(), 1);
}

#[cfg(unix)]
#[test]
fn a_pipe_that_is_called_a_picture_is_passed_over_and_never_waited_for() {
    let temp = Temp::new();
    write_photos(&temp);
    let pipe = temp.path().join("train/cat/x.png");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let photos = open(Source::Folder, Some(temp.path()), &Options::default()).unwrap();
    assert_eq!(photos.train.len(), 6);
    assert_eq!(photos.passed_over.kinds["no file"], 1);
    let error = load_image(&pipe, &photos.preprocess().unwrap()).unwrap_err();
    says(&error, &["x.png", "no file"]);
}

/// It was counted as "no file", which says nothing to whoever sees its name in the folder.
#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_called_that() {
    let temp = Temp::new();
    write_photos(&temp);
    std::os::unix::fs::symlink("gone.png", temp.path().join("train/cat/x.png")).unwrap();
    std::os::unix::fs::symlink("b.png", temp.path().join("train/cat/y.png")).unwrap();
    let photos = open(Source::Folder, Some(temp.path()), &Options::default()).unwrap();
    let said = photos.passed_over.to_string();
    assert_eq!(said, "2 files that are no pictures were passed over: 1 .txt, 1 by a link that leads nowhere");
    assert_eq!(photos.train.len(), 7);
}

#[test]
fn what_a_path_holds_is_found_out_or_said_to_be_unknown() {
    let temp = Temp::new();
    let unknown = |path: &Path| says(&Source::detect(path).unwrap_err(), &["looked for a table", "class folders"]);
    unknown(temp.path());
    unknown(&temp.write("notes.txt", "no data"));
    unknown(&temp.write("noise.tar.gz", noise(1, 400)));
    says(&Source::detect(&temp.path().join("nothing")).unwrap_err(), &["cannot read", "nothing"]);
    for name in ["t.csv", "T.CSV", "t.csv.gz", "t.tsv"] {
        assert_eq!(Source::detect(&temp.write(name, "1,x\n")).unwrap().source, Source::Csv, "{name}");
    }
    let archive = temp.write("some.tar.gz", tar_gz("x", &cifar10_files()));
    assert_eq!(Source::detect(&archive).unwrap().what, "the archive of CIFAR-10");
    let hundred = [("train.bin".to_owned(), cifar_file(1, &[&[1, 2]]))];
    let archive = temp.write("other.tar.gz", tar_gz("x", &hundred));
    assert_eq!(Source::detect(&archive).unwrap().source, Source::Cifar100);

    let folder = Temp::new();
    write_mnist(&folder, 5, 5);
    assert_eq!(Source::detect(folder.path()).unwrap().source, Source::Mnist);
    let fashion = Temp::new();
    fashion.write("Fashion-Data/train-images-idx3-ubyte.gz", "");
    assert_eq!(Source::detect(&fashion.path().join("Fashion-Data")).unwrap().source, Source::FashionMnist);
    let cifar = Temp::new();
    cifar10_files()
        .iter()
        .for_each(|(name, content)| drop(cifar.write(&format!("cifar-10-batches-bin/{name}"), content)));
    assert_eq!(Source::detect(cifar.path()).unwrap().source, Source::Cifar10);
    let photos = Temp::new();
    write_photos(&photos);
    let parts = Source::detect(photos.path()).unwrap().what;
    assert_eq!(parts, "pictures in class folders, train to learn from, val to measure by");
    assert_eq!(Source::detect(&photos.path().join("train")).unwrap().what, "a folder of pictures in class folders");
    fs::remove_dir_all(photos.path().join("val")).unwrap();
    says(&Source::detect(photos.path()).unwrap_err(), &["val/CLASS"]);
}

#[test]
fn splits_that_cannot_be() {
    let shape = Shape::new(2, 1, 1);
    says(&Split::from_pixels(shape, vec![1, 2, 3], vec![0, 1]).unwrap_err(), &["3 values", "2 examples of 2"]);
    says(&Split::from_pixels(shape, vec![], vec![]).unwrap_err(), &["no examples"]);
    says(&Split::from_features(2, vec![1.0; 3], vec![0]).unwrap_err(), &["3 values", "1 examples of 2"]);
    says(&Split::from_features(2, vec![1.0, 2.0, 3.0, f32::NAN], vec![0, 1]).unwrap_err(), &["row 1, column 1"]);
}

#[test]
fn loaders_that_cannot_be() {
    let digits = open(Source::Digits, None, &Options::default()).unwrap();
    let refuse = |config: LoaderConfig, words: &[&str]| {
        says(&Loader::new(&digits.train, config).err().expect("refused"), words);
    };
    let config = |batch| LoaderConfig::training(batch, 1, digits.normalize.clone());
    refuse(config(0), &["at least one"]);
    refuse(config(1439), &["1439", "1438"]);
    refuse(LoaderConfig::training(1, 1, Normalize::imagenet()), &["3 means", "1 channels"]);
    for amount in [HoldOut::Count(0), HoldOut::Count(1438), HoldOut::Fraction(1.0), HoldOut::Fraction(-1.0)] {
        says(&digits.train.hold_out(amount, 1).unwrap_err(), &["1438 examples"]);
    }

    let temp = Temp::new();
    let table = temp.write("t.csv", "a,b\n1,x\n2,y\n3,x\n");
    let table = open(Source::Csv, Some(&table), &Options::default()).unwrap();
    let config = LoaderConfig { augment: Augment::CIFAR, ..LoaderConfig::training(1, 1, table.normalize.clone()) };
    says(&Loader::new(&table.train, config).err().expect("refused"), &["table"]);
    says(&table.crop_to(1).unwrap_err(), &["table"]);
    write_photos(&temp);
    let photos = open(Source::Folder, Some(temp.path()), &Options::default()).unwrap();
    let config = LoaderConfig { augment: Augment::CIFAR, ..LoaderConfig::training(1, 1, photos.normalize.clone()) };
    says(&Loader::new(&photos.train, config).err().expect("refused"), &["padded"]);
}

/// Damages files at random places; whatever is read from them, nothing may panic.
#[test]
fn damaged_files_are_read_or_refused() {
    let temp = Temp::new();
    write_photos(&temp);
    write_mnist(&temp, 12, 3);
    let csv = "a,b,c\n1,2,x\n3,4.5,\"y\"\n5,6,x\n7,8,y\n9,1,x\n";
    let files = [
        ("train/cat/c.jpg", fs::read(temp.path().join("train/cat/c.jpg")).unwrap()),
        ("train/cat/b.png", fs::read(temp.path().join("train/cat/b.png")).unwrap()),
        ("train-images-idx3-ubyte", fs::read(temp.path().join("train-images-idx3-ubyte")).unwrap()),
        ("t.csv", csv.into()),
        ("t.csv.gz", gzip(csv.as_bytes())),
        ("cifar.tar.gz", tar_gz("x", &[("test_batch.bin".into(), cifar_file(1, &[&[1]]))])),
    ];
    let preprocess = open(Source::Digits, None, &Options::default()).unwrap().preprocess().unwrap();
    let (mut refusals, random) = (0, Stream::numbered(23));
    for (case, (name, whole)) in files.iter().enumerate() {
        for round in 0..150 {
            let own = random.fork(case as u64 * 1000 + round);
            let mut damaged = whole.clone();
            for hit in 0..1 + own.below(0, 4) {
                let place = own.below(3 * hit + 1, damaged.len() as u64) as usize;
                match own.below(3 * hit + 2, 3) {
                    0 => damaged[place] = own.below(3 * hit + 3, 256) as u8,
                    1 => damaged[place] ^= 1 << own.below(3 * hit + 3, 8),
                    _ => damaged.truncate(place.max(1)),
                }
            }
            let path = temp.write(name, &damaged);
            let refused = match case {
                0 | 1 => load_image(&path, &preprocess).err(),
                2 => open(Source::Mnist, Some(temp.path()), &Options::default()).err(),
                3 | 4 => open(Source::Csv, Some(&path), &Options::default()).err(),
                _ => open(Source::Cifar10, Some(&path), &Options::default()).err(),
            };
            if let Some(error) = refused {
                says(&error, &[]);
                refusals += 1;
            }
        }
    }
    assert!(refusals > 300, "{refusals}");
}
