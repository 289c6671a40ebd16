//! Every format, read from small files written here.

mod common;

use std::path::Path;

use common::*;
use ftprop_data::{
    CsvOptions, DataError, Dataset, LabelColumn, Loader, LoaderConfig, Normalize, Options, Preprocess, Shape, Source,
    Split, TestPart, load_image, load_pixels, open,
};

fn read(source: Source, path: &Path) -> Dataset {
    open(source, Some(path), &Options::default()).unwrap()
}

fn labels(split: &Split) -> Vec<u32> {
    (0..split.len()).map(|i| split.label(i)).collect()
}

/// Everything a split holds, in order, not normalised.
fn raw(split: &Split) -> Vec<f32> {
    let channels = split.shape().channels;
    let normalize = Normalize { full: 1.0, mean: vec![0.0; channels], std: vec![1.0; channels] };
    let mut epoch = Loader::new(split, LoaderConfig::evaluation(1, normalize)).unwrap().epoch(0, 0);
    let mut values = Vec::new();
    while let Some(batch) = epoch.next_batch().unwrap() {
        values.extend_from_slice(batch.images);
    }
    values
}

fn check_cifar10(cifar: &Dataset) {
    assert_eq!(cifar.shape, Shape::new(32, 32, 3));
    assert_eq!(labels(&cifar.train), [1, 8, 0, 2, 7, 0, 3, 6, 0, 4, 5, 0, 5, 4, 0]);
    assert_eq!(labels(&cifar.test), [3, 9]);
    // The file has channel by channel, memory pixel by pixel.
    let planes = noise(6001, 3072);
    let second = &raw(&cifar.test)[3072..];
    for (i, &value) in second.iter().enumerate() {
        assert_eq!(value, f32::from(planes[i % 3 * 1024 + i / 3]));
    }
}

#[test]
fn cifar10_from_its_folder_its_parent_or_the_archive() {
    let temp = Temp::new();
    for (name, content) in cifar10_files() {
        temp.write(&format!("cifar-10-batches-bin/{name}"), content);
    }
    check_cifar10(&read(Source::Cifar10, temp.path()));
    let in_folder = read(Source::Cifar10, &temp.path().join("cifar-10-batches-bin"));
    check_cifar10(&in_folder);
    assert_eq!(in_folder.classes[0], "airplane");

    let temp = Temp::new();
    let mut files = cifar10_files();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].join("\n") + "\n\n";
    files.push(("batches.meta.txt".into(), names.into_bytes()));
    let archive = temp.write("cifar-10-binary.tar.gz", tar_gz("cifar-10-batches-bin", &files));
    for path in [temp.path(), &archive] {
        let cifar = read(Source::Cifar10, path);
        check_cifar10(&cifar);
        assert_eq!(cifar.classes.join(""), "abcdefghij");
    }
}

#[test]
fn cifar100_uses_the_fine_labels() {
    let temp = Temp::new();
    temp.write("cifar-100-binary/train.bin", cifar_file(1, &[&[0, 99], &[19, 4], &[3, 50]]));
    temp.write("cifar-100-binary/test.bin", cifar_file(2, &[&[5, 7]]));
    let cifar = read(Source::Cifar100, temp.path());
    assert_eq!((labels(&cifar.train), labels(&cifar.test)), (vec![99, 4, 50], vec![7]));
    assert_eq!((cifar.classes.len(), cifar.classes[99].as_str()), (100, "worm"));
}

