//! Tables: names, missing values, categories, and the same for other rows.

mod common;

use common::*;
use ftprop_data::{ColumnKind, CsvOptions, CsvTable, Missing, Options, Source, TableTransform, TestPart, open};

fn with(csv: CsvOptions) -> Options {
    Options { csv, ..Options::default() }
}

fn transform(text: &str, options: &CsvOptions) -> TableTransform {
    let temp = Temp::new();
    let table = CsvTable::read(&temp.write("t.csv", text), options.header).unwrap();
    TableTransform::fit(&table, table.width() - 1, options, |_| true).unwrap()
}

fn table(text: &str) -> CsvTable {
    CsvTable::read(&Temp::new().write("t.csv", text), None).unwrap()
}

#[test]
fn all_spellings_of_a_table_are_one() {
    let temp = Temp::new();
    let plain = "a,b,kind\n1,2.5,x\n-3,4,y z\n5,6,x\n7,8,y z\n9,1,x\n";
    let expected = open(Source::Csv, Some(&temp.write("plain.csv", plain)), &Options::default()).unwrap();
    let quoted = "\u{feff}\"a\";\"b\";\"kind\"\r\n\"1\"; 2.5 ;x\r\n-3;4;\"y z\"\r\n5;6;x\r\n7;8;y z\r\n9;1;x\r\n";
    let spellings = [
        ("semicolons.csv", quoted.as_bytes().to_vec()),
        ("tabs.tsv", plain.replace(',', "\t").into_bytes()),
        ("packed.csv.gz", gzip(plain.as_bytes())),
        ("packed.csv", gzip(quoted.as_bytes())),
        ("blank.csv", format!("\n\n{plain}\n\n").into_bytes()),
    ];
    for (name, text) in spellings {
        let found = open(Source::Csv, Some(&temp.write(name, text)), &Options::default()).unwrap();
        assert_eq!(found.table, expected.table, "{name}");
        assert_eq!(found.normalize, expected.normalize, "{name}");
        assert_eq!(found.train.numbers(), expected.train.numbers(), "{name}");
    }
}

#[test]
fn columns_are_matched_by_their_names() {
    let temp = Temp::new();
    let train = temp.write("train.csv", "a,b,kind\n1,10,x\n2,20,y\n3,30,x\n");
    // Another order, other labels first, and a class missing.
    let test = temp.write("test.csv.gz", gzip(b"kind,b,a\ny,20,2\ny,10,1\n"));
    let csv = CsvOptions {
        label: ftprop_data::LabelColumn::Name("kind".into()),
        test: TestPart::File(test.clone()),
        ..CsvOptions::default()
    };
    let data = open(Source::Csv, Some(&train), &with(csv)).unwrap();
    let transform = data.table.unwrap();
    let found = CsvTable::read(&test, None).unwrap();
    assert_eq!(transform.features(&found).unwrap(), [2.0, 20.0, 1.0, 10.0]);
    assert_eq!((data.test.label(0), data.test.label(1), data.classes.len()), (1, 1, 2));
    // Without labels, as new rows come.
    assert_eq!(transform.features(&table("b,a\n5,4\n")).unwrap(), [4.0, 5.0]);
    assert_eq!(transform.features(&table("4,5\n")).unwrap(), [4.0, 5.0]);
    let wrong = |text: &str| transform.features(&table(text)).unwrap_err().to_string();
    assert!(wrong("a,c,d\n1,2,3\n").contains("missing: `b`"));
    assert!(wrong("a,b,c,d\n1,2,3,4\n").contains("has not: `c`, `d`"));
    assert!(wrong("a,a,b,kind\n1,2,3,x\n").contains("same name"));
    assert!(transform.labels(&table("b,a\n5,4\n")).unwrap_err().to_string().contains("`kind`"));
    let unknown = transform.labels(&table("a,b,kind\n1,2,z\n")).unwrap_err().to_string();
    assert!(unknown.contains("`z`") && unknown.contains("`x`, `y`"), "{unknown}");
}

