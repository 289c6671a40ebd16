//! Classes and what they were taken for, laid out for a terminal of so many columns.

use ftprop_lab::report::columns::{left, right, shortened, width};
use ftprop_train::confusion::{ClassScores, Confusion};

/// Columns of a matrix that should stand beside each other before names are shortened for them.
const BESIDE: usize = 5;

/// How well each class is told from the others, as wide as `room` allows: with units and whole words, without, or with the
/// figures below the names.
pub(super) fn classes(names: &[String], confusion: &Confusion, room: usize) -> Vec<String> {
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let names_with = |least: usize| {
        let column = widest.max(least);
        std::iter::once("class").chain(names.iter().map(String::as_str)).map(move |name| left(name, column))
    };
    let beside = |names: Vec<String>, figures: Vec<String>| -> Vec<String> {
        names.into_iter().zip(figures).map(|(name, figures)| format!("{name}{figures}")).collect()
    };
    let scores: Vec<ClassScores> = (0..names.len()).map(|class| confusion.class(class)).collect();
    let whole = beside(names_with("taken for".len()).collect(), figures(&scores));
    if fit(&whole, room) {
        return whole;
    }
    let narrow = beside(names_with("class".len()).collect(), short_figures(&scores));
    if fit(&narrow, room) {
        return narrow;
    }
    let (mut lines, mut figures) = (vec!["class".to_string()], short_figures(&scores).into_iter());
    lines.extend(figures.next());
    for (name, figures) in names.iter().zip(figures) {
        lines.extend([shortened(name, room), figures]);
    }
    lines
}

fn fit(lines: &[String], room: usize) -> bool {
    lines.iter().all(|line| width(line) <= room)
}

fn percent(scores: &ClassScores) -> [f64; 3] {
    [scores.precision, scores.recall, scores.f1].map(|share| 100.0 * share)
}

/// The head of the figures, and those of each class.
fn figures(scores: &[ClassScores]) -> Vec<String> {
    let line = |s: &ClassScores| {
        let [precision, recall, f1] = percent(s);
        format!("  {:>8}  {precision:>7.2} %  {recall:>6.2} %  {f1:>6.2} %", s.examples)
    };
    std::iter::once("  examples  precision    recall        F1".into()).chain(scores.iter().map(line)).collect()
}

/// The same in percent, with as little around them as can be understood.
fn short_figures(scores: &[ClassScores]) -> Vec<String> {
    let most = scores.iter().map(|s| s.examples.to_string().len()).max().unwrap_or(1);
    let line = |s: &ClassScores| {
        let [precision, recall, f1] = percent(s);
        format!("  {:>most$}  {precision:>5.1}  {recall:>7.1}  {f1:>5.1}", s.examples)
    };
    let head = format!("  {}  prec%  recall%    F1%", right("n", most));
    std::iter::once(head).chain(scores.iter().map(line)).collect()
}

/// The classes down the side, what they were taken for across, in as many pieces as `room` asks for.
pub(super) fn matrix(names: &[String], confusion: &Confusion, room: usize) -> Vec<String> {
    const HEAD: &str = "taken for";
    let count = names.len();
    let most = (0..count).flat_map(|class| confusion.row(class)).max().copied().unwrap_or(0);
    let cell = most.to_string().len().max(count.to_string().len()).max(2);
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let piece = |head: &str, names_width: usize, columns: std::ops::Range<usize>| -> Vec<String> {
        let numbers: Vec<String> = columns.clone().map(|number| format!("{:>cell$}", number + 1)).collect();
        let mut lines = vec![format!("{}  {:>2}  {}", right(head, names_width), "", numbers.join(" "))];
        for (number, name) in names.iter().enumerate() {
            let counts = confusion.row(number)[columns.clone()].iter().map(|&count| match count {
                0 => format!("{:>cell$}", "·"),
                count => format!("{count:>cell$}"),
            });
            let name = right(&shortened(name, names_width), names_width);
            lines.push(format!("{name}  {:>2}  {}", number + 1, counts.collect::<Vec<_>>().join(" ")));
        }
        lines
    };
    let whole = piece(HEAD, widest.max(HEAD.len()), 0..count);
    if fit(&whole, room) {
        return whole;
    }
    // Beside a name stand its number, with room around it, and the cells. Every class is also known by its number.
    let around = "  12  ".len();
    let left_beside = |columns: usize| widest.min(room.saturating_sub(around + columns * (cell + 1) - 1)).max(1);
    let beside = ((room + 1).saturating_sub(left_beside(BESIDE.min(count)) + around) / (cell + 1)).max(1);
    // Pieces of about the same size.
    let size = count.div_ceil(count.div_ceil(beside));
    let names_width = left_beside(size);
    let mut lines = vec![HEAD.to_string()];
    for (number, first) in (0..count).step_by(size).enumerate() {
        lines.extend((number > 0).then(String::new));
        lines.extend(piece("", names_width, first..count.min(first + size)));
    }
    lines
}

