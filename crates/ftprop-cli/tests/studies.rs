//! `ftprop reproduce` and `ftprop sweep`: many runs, their reports, and going on after a stop.

mod common;

use common::{Outcome, Temp};

const CELLS: &str = "convnet4-sign-sste,convnet4-sign-ftpsh,convnet4-relu";

fn reproduce(more: &str) -> String {
    let small = "--seeds 2 --epochs 3 --validation 8 --set train.batch=16";
    format!("reproduce --data cifar --out table {small} --device cpu --cells {CELLS} {more}")
}

#[test]
fn a_small_reproduction_has_a_whole_report() {
    let temp = Temp::new();
    temp.cifar10("cifar");
    let run = temp.run(&reproduce("--diagnostics")).ok();
    // This is not CIFAR-10 as it was published, and nobody must take it for that.
    assert!(run.err.contains("40 training and 8 test examples, not the 50000 and 10000"), "{run:?}");
    let output = run.out;
    assert!(output.contains("paper, best epoch") && output.contains("table/report.html"), "{output}");

    let report = temp.text("table/report.md");
    for part in [
        "run again: the networks for CIFAR-10, on 40 training examples of it",
        "not all pictures of CIFAR-10: 40 were there to learn from and 8 to measure by, instead of 50000 and 10000",
        "6 of 6 runs are finished, 3 epochs each",
        "|  | sign, SSTE | sign, FTP-SH | ReLU |",
        "| paper, best epoch | 80.6 | 81.3 | 86.5 |",
        "| PyTorch, one run of 270 epochs, best | 81.0 | 81.4 | 86.1 |",
        "| ours, epoch chosen on validation |",
        "| 4-layer convnet, sign | +0.7 |",
        "| convnet4-relu | 2 | 3 |",
        "figures/convnet4.png",
        "figures/convnet4-sign-diagnostics.png",
        "ftprop reproduce --data cifar --out table --seeds 2",
        "threads",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    assert!(!report.contains("− paper"), "figures that may not be compared are subtracted from each other: {report}");
    // Figures of the report are those of the runs.
    let accuracy = |seed: u32| {
        let run = temp.json(&format!("table/runs/convnet4-sign-ftpsh/seed-{seed}/summary.json"));
        100.0 * run["test"]["top1_last"].as_f64().unwrap()
    };
    let mean = format!("{:.2} ± ", (accuracy(1) + accuracy(2)) / 2.0);
    let last = report.lines().find(|line| line.starts_with("| ours, last epoch |")).unwrap();
    assert!(last.split('|').nth(3).unwrap().contains(&mean), "{mean} is not in the third column of {last}");

    let page = temp.text("table/report.html");
    assert!(page.contains("<svg ") && !page.contains("src=") && !page.contains("href="), "the page fetches something");
    for file in ["svg", "png"] {
        assert!(!temp.read(&format!("table/figures/convnet4.{file}")).is_empty());
    }

    // Nothing is left to do, and another length is not taken for this one.
    let before = temp.read("table/history.jsonl");
    std::fs::remove_file(temp.path("table/runs/convnet4-relu/seed-1/checkpoint.safetensors")).unwrap();
    temp.run(&reproduce("")).ok();
    assert!(!temp.path("table/runs/convnet4-relu/seed-1/checkpoint.safetensors").exists(), "it was run again");
    assert_eq!(before, temp.read("table/history.jsonl"));
    temp.run(&reproduce("--epochs 4").replacen("--epochs 3", "", 1)).refused(1, &["another recipe", "--out"]);
    let only = "reproduce --out table --seeds 2 --epochs 3 --validation 8 --set train.batch=16 --report-only";
    // Only what was trained is reported: another report must not replace a good one.
    let report = temp.read("table/report.md");
    for (from, to, word) in [
        ("--epochs 3", "", "another recipe"),
        ("--seeds 2 --epochs 3", "--seeds 1 --epochs 4", "another recipe"),
        ("--report-only", "--report-only --table imagenet", "another recipe"),
        ("--out table", "--out typo", "none of these runs"),
    ] {
        temp.run(&only.replace(from, to)).refused(1, &[word, "flags"]);
        assert!(report == temp.read("table/report.md") && !temp.path("typo").exists());
    }
    temp.write("table/NOTES.md", "# Notes\nSeed 1 was\nlucky.\n\nSeed 2 not.\n");
    let output = temp.run(only).ok().out;
    assert!(output.contains("8-layer convnet"), "{output}");
    let report = temp.text("table/report.md");
    assert!(
        report.contains("6 of 24 runs are finished") && report.contains("\n\nSeed 1 was lucky.\n\nSeed 2 not.\n"),
        "{report}"
    );
}

/// What was run is not lost from the report because somebody asks for less of it, or for other cells.
#[test]
fn a_report_covers_what_was_run_in_its_folder() {
    let temp = Temp::new();
    temp.cifar10("cifar");
    let base = "reproduce --data cifar --out table --epochs 1 --validation 8 --set train.batch=16 --device cpu";
    temp.run(&format!("{base} --seeds 2 --cells convnet4-sign-sste,convnet4-sign-ftpsh --quiet")).ok();
    let figures = |report: &str| report.split("## Time").next().unwrap().to_string();
    let whole = temp.text("table/report.md");
    assert!(whole.contains("4 of 4 runs are finished"), "{whole}");
    for less in ["--seeds 1 --cells convnet4-sign-sste", "--seeds 1 --cells convnet4-sign-sste --report-only"] {
        let again = temp.run(&format!("{base} {less}")).ok();
        assert!(
            again
                .err
                .contains("the report also has 3 runs that are there already: convnet4-sign-sste, convnet4-sign-ftpsh"),
            "{again:?}"
        );
        assert_eq!(figures(&temp.text("table/report.md")), figures(&whole), "{less}");
    }
    temp.run(&format!("{base} --cells convnet4-relu --quiet")).ok();
    let more = temp.text("table/report.md");
    assert!(more.contains("5 of 5 runs are finished") && more.contains("| seeds | 2 | 2 | 1 |"), "{more}");

    // What cannot stand in the same table is refused before anything is trained.
    let other = format!("{} --cells convnet4-saturated-relu", base.replace("--epochs 1", "--epochs 2"));
    temp.run(&format!("{other} --quiet"))
        .refused(1, &["table/runs/convnet4-sign-sste/seed-1", "other settings", "--out"]);
    temp.photos("photos");
    let rows = base.replace("--data cifar", "--data photos --table imagenet");
    temp.run(&format!("{rows} --cells resnet18-relu --quiet")).refused(1, &["another study", "convnet4", "--out"]);
    assert_eq!(temp.text("table/report.md"), more);
    assert!(!temp.path("table/runs/convnet4-saturated-relu").exists());
}

#[test]
fn a_reproduction_goes_on_after_any_end() {
    let temp = Temp::new();
    temp.cifar10("cifar");
    temp.run(&reproduce("--quiet")).ok();
    std::fs::rename(temp.path("table"), temp.path("whole")).unwrap();

    // Out of time at once, then killed a few times, then left to end.
    assert_eq!(temp.run(&reproduce("--quiet --minutes 0.00001")).code, Some(130));
    for milliseconds in [150, 400, 700] {
        let mut child = temp.start(&reproduce("--quiet"));
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        let _ = child.kill();
        child.wait().unwrap();
    }
    temp.run(&reproduce("--quiet")).ok();
    for cell in CELLS.split(',') {
        for seed in 1..=2 {
            temp.assert_same_result(
                &format!("table/runs/{cell}/seed-{seed}"),
                &format!("whole/runs/{cell}/seed-{seed}"),
            );
        }
    }
}

#[test]
fn a_sweep_trains_every_combination() {
    let temp = Temp::with_recipes();
    let sweep = "sweep --recipe small.toml --epochs 2 --grid layer_loss=soft_hinge,saturated_hinge \
                 --grid optimizer.lr=1e-2,1e-3 --out sweep --device cpu";
    let output = temp.run(sweep).ok().out;
    let of_a_loss = |line: &&str| ["soft_hinge ", "saturated_hinge "].iter().any(|loss| line.starts_with(loss));
    let rows: Vec<&str> = output.lines().map(str::trim_start).filter(of_a_loss).collect();
    assert_eq!(rows.len(), 4, "{output}");
    assert!(output.contains("small, soft_hinge − saturated_hinge, 1e-3"), "{output}");
    let report = temp.text("sweep/report.md");
    for part in
        ["4 of 4 runs are finished", "| `layer_loss` | `optimizer.lr` | last epoch |", "figures/small.png", sweep]
    {
        let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(report.contains(&part), "{part} is not in\n{report}");
    }
    // The best come first.
    let last = |row: &str| row.split_whitespace().nth(2).unwrap().parse::<f64>().unwrap();
    assert!(rows.windows(2).all(|pair| last(pair[0]) >= last(pair[1])), "{output}");

    // A run of a sweep is the run it says.
    let settings = "--set layer_loss=saturated_hinge --set optimizer.lr=1e-3 --seed 1";
    temp.run(&format!("train --recipe small.toml --quiet --device cpu {settings} --out alone")).ok();
    let run = "sweep/runs/small/layer_loss-saturated_hinge_optimizer.lr-1e-3/seed-1";
    let weights = |path: &str| temp.run(&format!("eval {path} --json")).json()["loss"].clone();
    assert_eq!(weights(run), weights("alone"));
}

/// `--epochs` scales a schedule in the same way wherever it is given.
#[test]
fn another_number_of_epochs_is_another_schedule_everywhere() {
    let temp = Temp::with_recipes();
    temp.cifar10("cifar");
    let sste = "--set train.batch=16 --device cpu";
    temp.run(&format!("train --recipe convnet4-sign-sste --data cifar --epochs 3 {sste} --quiet --out one")).ok();
    let several = "--recipe convnet4-sign-sste --recipe convnet4-sign-ftpsh";
    temp.run(&format!("train {several} --data cifar --epochs 3 {sste} --quiet --out several")).ok();
    temp.run(&format!("sweep --recipe convnet4-sign-sste --data cifar --epochs 3 --grid layer_loss=saturated_hinge {sste} --quiet --out sweep")).ok();
    temp.run(&format!(
        "reproduce --data cifar --epochs 3 --cells convnet4-sign-sste {sste} --validation 0 --quiet --out table"
    ))
    .ok();
    let schedule = |run: &str| {
        let recipe = temp.text(&format!("{run}/recipe.toml"));
        let schedule = recipe.split("[schedule]").nth(1).unwrap().split("\n[").next().unwrap().to_string();
        assert!(recipe.contains("epochs = 3\n"), "{recipe}");
        schedule
    };
    let one = schedule("one");
    assert!(one.contains("decay_at = [\n    3") || one.contains("decay_at = [3"), "{one}");
    for run in [
        "several/convnet4-sign-sste",
        "sweep/runs/convnet4-sign-sste/layer_loss-saturated_hinge/seed-1",
        "table/runs/convnet4-sign-sste/seed-1",
    ] {
        assert_eq!(schedule(run), one, "{run}");
    }
}

/// What a study says by a flag of its own was overruled in every run, and the report named values that were not trained.
#[test]
fn settings_that_a_study_makes_itself_are_refused() {
    let temp = Temp::with_recipes();
    let sweep = "sweep --recipe small.toml --out out --quiet --device cpu";
    for (more, says) in [
        ("--grid train.epochs=1,2 --epochs 1", ["--grid train.epochs", "--epochs"]),
        ("--grid train.seed=5,6", ["--grid train.seed", "--seeds"]),
        ("--grid layer_loss=hinge --set train.seed=5", ["--set train.seed", "--seeds"]),
        ("--grid train.device=cpu,auto", ["--grid train.device", "--device"]),
        ("--grid data.path=a,b --data cifar", ["--grid data.path", "--data"]),
        ("--grid layer_loss=hinge --set layer_loss=log", ["--set layer_loss", "the grid"]),
    ] {
        temp.run(&format!("{sweep} {more}")).refused(2, &says);
    }
    temp.run("reproduce --data cifar --out out --set data.validation=0.1")
        .refused(2, &["data.validation", "--validation"]);
    temp.run("reproduce --data cifar --out out --set train.seed=3").refused(2, &["train.seed", "--seeds"]);
    // The columns are called by these.
    for setting in ["layer_loss=hinge", "activation=sign", "qrelu_form=per_step"] {
        let key = setting.split('=').next().unwrap();
        temp.run(&format!("reproduce --data cifar --out out --set {setting}"))
            .refused(2, &[&format!("--set {key}"), "columns are called by it", "ftprop sweep"]);
    }
    assert!(!temp.path("out").exists());
    temp.run(&format!("{sweep} --grid train.epochs=1,2")).ok();
}

#[test]
fn the_networks_for_imagenet_on_other_pictures_are_not_compared_with_the_papers_figures() {
    let temp = Temp::new();
    for part in ["train", "val"] {
        for (number, class) in ["ant", "bee", "cat"].into_iter().enumerate() {
            std::fs::create_dir_all(temp.path(&format!("pictures/{part}/{class}"))).unwrap();
            for shade in 0..2u8 {
                let mut ppm = image::RgbImage::new(36, 36);
                ppm.pixels_mut().for_each(|p| p.0[number] = 200 + 20 * shade);
                ppm.save(temp.path(&format!("pictures/{part}/{class}/{shade}.png"))).unwrap();
            }
        }
    }
    let small = "--seeds 1 --epochs 1 --validation 0 --set data.resize=32 --set data.crop=32 --device cpu";
    let cells = "--cells resnet18-sign-sste,resnet18-sign-ftpsh";
    temp.run(&format!("reproduce --table imagenet --data pictures --out table {small} {cells}")).ok();
    let report = temp.text("table/report.md");
    for part in [
        "the networks for ImageNet, on other data of 3 classes",
        "other pictures than the paper's, of 3 classes instead of 1000",
        "| paper, ImageNet, best epoch | 49.1 | 47.8 |",
        "|  | paper, ImageNet, best |",
        "Beside it stands the last epoch;",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    assert!(!report.contains("− paper"), "{report}");

    // A report needs no data, also where the pictures had been prepared.
    temp.run("prepare pictures -o pictures.ftp --resize 32 --quiet").ok();
    let prepared =
        format!("reproduce --table imagenet --data pictures.ftp --out prepared {small} --cells resnet18-sign-sste");
    temp.run(&prepared).ok();
    std::fs::remove_file(temp.path("pictures.ftp")).unwrap();
    temp.run(&format!("{prepared} --report-only")).ok();
    let other = prepared.replace("data.crop=32", "data.crop=30");
    temp.run(&format!("{other} --report-only")).refused(1, &["another recipe"]);
}

#[test]
fn wrong_studies_are_refused_before_anything_is_written() {
    let temp = Temp::with_recipes();
    temp.cifar10("cifar");
    let base = "reproduce --data cifar --out table";
    temp.run("reproduce --out table").refused(2, &["--data"]);
    temp.run(&format!("{base} --seeds 0")).refused(2, &["--seeds"]);
    temp.run(&format!("{base} --cells convnet4-sing-sste")).refused(2, &["convnet4-sing-sste", "convnet4-sign-sste"]);
    temp.run(&format!("{base} --rows svhn")).refused(2, &["svhn", "cifar10", "imagenet"]);
    temp.run(&format!("{base} --table svhn")).refused(2, &["svhn", "--table", "cifar10", "imagenet"]);
    // No time at all trained nothing, and said that all was saved.
    for minutes in ["-3", "0", "nan"] {
        temp.run(&format!("{base} --minutes={minutes}")).refused(2, &["--minutes", "above 0"]);
        temp.run(&format!("sweep --recipe small.toml --seeds 2 --out sweep --minutes={minutes}"))
            .refused(2, &["--minutes", "above 0"]);
    }
    temp.run(&format!("{base} --set train.epoch=3")).refused(2, &["train.epochs"]);
    temp.run("reproduce --data nowhere --out table").refused(1, &["CIFAR-10", "nowhere"]);
    temp.run(&format!("{base} --device cpu --validation 2000000")).refused(1, &["2000000"]);
    temp.run(&format!("{base} --device cuda:77")).refused(1, &["cuda:77"]);
    temp.run("sweep --out sweep").refused(2, &["--grid"]);
    temp.run("sweep --grid layer_loss --out sweep").refused(2, &["layer_loss", "KEY=VALUE"]);
    temp.run("sweep --grid layer_los=hinge --out sweep").refused(2, &["--grid layer_los=hinge", "layer_loss"]);
    temp.run("sweep --recipe nowhere.toml --grid layer_loss=hinge --out sweep").refused(1, &["nowhere.toml"]);
    for folder in ["table", "sweep"] {
        assert!(!temp.path(folder).exists(), "{folder} was made");
    }
}

/// A name with a space before it was refused and listed as known.
#[test]
fn names_of_cells_may_have_spaces_beside_their_commas() {
    let temp = Temp::new();
    let reproduce = |cells: &str| {
        let mut command = temp.command("reproduce --data nowhere --out table --cells");
        command.arg(cells);
        Outcome::of("reproduce", command)
    };
    reproduce(" convnet4-relu, convnet4-sign-sste ").refused(1, &["CIFAR-10", "nowhere"]);
    reproduce("convnet4-relu, convnet4-rely").refused(2, &["--cells convnet4-rely: known are"]);
}

/// The report of a study has its question and how far SSTE and FTP-SH are apart, and another study does not replace it.
#[test]
fn a_study_answers_its_question_and_keeps_its_report() {
    let temp = Temp::with_recipes();
    for (name, loss) in [("a-sste", "saturated_hinge"), ("a-ftpsh", "soft_hinge")] {
        let recipe = common::SMALL.replace("\"small\"", &format!("\"{name}\""));
        temp.write(&format!("{name}.toml"), format!("layer_loss = \"{loss}\"\n{recipe}"));
    }
    let question = "Is soft better than saturated, over two seeds?";
    temp.write(
        "mine.toml",
        format!("question = \"{question}\"\nrecipes = [\"a-sste.toml\", \"a-ftpsh.toml\"]\nseeds = 2\n"),
    );
    let study = "sweep --study mine.toml --out study --device cpu";
    let output = temp.run(study).ok().out;
    assert!(output.contains("FTP-SH − SSTE") && output.contains("a-sste"), "{output}");
    let report = temp.text("study/report.md");
    for part in [question, "## Recipes", "| a-sste |", "| a-ftpsh |", "## FTP-SH − SSTE", "Welch's 95 %", " to "] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
    let other = "sweep --recipe small.toml --grid optimizer.lr=1e-3,1e-4 --out study --device cpu --epochs 1 --quiet";
    temp.run(other).refused(1, &["study holds runs of another study", "--out", "sweep --study mine.toml"]);
    temp.run(&study.replace("--out", "--quiet --seeds 1 --out")).refused(1, &["seed-2", "leave out"]);
    assert_eq!(temp.text("study/report.md"), report);
    // More of the same is more of the same.
    temp.run(&study.replace("--out", "--seeds 3 --out")).ok();
    temp.write(
        "wrong.toml",
        format!("question = \"{question}\"\nrecipes = []\nseeds = 2\n[grid]\n\"optimizer.lr\" = [1]\n"),
    );
    temp.run("sweep --study wrong.toml --out no").refused(1, &["grid is a list of texts, such as grid = ["]);
    // What a file says is not called a flag, and what is wrong with it is said in one go.
    temp.write("wrong.toml", "recipes = [\"small.toml\"]\n");
    temp.run("sweep --study wrong.toml --out no").refused(1, &["wrong.toml: question is missing", "seeds = 3"]);
    for (line, setting) in [
        ("set = [\"data.flp=true\"]", "data.flp=true"),
        ("grid = [\"layer_los=hinge\"]", "layer_los=hinge"),
        ("variants = [{ name = \"a\", set = [\"layer_loss=hing\"] }]", "layer_loss=hing"),
    ] {
        let head = "question = \"Which?\"\nrecipes = [\"small.toml\"]\nseeds = 2\n";
        temp.write("wrong.toml", format!("{head}{line}\n"));
        temp.run("sweep --study wrong.toml --out no --quiet")
            .refused(1, &[&format!("the study wrong.toml: {setting}: ")]);
    }
    temp.run("sweep --study norm-start --set network.uniform_gamma=true --out no --quiet")
        .refused(2, &["--set network.uniform_gamma", "the grid"]);
    temp.run("sweep --study mine.toml --set data.pda=1 --out no --quiet").refused(2, &["--set data.pda=1"]);
}

/// One recipe by itself was refused, however many seeds were asked for.
#[test]
fn the_seeds_of_one_recipe_are_swept() {
    let temp = Temp::with_recipes();
    temp.run("sweep --recipe small.toml --seeds 2 --epochs 1 --out seeds --quiet").ok();
    let report = temp.text("seeds/report.md");
    assert!(report.contains("# The seeds of small") && report.contains("2 of 2 runs are finished"), "{report}");
    assert!(report.contains("Test accuracy of small, means over the seeds."), "{report}");
}

/// Folders of studies were refused, without a hint at what is watched.
#[test]
fn a_study_can_be_watched_and_other_folders_are_told_what_can() {
    use std::io::{BufRead, BufReader};
    let temp = Temp::with_recipes();
    temp.run("sweep --recipe small.toml --grid weighted=true,false --epochs 1 --out sweep --quiet").ok();
    std::fs::create_dir_all(temp.path("empty")).unwrap();
    for (folder, says) in [("sweep", "2 runs at"), ("sweep/runs", "2 runs at"), ("empty", "no run yet, but")] {
        let mut child = temp.start(&format!("watch {folder} --port 0"));
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.starts_with(says) && line.contains("http://127.0.0.1:"), "{folder}: {line}");
    }
    temp.photos("photos");
    temp.run("watch photos").refused(1, &["photos holds no runs", "a run's folder", "of a study", "an empty one"]);
    temp.run("watch nowhere").refused(1, &["nowhere", "no such file"]);
    temp.run("watch small.toml").refused(1, &["small.toml", "it is a file"]);
}