#[test]
fn missing_values_are_what_was_chosen() {
    let text = "a,b,kind\n1,2,x\n,2,y\nNA,2,x\n4,2,y\n7,2,x\n";
    let number = |missing: Missing| {
        let options = CsvOptions { missing, ..CsvOptions::default() };
        let fitted = transform(text, &options);
        let rows = fitted.features(&table(text)).unwrap();
        (fitted.columns[0].kind.clone(), rows, fitted)
    };
    let (kind, rows, _) = number(Missing::Mean);
    assert!(matches!(kind, ColumnKind::Number { fill: Some(4.0), indicator: false, .. }), "{kind:?}");
    assert_eq!(rows, [1.0, 2.0, 4.0, 2.0, 4.0, 2.0, 4.0, 2.0, 7.0, 2.0]);
    let (kind, ..) = number(Missing::Median);
    assert!(matches!(kind, ColumnKind::Number { fill: Some(4.0), .. }));
    let (_, rows, fitted) = number(Missing::Indicator);
    assert_eq!(fitted.width(), 3);
    assert_eq!(rows[..6], [1.0, 0.0, 2.0, 4.0, 1.0, 2.0]);
    // A column without any may have some later.
    assert_eq!(fitted.features(&table("a,b\n1,?\n")).unwrap(), [1.0, 0.0, 2.0]);
    // Standardised: mean 0 and deviation 1 over the training rows; the indicator stays as it is.
    let inputs = fitted.inputs(&table(text)).unwrap();
    let first: Vec<f32> = inputs.iter().step_by(3).copied().collect();
    assert!(first.iter().sum::<f32>().abs() < 1e-6 && (first.iter().map(|x| x * x).sum::<f32>() - 5.0).abs() < 1e-5);
    assert_eq!((inputs[1], inputs[4], inputs[2]), (0.0, 1.0, 0.0));
}

/// `NA` was blamed for not being a number, though it is known to be none.
#[test]
fn missing_values_that_nothing_stands_for_are_called_that() {
    for (cell, says) in
        [("", "nothing in column 1 (`a`), a missing value"), ("NA", "`NA` in column 1 (`a`), a missing value")]
    {
        let text = format!("a,b,kind\n1,2,x\n{cell},2,y\n");
        let read = table(&text);
        let error = TableTransform::fit(&read, 2, &CsvOptions::default(), |_| true).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(says) && said.contains("mean, median or indicator"), "{said}");
        // The setting's name is that of whoever has settings.
        assert!(error.line() == Some(3) && !said.contains("csv."), "{said}");
        // Rows of another file, where the training file had all values.
        let fitted = transform("a,b,kind\n1,2,x\n3,2,y\n", &CsvOptions::default());
        assert!(fitted.features(&read).unwrap_err().to_string().contains(says));
    }
}

