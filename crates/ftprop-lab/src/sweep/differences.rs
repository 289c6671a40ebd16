//! How far a sweep's combinations are from the first of them, with intervals.

use crate::report::document::Document;
use crate::report::statistics::{Sample, difference};
use crate::study::Accuracy;

/// How sure the intervals are.
const CONFIDENCE: f64 = 0.95;

/// A table of each combination's difference from the first one, where there are seeds enough for an interval.
pub(super) fn write(page: &mut Document, base: &str, combinations: &[(String, Accuracy)]) {
    let Some(((first, reference), others)) = combinations.split_first() else { return };
    let between = |a: &Sample, b: &Sample| match difference(a, b, CONFIDENCE) {
        Some(gap) => format!("{:+.2} ({:+.2} to {:+.2})", gap.mean, gap.low, gap.high),
        None => "–".into(),
    };
    let held_out = combinations.iter().any(|(_, accuracy)| accuracy.validation.count > 0);
    let row = |(name, accuracy): &(String, Accuracy)| {
        let mut cells = vec![name.clone(), between(&accuracy.last, &reference.last)];
        cells.extend(held_out.then(|| between(&accuracy.validation, &reference.validation)));
        cells
    };
    let counted = |(_, accuracy): &&(String, Accuracy)| accuracy.last.count > 1 && reference.last.count > 1;
    let rows: Vec<Vec<String>> = others.iter().filter(counted).map(row).collect();
    if rows.is_empty() {
        return;
    }
    page.heading(&format!("{base}: against {first}"));
    page.text(&format!(
        "In points, with Welch's {:.0} % confidence interval over the seeds. An interval that holds 0 does not tell the two \
         apart; of many intervals one in twenty misses what it is of.",
        100.0 * CONFIDENCE
    ));
    let mut head = vec!["", "last epoch"];
    head.extend(held_out.then_some("validation"));
    page.table(&head, rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_compared_with_the_first() {
        let of = |name: &str, values: &[f64]| {
            (name.to_string(), Accuracy { last: Sample::new(values.iter().copied()), ..Accuracy::default() })
        };
        let mut page = Document::new("a");
        write(&mut page, "net", &[of("x", &[80.0, 82.0]), of("y", &[70.0, 70.0]), of("z", &[1.0])]);
        let text = page.markdown();
        assert!(text.contains("net: against x"), "{text}");
        // Two and two runs, all deviation in one: a degree of freedom, so 12.71 times the deviation of the mean, 1.
        assert!(text.contains("| y | -11.00 (-23.71 to +1.71) |") && !text.contains("| z |"), "{text}");
        let mut page = Document::new("a");
        write(&mut page, "net", &[of("x", &[80.0]), of("y", &[70.0])]);
        assert!(!page.markdown().contains("against"));
    }
}
