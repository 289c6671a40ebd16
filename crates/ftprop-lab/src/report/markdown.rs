//! A [`Document`] as Markdown.

use super::document::{Block, Document};

pub(super) fn write(page: &Document) -> String {
    let mut text = format!("# {}\n", page.title);
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
                    text.push_str(&format!("{words}\n"));
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
    let plain = |cell: &String| cell.replace("**", "").replace('`', "");
    let lines: Vec<Vec<String>> = std::iter::once(head)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| row.iter().map(plain).collect())
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
        Block::Heading(heading) => format!("## {heading}\n"),
        Block::Text(words) => format!("{words}\n"),
        Block::List(items) => items.iter().map(|item| format!("- {item}\n")).collect(),
        Block::Table { head, rows } => {
            // Figures line up at their right.
            let rule: Vec<&str> = (0..head.len()).map(|column| if column == 0 { "---" } else { "---:" }).collect();
            let mut table = format!("{}| {} |\n", row(head), rule.join(" | "));
            rows.iter().for_each(|cells| table.push_str(&row(cells)));
            table
        }
        Block::Code(lines) => format!("```sh\n{}\n```\n", lines.join("\n")),
        Block::Figure { path, caption, .. } => format!("![{caption}]({path}.png)\n\n{caption}\n"),
    }
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
