//! How far apart the combinations of a sweep are, and whether the seeds allow to say so.

use super::report::Compared;
use crate::report::document::Document;
use crate::study::{CONFIDENCE, between};
use ftprop_nn::LayerLoss;
use ftprop_train::recipe::Recipe;

/// How recipes of one network and activation are called that differ in the layer loss alone, as those of the paper do.
const SSTE: &str = "-sste";
const FTPSH: &str = "-ftpsh";

/// The sections, where there is something to set against something: FTP-SH against SSTE of the same network and settings
/// where both were trained, and along the grid each combination against the first one of its recipe. Without a grid recipes are
/// set against the first one, unless they are the paper's pairs.
pub(super) fn write(page: &mut Document, results: &[Compared<'_>]) {
    let paper = paper_pairs(results);
    let grid = results.iter().any(|one| !one.point.values.is_empty());
    let told = |(_, a, b): &Pair<'_, '_>| {
        let same = |x: &Compared<'_>, y: &Compared<'_>| std::ptr::eq(x, y);
        paper
            .iter()
            .any(|(_, soft, saturated)| (same(a, soft) && same(b, saturated)) || (same(a, saturated) && same(b, soft)))
    };
    let first: Vec<Pair<'_, '_>> = match grid || paper.is_empty() {
        true => first_pairs(results).into_iter().filter(|pair| !told(pair)).collect(),
        false => Vec::new(),
    };
    let how = format!(
        "In points, with Welch's {:.0} % confidence interval over the seeds where there are several. An interval that holds 0 \
         does not tell the two apart.",
        100.0 * CONFIDENCE
    );
    let losses = "Soft-hinge layer losses against saturated-hinge ones, where all else is the same.";
    let order = "Each is set against the first of its recipe, in the order of the grid.";
    let both = !paper.is_empty();
    section(page, "FTP-SH − SSTE", &format!("{losses} {how}"), &paper);
    section(page, "Differences", &if both { order.to_string() } else { format!("{how} {order}") }, &first);
}

type Pair<'a, 'p> = (String, &'a Compared<'p>, &'a Compared<'p>);

fn section(page: &mut Document, title: &str, text: &str, pairs: &[Pair<'_, '_>]) {
    if pairs.is_empty() {
        return;
    }
    page.heading(title);
    page.text(text);
    let chosen = pairs.iter().any(|(_, a, b)| a.accuracy.chosen.count * b.accuracy.chosen.count > 0);
    let mut head = vec!["", "last epoch", "best epoch"];
    head.extend(chosen.then_some("chosen on validation"));
    let row = |(name, a, b): &Pair<'_, '_>| {
        let (a, b) = (&a.accuracy, &b.accuracy);
        let mut cells = vec![name.clone(), between(&a.last, &b.last), between(&a.best, &b.best)];
        cells.extend(chosen.then(|| between(&a.chosen, &b.chosen)));
        cells
    };
    page.table(&head, pairs.iter().map(row).collect());
}

/// By what was trained, whatever the recipes are called: a grid may have given either another loss.
fn paper_pairs<'a, 'p>(results: &'a [Compared<'p>]) -> Vec<Pair<'a, 'p>> {
    let recipe = |one: &Compared<'p>| one.point.jobs.first().map(|job| Recipe::clone(&job.recipe));
    let saturated_twin = |soft: &'a Compared<'p>| {
        let mut twin = recipe(soft).filter(|recipe| recipe.layer_loss == LayerLoss::soft_hinge())?;
        twin.layer_loss = LayerLoss::saturated_hinge();
        let same = |other: &&Compared<'p>| {
            recipe(other).is_some_and(|recipe| {
                twin.name.clone_from(&recipe.name);
                recipe == twin
            })
        };
        Some((soft, results.iter().find(same)?))
    };
    let named = |(soft, saturated)| (pair_name(soft, saturated), soft, saturated);
    results.iter().filter_map(saturated_twin).map(named).collect()
}

