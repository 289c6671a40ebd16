//! A [`Document`] as Markdown.

use super::document::{Block, Document, Inline, inlines};
use ftprop_train::words::plain;

pub(super) fn write(page: &Document) -> String {
    let mut text = format!("# {}\n", words(&page.title));
    for block in &page.blocks {
        text.push('\n');
        text.push_str(&block_text(block));
    }
    text
}

/// The tables with their headings, columns lined up.
pub(super) fn tables(page: &Document) -> String {
    let (mut text, mut heading) = (String::new(), None);
    for block in &page.blocks {
        match block {
            Block::Heading(words) => heading = Some(words),
            Block::Table { head, rows } => {
                if let Some(words) = heading.take() {
                    text.push_str(&format!("{}\n", plain(words)));
                }
                text.push_str(&lined_up(head, rows));
                text.push('\n');
            }
            _ => {}
        }
    }
    text.trim_end().to_string()
}

fn lined_up(head: &[String], rows: &[Vec<String>]) -> String {
    let shown = |cell: &String| plain(cell).replace("**", "").replace('`', "");
    let lines: Vec<Vec<String>> = std::iter::once(head)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| row.iter().map(shown).collect())
        .collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(&format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end()));
    }
    text
}

fn block_text(block: &Block) -> String {
    match block {
        Block::Heading(heading) => format!("## {}\n", words(heading)),
        Block::Text(text) => format!("{}\n", words(text)),
        Block::List(items) => items.iter().map(|item| format!("- {}\n", words(item))).collect(),
        Block::Table { head, rows } => {
            // Figures line up at their right.
            let rule: Vec<&str> = (0..head.len()).map(|column| if column == 0 { "---" } else { "---:" }).collect();
            let mut table = format!("{}| {} |\n", row(head), rule.join(" | "));
            rows.iter().for_each(|cells| table.push_str(&row(cells)));
            table
        }
        Block::Code(lines) => {
            let lines: Vec<String> = lines.iter().map(|line| code_line(line)).collect();
            format!("```sh\n{}\n```\n", lines.join("\n"))
        }
        Block::Figure { path, caption, .. } => format!("![{0}]({path}.png)\n\n{0}\n", words(caption)),
    }
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| words(cell).replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A text with its code and bold words, and nothing else that Markdown obeys: no HTML, no links, no pictures, no lines.
fn words(text: &str) -> String {
    let piece = |piece: Inline<'_>| match piece {
        Inline::Plain(text) => escape(text),
        Inline::Code(text) => format!("`{}`", plain(text)),
        Inline::Bold(text) => format!("**{}**", escape(text)),
    };
    inlines(text).into_iter().map(piece).collect()
}

/// A `<` begins HTML where a letter or one of `/!?` follows, and brackets begin links; elsewhere they stay readable.
fn escape(text: &str) -> String {
    let text = plain(text);
    let mut escaped = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '<' if characters.peek().is_some_and(|next| next.is_alphabetic() || "/!?".contains(*next)) => {
                escaped.push_str("&lt;");
            }
            '[' | ']' => escaped.extend(['\\', character]),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A line of a code block; indented by four it does not end the block.
fn code_line(line: &str) -> String {
    let line = plain(line);
    if line.trim_start().starts_with("```") { format!("    {line}") } else { line.into_owned() }
}