#[test]
fn mnist_plain_gzipped_and_in_either_spelling() {
    let temp = Temp::new();
    write_mnist(&temp, 12, 3);
    let mnist = read(Source::Mnist, temp.path());
    assert_eq!(mnist.shape, Shape::new(3, 2, 1));
    assert_eq!(labels(&mnist.train), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
    assert!(raw(&mnist.train).iter().zip(noise(7, 72)).all(|(&value, byte)| value == f32::from(byte)));
    assert_eq!(mnist.normalize, Normalize::pixels(&[0.1307], &[0.3081]));

    let other = Temp::new();
    for name in ["train-images", "train-labels", "t10k-images", "t10k-labels"] {
        let dimensions = if name.ends_with("images") { 3 } else { 1 };
        let content = std::fs::read(temp.path().join(format!("{name}-idx{dimensions}-ubyte"))).unwrap();
        other.write(&format!("fashion-mnist/{name}.idx{dimensions}-ubyte.gz"), gzip(&content));
    }
    let fashion = read(Source::FashionMnist, other.path());
    assert_eq!(raw(&fashion.test), raw(&mnist.test));
    assert_eq!(fashion.classes[9], "Ankle boot");
}

#[test]
fn photos_are_sorted_resized_and_cut() {
    let temp = Temp::new();
    write_photos(&temp);
    let options = Options { resize: Some(10), crop: Some(8), ..Options::default() };
    let photos = open(Source::Folder, Some(temp.path()), &options).unwrap();
    assert_eq!(photos.classes, ["cat", "dog"]);
    assert_eq!((labels(&photos.train), labels(&photos.test)), (vec![0, 0, 0, 1, 1, 1], vec![0, 1, 1]));
    assert_eq!(photos.shape, Shape::new(8, 8, 3));

    // The second test picture already has the right size, so only its centre is cut.
    let picture = rgb(8, 10, 10);
    let values = raw(&photos.test);
    for y in 0..8 {
        for x in 0..8 {
            let pixel = picture.get_pixel(x + 1, y + 1).0.map(f32::from);
            assert_eq!(values[192 + (y * 8 + x) as usize * 3..][..3], pixel);
        }
    }
    // The first training picture is grey: all channels are alike.
    assert!(raw(&photos.train)[..192].chunks(3).all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
}

#[test]
fn a_single_picture_fits_any_network() {
    let temp = Temp::new();
    let path = temp.path().join("colour.png");
    rgb(1, 40, 24).save(&path).unwrap();
    let digits = open(Source::Digits, None, &Options::default()).unwrap();
    let values = load_image(&path, &digits.preprocess().unwrap()).unwrap();
    assert_eq!(values.len(), 64);
    assert!(values.iter().all(|v| v.is_finite()));
    // As bytes it is the same picture.
    let preprocess = digits.preprocess().unwrap();
    let table = &preprocess.normalize.tables()[0];
    let normalised: Vec<f32> = load_pixels(&path, &preprocess).unwrap().iter().map(|&v| table[v as usize]).collect();
    assert_eq!(normalised, values);

    // White is 1 before normalising, whatever range the data set's own values have.
    let white = temp.path().join("white.png");
    image::GrayImage::from_pixel(9, 9, image::Luma([255])).save(&white).unwrap();
    let values = load_image(&white, &digits.preprocess().unwrap()).unwrap();
    let one = (1.0 - digits.normalize.mean[0]) / digits.normalize.std[0];
    assert!(values.iter().all(|v| (v - one).abs() < 1e-6), "{values:?}");

    let too_small = Preprocess { resize: 4, ..digits.preprocess().unwrap() };
    assert!(matches!(load_image(&white, &too_small), Err(DataError::Option(_))));
}

#[test]
fn a_window_smaller_than_the_pictures_is_cut_from_their_centre() {
    let temp = Temp::new();
    write_mnist(&temp, 4, 1);
    let options = Options { crop: Some(1), ..Options::default() };
    let mnist = open(Source::Mnist, Some(temp.path()), &options).unwrap();
    assert_eq!((mnist.shape, mnist.train.shape()), (Shape::new(1, 1, 1), Shape::new(1, 1, 1)));
    // Row 1 of 3, column 0 of 2.
    assert_eq!(raw(&mnist.test), [f32::from(noise(7, 6)[2])]);
}

#[test]
fn tables_with_and_without_a_header() {
    let temp = Temp::new();
    let table = temp.write("iris.csv", "length,kind,width\n1,b,10\n2,a,10\n\n3.5,\"b\",10\n-1e2,c,10\n");
    let test = temp.write("test.csv", "length,kind,width\n7,c,1\n");
    let csv =
        CsvOptions { label: LabelColumn::Name("kind".into()), test: TestPart::File(test), ..CsvOptions::default() };
    let options = Options { csv, ..Options::default() };
    let data = open(Source::Csv, Some(&table), &options).unwrap();
    assert_eq!(data.classes, ["a", "b", "c"]);
    assert_eq!(labels(&data.train), [1, 0, 1, 2]);
    assert_eq!((labels(&data.test), raw(&data.test)), (vec![2], vec![7.0, 1.0]));
    assert_eq!(raw(&data.train), [1.0, 10.0, 2.0, 10.0, 3.5, 10.0, -100.0, 10.0]);
    // A constant column only loses its mean.
    assert_eq!((data.normalize.mean[1], data.normalize.std[1]), (10.0, 1.0));

    // No header, semicolons, gzipped, whole numbers as labels: numeric order, and a test part is held out.
    let rows: String = (0..20).map(|i| format!("{};{}.5;{}\n", [10, 9, 100][i % 3], i, i * i)).collect();
    let table = temp.write("plain.csv.gz", gzip(rows.as_bytes()));
    let csv = CsvOptions { label: LabelColumn::Index(0), ..CsvOptions::default() };
    let data = open(Source::Csv, Some(&table), &Options { csv, ..Options::default() }).unwrap();
    assert_eq!(data.classes, ["9", "10", "100"]);
    assert_eq!((data.train.len(), data.test.len(), data.shape), (16, 4, Shape::new(1, 1, 2)));
    // Standardised by the training part alone.
    let mut epoch = Loader::new(&data.train, LoaderConfig::evaluation(16, data.normalize.clone())).unwrap().epoch(0, 0);
    let batch = epoch.next_batch().unwrap().unwrap();
    for column in 0..2 {
        let values: Vec<f32> = batch.images.iter().skip(column).step_by(2).copied().collect();
        let mean = values.iter().sum::<f32>() / 16.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 16.0;
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-5, "{mean} {variance}");
    }
}

#[test]
fn a_name_opens_its_data_set() {
    for source in Source::ALL {
        assert_eq!(source.name().parse::<Source>().unwrap(), source);
    }
    let message = "cifar".parse::<Source>().unwrap_err().to_string();
    assert!(message.contains("`cifar`") && message.contains("cifar10, cifar100"), "{message}");
}

#[test]
fn class_folders_alone_are_divided_by_class_the_same_every_time() {
    let temp = Temp::new();
    for (class, count) in [("ant", 10), ("bee", 5), ("cow", 2), ("dog", 1)] {
        for i in 0..count {
            std::fs::create_dir_all(temp.path().join(class)).unwrap();
            rgb(i, 9, 9).save(temp.path().join(format!("{class}/{i}.bmp"))).unwrap();
        }
    }
    temp.write("ant/readme.TXT", "");
    temp.write("bee/film.mp4", "");
    temp.write("bee/notes.txt", "");
    let options = Options { resize: Some(8), crop: Some(8), ..Options::default() };
    let photos = open(Source::Folder, Some(temp.path()), &options).unwrap();
    assert_eq!(photos.classes, ["ant", "bee", "cow", "dog"]);
    assert_eq!(photos.passed_over.to_string(), "3 files that are no pictures were passed over: 1 .mp4, 2 .txt");
    let count = |split: &Split| (0..4).map(|c| (0..split.len()).filter(|&i| split.label(i) == c).count()).collect();
    let (train, test): (Vec<_>, Vec<_>) = (count(&photos.train), count(&photos.test));
    assert_eq!((train, test), (vec![8, 4, 1, 1], vec![2, 1, 1, 0]));
    let again = open(Source::Folder, Some(temp.path()), &options).unwrap();
    assert_eq!(again.test.numbers(), photos.test.numbers());
    let (a, b) =
        (photos.train.hold_out_of_each_class(0.25, 1).unwrap(), photos.train.hold_out_of_each_class(0.25, 2).unwrap());
    assert_eq!(a.1.len(), b.1.len());
    assert_ne!(a.1.numbers(), b.1.numbers());
    assert!(photos.train.hold_out_of_each_class(f64::NAN, 1).is_err());
}
