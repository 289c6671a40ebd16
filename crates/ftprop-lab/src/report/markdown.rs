//! A [`Document`] as Markdown.

use super::columns::{left, right, width};
use super::document::{Block, Document, Inline, inlines};
use ftprop_train::words::{counted, plain};

pub(super) fn write(page: &Document) -> String {
    let mut text = format!("# {}\n", words(&page.title));
    for block in &page.blocks {
        text.push('\n');
        text.push_str(&block_text(block));
    }
    text
}

/// The most rows of a table that are shown one below the other.
const MOST_APART: usize = 12;

/// The tables with their headings, columns lined up where they fit into so many columns.
pub(super) fn tables(page: &Document, room: usize) -> String {
    let (mut text, mut heading) = (String::new(), None);
    for block in &page.blocks {
        match block {
            Block::Heading(words) => heading = Some(words),
            Block::Table { head, rows } => {
                if let Some(words) = heading.take() {
                    text.push_str(&format!("{}\n", plain(words)));
                }
                text.push_str(&fitted(head, rows, room));
                text.push('\n');
            }
            _ => {}
        }
    }
    text.trim_end().to_string()
}

/// A table that is too wide loses its last columns, which the page has. Where no figure would be left it has a line for each
/// cell, and one that is long as well is left to the page.
fn fitted(head: &[String], rows: &[Vec<String>], room: usize) -> String {
    let narrow = |columns: usize| {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row[..columns.min(row.len())].to_vec()).collect();
        Some(lined_up(&head[..columns], &rows)).filter(|table| table.lines().all(|line| width(line) <= room))
    };
    for columns in (2..=head.len()).rev() {
        let left_out = head.len() - columns;
        match narrow(columns) {
            Some(table) if left_out == 0 => return table,
            Some(table) => return format!("{table}  (and {} in the report)\n", counted(left_out as u64, "column")),
            None => (),
        }
    }
    if rows.len() > MOST_APART {
        return format!("  {} rows, wider than this terminal: see the report\n", rows.len());
    }
    let mut text = String::new();
    for row in rows {
        for (column, (name, cell)) in head.iter().zip(row).enumerate() {
            let (name, cell) = (shown(name), shown(cell));
            text.push_str(&match (column, name.is_empty()) {
                (0, true) => format!("  {cell}\n"),
                (0, false) => format!("  {name} {cell}\n"),
                _ => format!("    {name}: {cell}\n"),
            });
        }
    }
    text
}

/// A cell as a terminal shows it.
fn shown(cell: &str) -> String {
    plain(cell).replace("**", "").replace('`', "")
}

fn lined_up(head: &[String], rows: &[Vec<String>]) -> String {
    let lines: Vec<Vec<String>> = std::iter::once(head)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| row.iter().map(|cell| shown(cell)).collect())
        .collect();
    let widest =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| width(cell)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(widest).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &room))| match column {
            0 => left(cell, room),
            _ => right(cell, room),
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
