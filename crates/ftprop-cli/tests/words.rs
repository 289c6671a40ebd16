//! What people are told where something is misspelt, missing or out of place.

mod common;

use common::{Outcome, Temp, noise};
use std::fs::File;

#[test]
fn a_misspelt_recipe_is_answered_with_the_nearest() {
    let temp = Temp::new();
    for arguments in ["train --recipe digit", "sweep --recipe digit --grid optimizer.lr=1e-3,1e-4 --out s"] {
        temp.run(arguments).refused(1, &["no built-in recipe 'digit'", "did you mean digits?", "ftprop recipes"]);
    }
    temp.run("train --recipe no/digits").refused(1, &["no/digits", "no such file"]);
    temp.run("train --recipe digit.toml").refused(1, &["digit.toml", "no such file"]);
    temp.run("summary digit").refused(1, &["no such file", "did you mean digits?"]);
    temp.run("summary runs/digits").refused(1, &["runs/digits", "no such file"]);
    temp.run("recipes digit").refused(1, &["no built-in recipe 'digit'", "did you mean digits?"]);
    // What happens to lie here is not in the way.
    temp.write("digits/any", "");
    temp.run("train --dry-run --recipe digits").ok();
    temp.run("train --dry-run").ok();
    let unknown = temp.run("recipes of-nobody-at-all");
    unknown.refused(1, &["no built-in recipe 'of-nobody-at-all'", "ftprop recipes"]);
    assert!(!unknown.err.contains("did you mean") && !unknown.err.contains("24 cells"), "{unknown:?}");
}

/// The program with a file as its standard input.
fn run_with(temp: &Temp, input: &str, arguments: &str) -> Outcome {
    let mut command = temp.command(arguments);
    command.stdin(File::open(temp.path(input)).unwrap());
    Outcome::of(arguments, command)
}

#[test]
fn predict_says_what_it_wants_from_standard_input() {
    let temp = Temp::new();
    temp.photos("photos");
    let train =
        "train --data photos --set network.preset=mlp --set network.widths=[8] --set data.resize=10 --set data.crop=8";
    temp.run(&format!("{train} --epochs 1 --quiet --out run")).ok();
    let picture = "photos/val/dark/0.png";
    run_with(&temp, picture, "predict run -")
        .refused(1, &["paths of pictures", "the bytes of a picture", "instead of -"]);
    temp.write("noise", noise(1, 3000));
    run_with(&temp, "noise", "predict run -").refused(1, &["paths of pictures", "one a line", "binary data"]);
    temp.write("names", "\n\n");
    run_with(&temp, "names", "predict run -").refused(1, &["standard input names no picture"]);
    temp.write("names", format!("{picture}\r\n\nphotos/val/bright/0.png\n"));
    assert_eq!(run_with(&temp, "names", "predict run -").ok().out.lines().count(), 2);
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let name = b"gr\xfcn.png";
        std::fs::copy(temp.path(picture), temp.path("").join(std::ffi::OsStr::from_bytes(name))).unwrap();
        temp.write("names", name);
        run_with(&temp, "names", "predict run -").ok();
    }
}

/// What a file is called is what it is.
#[test]
fn endings_of_other_kinds_of_files_are_refused() {
    let temp = Temp::new();
    temp.run("train --epochs 1 --out run --quiet").ok();
    for file in ["x.pdf", "x.JPG"] {
        temp.run(&format!("plot run --out {file}")).refused(1, &[file, ".svg and .png"]);
        temp.run(&format!("eval run --plot {file}")).refused(1, &[file, ".svg and .png"]);
        temp.run(&format!("solve --data xor --plot {file}")).refused(1, &[file, ".svg and .png"]);
    }
    temp.run("export run -o x.onnx --format torch").refused(2, &["x.onnx", "--format"]);
    temp.run("export run -o x.ftp --format onnx").refused(2, &["x.ftp", "--format"]);
    let left: Vec<_> = std::fs::read_dir(temp.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["run"]);
    // A version is no ending.
    temp.run("plot run --out v1.2").ok();
    assert!(temp.path("v1.2.svg").exists() && temp.path("v1.2.png").exists());
}