/// What the two have in common, and in what they differ.
fn pair_name(soft: &Compared<'_>, saturated: &Compared<'_>) -> String {
    let either = |a: &str, b: &str| if a == b { a.to_string() } else { format!("{a} − {b}") };
    let (a, b) = (&soft.point.base, &saturated.point.base);
    let base = match (a.strip_suffix(FTPSH), b.strip_suffix(SSTE)) {
        (Some(stem), Some(other)) if stem == other => stem.to_string(),
        _ => either(a, b),
    };
    let values = soft.point.values.iter().zip(&saturated.point.values).map(|(a, b)| either(a, b));
    [base].into_iter().chain(values).collect::<Vec<_>>().join(", ")
}

/// With several seeds: a table of single runs shows as much as its differences do.
fn first_pairs<'a, 'p>(results: &'a [Compared<'p>]) -> Vec<Pair<'a, 'p>> {
    if results.iter().all(|one| one.accuracy.last.count < 2) {
        return Vec::new();
    }
    let pair = |(at, one): (usize, &'a Compared<'p>)| {
        // Without a grid the recipes themselves are compared.
        let first = match one.point.values.is_empty() {
            true => 0,
            false => results.iter().position(|other| other.point.base == one.point.base)?,
        };
        let base = if one.point.values.is_empty() { String::new() } else { format!("{}: ", one.point.base) };
        let other = &results[first];
        (at != first).then(|| (format!("{base}{} − {}", one.point.name(), other.point.name()), one, other))
    };
    results.iter().enumerate().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::statistics::Sample;
    use crate::study::Accuracy;
    use crate::sweep::plan::Plan;
    use crate::sweep::{Axis, Base, Point, points};
    use std::path::Path;

    fn point(base: &str, values: &[&str]) -> Point {
        Point { base: base.into(), values: values.iter().map(|v| v.to_string()).collect(), jobs: Vec::new() }
    }

    fn page(points: &[Point], values: &[&[f64]]) -> String {
        let compared = |(point, values): (_, &&[f64])| {
            let sample = Sample::new(values.iter().copied());
            Compared {
                point,
                runs: Vec::new(),
                accuracy: Accuracy { last: sample, best: sample, ..Accuracy::default() },
            }
        };
        let results: Vec<Compared<'_>> = points.iter().zip(values).map(compared).collect();
        let mut page = Document::new("any");
        write(&mut page, &results);
        page.markdown()
    }

    /// Points of this grid, as a sweep has them.
    fn grid(bases: &[(&str, &str)], axes: &[&str]) -> Vec<Point> {
        let base = |(name, loss): &(&str, &str)| {
            let layers = Recipe::defaults().unwrap().text("a test", &format!("layer_loss = \"{loss}\"\n")).unwrap();
            Base { name: (*name).into(), layers }
        };
        let bases: Vec<Base> = bases.iter().map(base).collect();
        let axes: Vec<Axis> = axes.iter().map(|axis| axis.parse().unwrap()).collect();
        points(&bases, &axes, 2, Path::new("out"), Ok).unwrap()
    }

    #[test]
    fn the_papers_two_losses_are_set_against_each_other() {
        let bases = [("c4-sste", "saturated_hinge"), ("c4-ftpsh", "soft_hinge"), ("c4-log", "log")];
        let text = page(&grid(&bases, &[]), &[&[80.0, 81.0], &[82.0, 83.0], &[1.0, 2.0]]);
        assert!(text.contains("## FTP-SH − SSTE") && text.contains("| c4 | +2.00 (-1.04 to +5.04) |"), "{text}");
        assert!(!text.contains("log") && !text.contains("## Differences"), "{text}");
        let points = grid(&bases[..2], &["weighted=true,false"]);
        let text = page(&points, &[&[80.0, 81.0], &[70.0, 71.0], &[82.0, 83.0], &[72.0, 74.0]]);
        for row in ["| c4, true | +2.00 ", "| c4, false | +2.50 ", "| c4-sste: false − true | -10.00 "] {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
    }

    /// Two recipes of such names were set against each other whatever the grid made of them: equal runs, while nothing was
    /// said of the losses that did differ.
    #[test]
    fn pairs_are_told_by_what_was_trained() {
        let bases = [("mine-sste", "saturated_hinge"), ("mine-ftpsh", "soft_hinge")];
        let values: [&[f64]; 4] = [&[1.0, 2.0], &[3.0, 4.0], &[1.0, 2.0], &[3.0, 5.0]];
        let text = page(&grid(&bases, &["layer_loss=hinge,log"]), &values);
        assert!(!text.contains("FTP-SH") && text.contains("| mine-ftpsh: log − hinge | +2.50 "), "{text}");
        // A recipe of any name, and what is told already is not told again.
        let text = page(&grid(&[("any", "log")], &["layer_loss=soft_hinge,saturated_hinge"]), &values[..2]);
        assert!(text.contains("## FTP-SH − SSTE\n") && text.contains("| any, soft_hinge − saturated_hinge | -2.00 "));
        assert!(!text.contains("## Differences"), "{text}");
        // Not where something else differs too.
        let others = [("a-sste", "saturated_hinge"), ("a-ftpsh", "soft_hinge\"\ntarget_rule = \"secant")];
        assert!(!page(&grid(&others, &[]), &values[..2]).contains("FTP-SH"));
    }

    /// Each asks for something else than which of the two losses is better.
    #[test]
    fn studies_show_the_intervals_that_answer_their_questions() {
        for (name, rows) in [
            ("norm-start", ["| convnet8-sign, true |", "| convnet8-qrelu-sste: true − false |"]),
            ("decay-l2", ["| convnet8-qrelu, 0 |", "| convnet8-qrelu-sste: 1e-3 − 0 |"]),
            ("decay-adamw", ["| convnet8-qrelu, 1e-1 |", "| convnet8-qrelu-ftpsh: 1e-1 − 0 |"]),
        ] {
            let plan = Plan::find(Path::new(name)).unwrap();
            let base = |recipe: &String| {
                let layers = Recipe::layers_of(Path::new(recipe)).unwrap();
                let set = plan.set.iter().fold(layers, |layers, setting| layers.set(setting).unwrap());
                Base { name: recipe.clone(), layers: set }
            };
            let bases: Vec<Base> = plan.recipes.iter().map(base).collect();
            let axes: Vec<Axis> = plan.grid.iter().map(|axis| axis.parse().unwrap()).collect();
            let points = points(&bases, &axes, 3, Path::new("out"), Ok).unwrap();
            let text = page(&points, &vec![&[80.0, 81.0, 82.0][..]; points.len()]);
            for row in rows {
                assert!(text.contains(&format!("{row} +0.00 (-2.27 to +2.27) |")), "{name}: {row} is not in\n{text}");
            }
        }
    }

    #[test]
    fn other_combinations_are_set_against_the_first() {
        let text = page(
            &[point("a", &["x"]), point("a", &["y"]), point("b", &["x"]), point("b", &["y"])],
            &[&[1.0, 1.0], &[3.5], &[], &[2.0]],
        );
        assert!(text.contains("| a: y − x | +2.50 |") && text.contains("| b: y − x | – |"), "{text}");
        let text = page(&[point("a", &[]), point("b", &[])], &[&[1.0, 1.0], &[3.0, 3.0]]);
        assert!(text.contains("| b − a | +2.00 (+2.00 to +2.00) |"), "{text}");
        for values in [&[&[1.0][..], &[2.0]][..], &[&[1.0, 2.0]]] {
            assert!(!page(&[point("a", &[]), point("b", &[])], values).contains("##"));
        }
    }
}
