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