/// The most frequent mistakes, a line each, or two where one is too long.
pub(super) fn mistakes(names: &[String], confusion: &Confusion, most: usize, room: usize) -> Vec<String> {
    let lines = |(class, answer, count): (usize, usize, u64)| {
        let (of, taken) = (format!("{count:>6} of {}", names[class]), format!("taken for {}", names[answer]));
        let line = format!("{of} {taken}");
        if width(&line) <= room { vec![line] } else { vec![of, format!("{:>6} {taken}", "")] }
    };
    confusion.mistakes().into_iter().take(most).flat_map(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many classes, of which each is sometimes taken for the one three further on.
    fn measured(names: &[&str]) -> (Vec<String>, Confusion) {
        let mut confusion = Confusion::new(names.len());
        for class in 0..names.len() {
            for example in 0..40 + class {
                let answer = if example % 5 == 0 { (class + 3) % names.len() } else { class };
                let logits: Vec<f32> = (0..names.len()).map(|other| if other == answer { 1.0 } else { 0.0 }).collect();
                confusion.add(&[class as u32], &logits);
            }
        }
        (names.iter().map(|name| name.to_string()).collect(), confusion)
    }

    /// All figures are there on every terminal, and no line is broken by it.
    #[test]
    fn tables_fit_their_terminal() {
        let letters: Vec<String> = ('a'..='j').map(|letter| letter.to_string()).collect();
        let many: Vec<String> = (0..20).map(|number| format!("the class number {number} of many")).collect();
        let wide = ["\u{732b}".repeat(30), "cat".to_string(), "\u{1f431}".to_string()];
        for names in [&letters[..], &letters[..1], &letters[..2], &many, &wide] {
            let (names, confusion) = measured(&names.iter().map(String::as_str).collect::<Vec<_>>());
            for room in [28, 30, 40, 50, 60, 80, 132, usize::MAX] {
                let (classes, matrix) = (classes(&names, &confusion, room), matrix(&names, &confusion, room));
                let mistakes = mistakes(&vec!["a cat".to_string(); names.len()], &confusion, 10, room);
                for line in classes.iter().chain(&matrix).chain(&mistakes) {
                    assert!(width(line) <= room, "{room} columns: {line}");
                }
                let figures = classes.iter().flat_map(|line| line.split_whitespace().filter(|word| word.contains('.')));
                assert_eq!(figures.count(), 3 * names.len(), "{room} columns: {classes:#?}");
                // Put together again the pieces are the matrix.
                let mut rows = vec![Vec::new(); names.len()];
                let is_row = |line: &&String| line.contains("  ") && !line.contains("taken for");
                let lines: Vec<&String> = matrix.iter().filter(is_row).collect();
                let with_heads = names.len() + usize::from(!matrix[0].contains("  "));
                for piece in lines.chunks(with_heads) {
                    for (class, line) in piece.iter().skip(with_heads - names.len()).enumerate() {
                        let (_, counts) = line
                            .split_once(&format!("  {:>2}  ", class + 1))
                            .unwrap_or_else(|| panic!("{line}: {matrix:#?}"));
                        rows[class].extend(counts.split_whitespace().map(|count| count.parse().unwrap_or(0_u64)));
                    }
                }
                (0..names.len()).for_each(|class| assert_eq!(rows[class], confusion.row(class), "{room}: {matrix:#?}"));
            }
        }
    }

    #[test]
    fn forty_columns_are_readable() {
        let (names, confusion) = measured(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        let shown = matrix(&names, &confusion, 40);
        assert_eq!(
            shown[..3],
            ["taken for", "        1  2  3  4  5  6  7  8  9 10", "0   1  32  ·  ·  8  ·  ·  ·  ·  ·  ·"]
        );
        let shown = classes(&names, &confusion, 40);
        assert_eq!(shown[..2], ["class   n  prec%  recall%    F1%", "0      40   76.2     80.0   78.0"]);
        let long =
            ["an aeroplane of some kind", "an automobile", "a bird", "a cat", "a deer", "a dog", "a frog", "a horse"];
        let (names, confusion) = measured(&long);
        let shown = matrix(&names, &confusion, 40);
        // Two pieces of four columns, names shortened for neither more nor less than they have to be.
        assert_eq!(shown.len(), 1 + 9 + 1 + 9, "{shown:#?}");
        assert_eq!(shown[2], "an aeroplane of some k…   1  32  ·  ·  8", "{shown:#?}");
        assert_eq!(shown[12], "an aeroplane of some k…   1   ·  ·  ·  ·", "{shown:#?}");
        let shown = classes(&names, &confusion, 40);
        assert_eq!(shown[2..4], ["an aeroplane of some kind", "  40   78.0     80.0   79.0"], "{shown:#?}");
    }
}