#[test]
fn texts_become_a_number_each() {
    let text = "colour,size,zip,kind\nred,1,100,x\nblue,2,200,y\n,3,100,x\n";
    let options = CsvOptions { missing: Missing::Mean, categories: vec!["zip".into()], ..CsvOptions::default() };
    let fitted = transform(text, &options);
    assert_eq!(fitted.width(), 6);
    let rows = fitted.features(&table(text)).unwrap();
    assert_eq!(rows[..6], [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(rows[12..], [1.0, 0.0, 0.0, 3.0, 1.0, 0.0]);
    let unknown = fitted.features(&table("colour,size,zip\ngreen,1,100\n")).unwrap_err().to_string();
    assert!(unknown.contains("`green`") && unknown.contains("column 1 (`colour`)"), "{unknown}");
    let bad = CsvOptions { categories: vec!["zap".into()], ..CsvOptions::default() };
    let table = table(text);
    assert!(TableTransform::fit(&table, 3, &bad, |_| true).unwrap_err().to_string().contains("`zap`"));
}

#[test]
fn only_training_rows_decide_and_the_transformation_can_be_kept() {
    let temp = Temp::new();
    let text: String = (0..50).map(|i| format!("{},{},{}\n", i, ["u", "v"][i % 2], i % 3)).collect();
    let path = temp.write("t.csv", text);
    let data = open(Source::Csv, Some(&path), &Options::default()).unwrap();
    let fitted = data.table.clone().unwrap();
    let rows: Vec<f64> = (0..data.train.len()).map(|i| data.train.number(i) as f64).collect();
    let mean = rows.iter().sum::<f64>() / rows.len() as f64;
    let ColumnKind::Number { mean: found, .. } = fitted.columns[0].kind else { panic!("{fitted:?}") };
    assert_eq!(found, mean as f32);
    assert_eq!(data.classes, ["0", "1", "2"]);
    let kept = serde_json::to_string(&fitted).unwrap();
    assert_eq!(serde_json::from_str::<TableTransform>(&kept).unwrap(), fitted);
    assert!(serde_json::from_str::<TableTransform>(&kept.replace("label_at", "labels_at")).is_err());
    let (table, split) =
        (CsvTable::read(&path, None).unwrap(), fitted.split(&CsvTable::read(&path, None).unwrap()).unwrap());
    assert_eq!((split.len(), split.label(4)), (table.rows(), 1));
}

/// Columns of one name were matched by their places, so a file with another order was measured wrong without a word.
#[test]
fn two_columns_of_one_name_are_refused() {
    let temp = Temp::new();
    let text = "a,a,kind\n1,2,x\n2,3,y\n3,4,x\n4,5,y\n5,6,x\n";
    let error =
        |csv: CsvOptions| open(Source::Csv, Some(&temp.write("t.csv", text)), &with(csv)).unwrap_err().to_string();
    let said = error(CsvOptions::default());
    assert!(said.contains("same name, `a`") && said.contains("data.csv.header"), "{said}");
    // A first line that is a row may say a thing twice.
    let letters = "p,p,x\nq,p,y\np,q,x\nq,q,y\np,p,y\nq,p,x\n";
    let rows = CsvOptions { header: Some(false), ..CsvOptions::default() };
    let data = open(Source::Csv, Some(&temp.write("letters.csv", letters)), &with(rows)).unwrap();
    assert_eq!(data.train.len() + data.test.len(), 6);
}

/// A network of a table without names lost the first row of a table of texts, which was taken for names.
#[test]
fn the_first_row_of_a_table_without_names_is_a_row() {
    let temp = Temp::new();
    let options = CsvOptions { header: Some(false), ..CsvOptions::default() };
    let fitted = transform("p,r,x\nq,r,y\np,s,x\nq,s,y\n", &options);
    for (text, rows) in [("p,s\nq,r\n", 2), ("p,s\n", 1), ("p,s,x\nq,r,y\n", 2), ("first,second\np,s\n", 1)] {
        let table = fitted.read(&temp.write("new.csv", text), None).unwrap();
        assert_eq!(table.rows(), rows, "{text}");
        assert_eq!(fitted.features(&table).unwrap().len(), 4 * rows, "{text}");
    }
    let table = fitted.read(&temp.write("new.csv", "p,s\nq,r\n"), None).unwrap();
    assert_eq!((table.line(0), table.line(1), table.cell(1, 0)), (1, 2, "q"));
    assert!(fitted.read(&temp.write("new.csv", "first,second\n"), None).unwrap_err().to_string().contains("header"));
}

#[test]
fn columns_can_be_left_out() {
    let options = CsvOptions { ignore: vec!["id".into()], ..CsvOptions::default() };
    let fitted = transform("id,a,kind\nr1,1,x\nr2,2,y\nr3,3,x\n", &options);
    assert_eq!(fitted.width(), 1);
    for text in ["id,a,kind\nr9,5,x\n", "a,id\n5,\n", "a\n5\n"] {
        assert_eq!(fitted.features(&table(text)).unwrap(), [5.0], "{text}");
    }
    assert_eq!(fitted.labels(&table("kind,a,id\ny,5,z\n")).unwrap(), [1]);
    let wrong = |text: &str| fitted.features(&table(text)).unwrap_err().to_string();
    assert!(wrong("1,2\n3,4\n").contains("names of the columns"));
    assert!(wrong("a,b,id\n1,2,3\n").contains("`b`"));
    let kept: TableTransform = serde_json::from_str(&serde_json::to_string(&fitted).unwrap()).unwrap();
    assert_eq!(kept, fitted);
    let fit = |ignore: &[&str]| {
        let options =
            CsvOptions { ignore: ignore.iter().map(|name| name.to_string()).collect(), ..CsvOptions::default() };
        TableTransform::fit(&table("id,a,kind\n1,1,x\n2,2,y\n"), 2, &options, |_| true).unwrap_err().to_string()
    };
    assert!(fit(&["idd"]).contains("`idd`") && fit(&["kind"]).contains("`kind`") && fit(&["id", "a"]).contains("all"));
}

/// Numbers in another spelling, and names of rows, became categories that say nothing of new rows.
#[test]
fn texts_that_are_no_categories_are_refused() {
    let fit = |cell: fn(usize) -> String, categories: Vec<String>| {
        let rows: String = (0..60).map(|i| format!("{};{};{}\n", cell(i), i, ["x", "y"][i % 2])).collect();
        let options = CsvOptions { categories, ..CsvOptions::default() };
        let table = table(&format!("a;b;kind\n{rows}"));
        TableTransform::fit(&table, 2, &options, |_| true).map_err(|error| error.to_string())
    };
    let comma = fit(|i| format!("{},5", i % 7), vec![]).unwrap_err();
    assert!(comma.contains("column 1 (`a`)") && comma.contains("decimal comma") && comma.contains("`0,5`"), "{comma}");
    // A thousand times as much, or as little, would be learned from if the wrong one were meant.
    let either = fit(|i| format!("{},{:03}", 90 + i % 7, i), vec![]).unwrap_err();
    assert!(either.contains("`90,000`; if it divides thousands leave it out, if it is a decimal comma"), "{either}");
    let thousands: [fn(usize) -> String; 2] =
        [|i| format!("{},234,567", i % 7), |i| format!("-{},{:03}.5", 1 + i % 700, i)];
    for thousands in thousands.map(|cell| fit(cell, vec![]).unwrap_err()) {
        assert!(
            thousands.contains("commas between thousands") && thousands.contains("write them without"),
            "{thousands}"
        );
    }
    let most = fit(|i| format!("{},{:03}", 1000 + i % 7, i), vec![]).unwrap_err();
    assert!(most.contains("decimal comma, such as `1000,000`"), "{most}");
    assert!(fit(|i| format!("{},{}", i % 7, i % 3), vec![]).unwrap_err().contains("decimal comma"));
    let names = fit(|i| format!("row{i}"), vec![]).unwrap_err();
    assert!(names.contains("60 different texts in 60 rows") && names.contains("(data.csv.ignore)"), "{names}");
    assert_eq!(fit(|i| format!("row{i}"), vec!["a".into()]).unwrap().width(), 61);
    assert_eq!(fit(|i| format!("group{}", i % 30), vec![]).unwrap().width(), 31);
}

#[test]
fn what_is_wrong_with_single_rows_is_told_row_by_row() {
    let fitted = transform("a,colour,kind\n1,red,x\n2,blue,y\n", &CsvOptions::default());
    let (sound, wrong) = fitted.sound(table("colour,a\nred,1\npurple,2\nblue,many\nblue,3\n")).unwrap();
    assert_eq!((sound.rows(), sound.line(0), sound.line(1)), (2, 2, 5));
    assert_eq!(fitted.features(&sound).unwrap(), [1.0, 0.0, 1.0, 3.0, 1.0, 0.0]);
    assert_eq!(wrong.iter().map(|why| why.line()).collect::<Vec<_>>(), [Some(3), Some(4)]);
    assert!(wrong[0].to_string().contains("`purple`") && wrong[1].to_string().contains("`many`"));
    assert!(fitted.sound(table("a,b\n1,2\n")).is_err());
}

/// Times in seconds since 1970 became a few numbers, for 32 bits do not tell them apart, and nothing could be learnt.
#[test]
fn numbers_far_from_0_are_told_apart() {
    let text = |offset: u64, cell: fn(u64) -> bool| {
        let time = |i: u64| if cell(i) { (offset + i).to_string() } else { "NA".into() };
        let rows: String =
            (0..120).map(|i| format!("{},{},{}\n", time(i), i % 7, ["x", "y"][i as usize / 60])).collect();
        format!("time,b,kind\n{rows}")
    };
    type Given = fn(u64) -> bool;
    let every: Given = |_| true;
    let most: Given = |i| i % 10 != 3;
    for (missing, given) in
        [(Missing::Refuse, every), (Missing::Mean, most), (Missing::Median, most), (Missing::Indicator, most)]
    {
        let options = CsvOptions { missing, ..CsvOptions::default() };
        let (near, far) = (text(0, given), text(1_700_000_000, given));
        let (plain, fitted) = (transform(&near, &options), transform(&far, &options));
        let ColumnKind::Number { origin, mean, .. } = fitted.columns[0].kind else { panic!("{fitted:?}") };
        assert!(origin == Some(1_700_000_060.0) && mean.abs() < 10.0, "{fitted:?}");
        assert_eq!((plain.origins(), fitted.columns[1].clone()), (vec![None, None], plain.columns[1].clone()));
        let (wanted, found) = (plain.inputs(&table(&near)).unwrap(), fitted.inputs(&table(&far)).unwrap());
        assert_eq!(wanted.len(), found.len());
        assert!(wanted.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-5), "{missing:?}: {wanted:?} {found:?}");
        // Kept and read again; where there is no origin nothing is said of one.
        let kept = serde_json::to_string(&fitted).unwrap();
        assert_eq!(serde_json::from_str::<TableTransform>(&kept).unwrap(), fitted);
        assert!(
            kept.contains("\"origin\":1700000060.0,") && !serde_json::to_string(&plain).unwrap().contains("origin")
        );
    }
    let temp = Temp::new();
    let data = open(Source::Csv, Some(&temp.write("t.csv", text(1_700_000_000, every))), &Options::default()).unwrap();
    assert_eq!((data.repeated(), data.train.len() + data.test.len()), (0, 120));
    // Rows of another file, where what is left is no number of 32 bits, and decimals for proofs.
    let fitted = transform(&text(1_700_000_000, every), &CsvOptions::default());
    let wrong = fitted.features(&table("time,b\n1700000000,1\n-1e39,1\n")).unwrap_err().to_string();
    assert!(
        wrong.contains("line 3") && wrong.contains("`-1e39` in column 1 (`time`) is beyond 32-bit numbers"),
        "{wrong}"
    );
    let rows = table("time,b\n1700000012.125,1\n1.7000001e9,2.50\n");
    assert_eq!(fitted.written(&rows).unwrap(), ["-47.875", "1", "40", "2.50"]);
    let long = fitted.written(&table("time,b\n1e-99,1\n")).unwrap_err().to_string();
    assert!(long.contains("line 2") && long.contains("`1e-99`") && long.contains("round it"), "{long}");
}

#[test]
fn numbers_that_32_bits_tell_apart_have_no_origin() {
    type Cell = fn(usize) -> String;
    let rows = |cell: Cell| -> String { (0..60).map(|i| format!("{},{}\n", cell(i), i % 2)).collect() };
    let cells: [(Cell, bool); 6] = [
        (|i| (1960 + i).to_string(), false),
        (|_| "1700000000.1".into(), false),
        (|_| "0.1".into(), false),
        (|i| format!("{}", 4000 + (i % 4 / 2) * 2), false),
        (|i| format!("{}", 5000 + (i % 4 / 2) * 2), true),
        (|i| format!("-1.0000000{}", i % 4), true),
    ];
    for (cell, far) in cells {
        let fitted = transform(&format!("a,kind\n{}", rows(cell)), &CsvOptions::default());
        assert_eq!(fitted.origins()[0].is_some(), far, "{fitted:?}");
    }
}

/// Models of before have texts with the line ends that their file had.
#[test]
fn texts_of_older_models_are_found_whatever_their_line_ends() {
    let mut fitted = transform("a,kind\n\"one\nline\",x\ntwo,y\n", &CsvOptions::default());
    let ColumnKind::Category { texts } = &mut fitted.columns[0].kind else { panic!("{fitted:?}") };
    texts[0] = "one\r\nline".into();
    let rows = table("a,kind\r\n\"one\r\nline\",x\r\ntwo,y\r\n");
    assert_eq!(fitted.features(&rows).unwrap(), [1.0, 0.0, 0.0, 1.0]);
}
