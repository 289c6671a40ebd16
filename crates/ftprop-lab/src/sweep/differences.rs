//! How far apart the combinations of a sweep are, and whether the seeds allow to say so.

use super::report::Compared;
use crate::report::document::Document;
use crate::study::{CONFIDENCE, between};

/// How recipes of one network and activation are called that differ in the layer loss alone, as those of the paper do.
const SSTE: &str = "-sste";
const FTPSH: &str = "-ftpsh";

/// The section, where there is something to set against something: FTP-SH against SSTE of the same network and settings
/// where the recipes have both, and else each combination against the first one of its recipe.
pub(super) fn write(page: &mut Document, results: &[Compared<'_>]) {
    let pairs = paper_pairs(results);
    let (title, what, pairs) = match pairs.is_empty() {
        false => ("FTP-SH − SSTE", "", pairs),
        true => (
            "Differences",
            " Each is set against the first of its recipe, in the order of the grid.",
            first_pairs(results),
        ),
    };
    if pairs.is_empty() {
        return;
    }
    page.heading(title);
    page.text(&format!(
        "In points, with Welch's {:.0} % confidence interval over the seeds where there are several. An interval that holds 0 \
         does not tell the two apart.{what}",
        100.0 * CONFIDENCE
    ));
    let chosen = pairs.iter().any(|(_, a, b)| a.accuracy.chosen.count * b.accuracy.chosen.count > 0);
    let mut head = vec!["", "last epoch", "best epoch"];
    head.extend(chosen.then_some("chosen on validation"));
    let row = |(name, a, b): &(String, &Compared<'_>, &Compared<'_>)| {
        let (a, b) = (&a.accuracy, &b.accuracy);
        let mut cells = vec![name.clone(), between(&a.last, &b.last), between(&a.best, &b.best)];
        cells.extend(chosen.then(|| between(&a.chosen, &b.chosen)));
        cells
    };
    page.table(&head, pairs.iter().map(row).collect());
}

type Pair<'a, 'p> = (String, &'a Compared<'p>, &'a Compared<'p>);

fn paper_pairs<'a, 'p>(results: &'a [Compared<'p>]) -> Vec<Pair<'a, 'p>> {
    let pair = |soft: &'a Compared<'p>| {
        let stem = soft.point.base.strip_suffix(FTPSH)?;
        let same = |other: &&Compared<'p>| {
            other.point.base.strip_suffix(SSTE) == Some(stem) && other.point.values == soft.point.values
        };
        let name = match soft.point.values.is_empty() {
            true => stem.to_string(),
            false => format!("{stem}, {}", soft.point.name()),
        };
        Some((name, soft, results.iter().find(same)?))
    };
    results.iter().filter_map(pair).collect()
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
    use crate::sweep::Point;

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

    #[test]
    fn the_papers_two_losses_are_set_against_each_other() {
        let points =
            [point("c4-sste", &["0"]), point("c4-ftpsh", &["1"]), point("c4-ftpsh", &["0"]), point("c4-relu", &["0"])];
        let text = page(&points, &[&[80.0, 81.0], &[83.0, 83.0], &[82.0, 83.0], &[1.0, 2.0]]);
        assert!(text.contains("## FTP-SH − SSTE") && text.contains("| c4, 0 | +2.00 (-1.04 to +5.04) |"), "{text}");
        assert!(!text.contains("c4, 1") && !text.contains("relu"), "{text}");
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
