//! `--help`, made to fit its terminal.

use crate::terminal::Stream;
use clap::Command;

/// What stands at the beginning of an example, and of the lines that it goes on in.
const EXAMPLE: &str = "  ftprop ";
const GOES_ON: &str = "    ";

/// The program with help that fits its terminal; elsewhere it stays as it is written.
pub(super) fn fitted(program: Command) -> Command {
    match Stream::Out.columns() {
        Some(columns) => fitted_to(program, columns),
        // For clap that is no limit.
        None => program.term_width(0),
    }
}

/// Options and prose are broken by clap, which needs paragraphs in one piece; examples, which are copied, are broken here.
fn fitted_to(program: Command, columns: usize) -> Command {
    let said = |command: Command| match command.get_after_help().map(|text| after(&text.to_string(), columns)) {
        Some(text) => command.after_help(text),
        None => command,
    };
    let inside = move |command: Command| fitted_to(command, columns);
    said(program).mut_subcommands(inside).term_width(columns)
}

/// What stands below the options: paragraphs, each in one line, and examples that fit.
fn after(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut in_prose = false;
    for line in text.lines() {
        let prose = !line.is_empty() && !line.starts_with(' ');
        let goes_on = lines.last().is_some_and(|last| last.ends_with(" \\"));
        match lines.last_mut() {
            Some(last) if prose && in_prose => last.extend([" ", line]),
            Some(last) if goes_on => {
                last.pop();
                last.push_str(line.trim_start());
            }
            _ => lines.push(line.to_string()),
        }
        in_prose = prose;
    }
    lines
        .iter()
        .map(|line| if is_example(line) { broken(line, columns) } else { line.clone() })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Whether it is to be copied; beside others stands what they do.
fn is_example(line: &str) -> bool {
    line.starts_with(EXAMPLE) && !line.trim_start().contains("   ")
}

/// An example in lines that a shell takes for one.
fn broken(example: &str, columns: usize) -> String {
    if example.chars().count() <= columns {
        return example.to_string();
    }
    // Each line but the last ends with a space and a backslash.
    let room = columns.saturating_sub(2);
    let (mut text, mut used) = (String::from("  "), 2);
    for (number, piece) in pieces(example.trim_start()).iter().enumerate() {
        let length = piece.chars().count();
        if number > 0 && used + 1 + length > room {
            text.extend([" \\\n", GOES_ON]);
            used = GOES_ON.len();
        } else if number > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(piece);
        used += length;
    }
    text
}

/// What of an example stays on a line: words, an option with its value, and what stands in quotes, where a backslash would be one.
fn pieces(example: &str) -> Vec<String> {
    let mut quoted = false;
    let between = |letter: char| {
        quoted ^= letter == '\'';
        letter == ' ' && !quoted
    };
    let mut pieces: Vec<String> = Vec::new();
    for word in example.split(between) {
        match pieces.last_mut() {
            Some(option) if option.starts_with("--") && !option.contains(' ') && !word.starts_with('-') => {
                option.extend([" ", word]);
            }
            _ => pieces.push(word.to_string()),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Program;
    use clap::CommandFactory;

    /// Every command, as it is shown on so many columns.
    fn helps(columns: usize) -> Vec<(String, String)> {
        fn add(command: &mut Command, helps: &mut Vec<(String, String)>) {
            let text = command.render_long_help().to_string();
            helps.push((command.get_name().to_string(), text));
            command.get_subcommands_mut().for_each(|command| add(command, helps));
        }
        let mut program = fitted_to(Program::command(), columns);
        program.build();
        let mut helps = Vec::new();
        add(&mut program, &mut helps);
        helps
    }

    /// Lines were as long as they were written, and terminals broke them within words.
    #[test]
    fn help_fits_its_terminal() {
        for columns in [72, 80, 100] {
            let helps = helps(columns);
            assert!(helps.len() > 20);
            for (name, text) in helps {
                for line in text.lines() {
                    assert!(line.chars().count() <= columns, "{name} on {columns} columns: {line}");
                }
            }
        }
    }

    /// What is copied from the help is one command each, the same on every terminal.
    #[test]
    fn examples_stay_whole() {
        let examples = |columns: usize| -> Vec<String> {
            let all: String = helps(columns).into_iter().map(|(_, text)| text + "\n").collect();
            let joined = all.replace(" \\\n    ", " ");
            joined.lines().filter(|line| is_example(line)).map(str::to_string).collect()
        };
        let wide = examples(1000);
        assert!(wide.len() > 60, "{}", wide.len());
        for columns in [72, 80] {
            let narrow = examples(columns);
            for example in &wide {
                assert!(narrow.contains(example), "on {columns} columns it is broken: {example}");
            }
        }
    }

    #[test]
    fn paragraphs_are_in_one_piece() {
        assert_eq!(broken("  ftprop a 'b c d e f g'", 16), "  ftprop a \\\n    'b c d e f g'");
        let text = "One\ntwo.\n\nExamples:\n  ftprop a --bb ccc \\\n    --dd e\n  ftprop f";
        assert_eq!(after(text, 100), "One two.\n\nExamples:\n  ftprop a --bb ccc --dd e\n  ftprop f");
        let narrow = "One two.\n\nExamples:\n  ftprop a \\\n    --bb ccc \\\n    --dd e\n  ftprop f";
        assert_eq!(after(text, 18), narrow);
    }
}