/// A table has rows and no images, and of three classes all are among the first five.
#[test]
fn figures_are_called_what_they_are() {
    let temp = Temp::new();
    temp.write("three.csv", format!("x,y,kind\n{}", "1,2,a\n3,1,b\n2,9,c\n".repeat(9)));
    let trained = temp.run("train --data three.csv --epochs 2 --out run").ok();
    temp.run("export run -o run.ftp").ok();
    for model in ["run", "run.ftp"] {
        let said = temp.run(&format!("eval {model} --data three.csv")).ok().out;
        assert!(said.contains("top-1") && !said.contains("top-5") && !said.contains("images"), "{said}");
        assert!(temp.run(&format!("bench infer {model} --steps 1")).ok().out.contains(" rows/s"));
    }
    let packed = temp.run("summary run.ftp").ok().out;
    assert!(packed.contains("rows of 2 columns, which become 2 numbers: x, y"), "{packed}");
    assert!(!trained.err.contains("images") && !trained.out.contains("images"), "{trained:?}");
    temp.run("train --epochs 1 --out digits --quiet").ok();
    assert!(temp.run("eval digits").ok().out.contains("top-5"));
    // Columns of a packed model's layers begin below each other, however long a name is.
    temp.run("export digits -o digits.ftp").ok();
    let layers = temp.run("summary digits.ftp").ok().out;
    let second = |line: &str| {
        let letters: Vec<char> = line.chars().collect();
        (1..letters.len()).rev().find(|&at| letters[at - 1] == ' ' && letters[at - 2] == ' ')
    };
    let columns: Vec<_> = layers.lines().filter(|line| line.starts_with("  ")).map(second).collect();
    assert!(columns.len() > 4 && columns.iter().all(|column| *column == columns[0]), "{columns:?} in\n{layers}");
}

/// A character may take two columns of a terminal, and what stands behind it still stands in its own.
#[test]
fn wide_letters_do_not_shift_tables() {
    let temp = Temp::new();
    temp.write("wide.csv", format!("x,kind\n{}", "1,猫\n5,naïve\n9,\u{1f431} cat\n".repeat(20)));
    temp.run("train --data wide.csv --epochs 1 --quiet --out run").ok();
    let said = temp.run("eval run --confusion").ok().out;
    // Letters that take two columns are written as two here, so that columns are letters.
    let columns = |line: &str| line.replace(['猫', '\u{1f431}'], "..").chars().collect::<Vec<_>>();
    let tables: Vec<Vec<char>> = said.lines().skip(2).filter(|line| line.contains("  ")).map(columns).collect();
    assert_eq!(tables.len(), 8, "{said}");
    for table in tables.chunks(4) {
        assert!(table.iter().all(|line| line.len() == table[0].len()), "columns end elsewhere: {said}");
    }
    let drawn = temp.run("eval run --plot wide.png").ok();
    assert!(drawn.err.contains("wide.svg and wide.png"), "{drawn:?}");
    let svg = temp.text("wide.svg");
    assert!(svg.contains(">top-1 ") && svg.contains("of 12 examples"), "{svg}");
}

/// Pictures that do not decode can be left out wherever they are met, and the error says how.
#[test]
fn bad_pictures_can_be_left_out_of_measuring_too() {
    let temp = Temp::new();
    temp.photos("photos");
    temp.write("photos/val/dark/bad.png", "no picture");
    let train =
        "train --data photos --set network.preset=mlp --set network.widths=[8] --set data.resize=10 --set data.crop=8";
    let how = "--set data.bad_images=skip in training, --bad-images skip in eval";
    temp.run(&format!("{train} --epochs 1 --quiet --out run")).refused(1, &["bad.png", how]);
    temp.run(&format!("{train} --epochs 1 --quiet --out run --set data.bad_images=skip")).ok();
    temp.run("export run -o run.ftp").ok();
    temp.run("eval run.ftp --data photos --json").refused(1, &["bad.png", how]);
    assert_eq!(temp.run("eval run.ftp --data photos --bad-images skip --json").json()["examples"], 8);
    assert_eq!(temp.run("eval run --json").json()["examples"], 8);
    temp.run("eval run --bad-images stop --json").refused(1, &["bad.png"]);
}
