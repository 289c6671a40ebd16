//! A [`Document`] as one HTML file that fetches nothing.

use super::document::{Block, Document, Inline, inlines};
use ftprop_train::words::plain_lines;

/// Plain and readable on any screen and on paper; dark screens get a light page, as the pictures are light.
const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; color: #222;
  background: #fff; max-width: 70rem; margin: 2rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.25; }
h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; padding-bottom: 0.25rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.8rem; text-align: right; border-bottom: 1px solid #e6e6e6; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
thead th { border-bottom: 2px solid #888; }
tbody tr:hover { background: #f6f8fa; }
code, pre { font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; font-size: 0.88em; }
code { background: #f3f3f3; padding: 0.1em 0.3em; border-radius: 3px; }
pre { background: #f6f6f6; padding: 0.8rem 1rem; overflow-x: auto; border-radius: 4px; }
figure { margin: 1.5rem 0; }
figure svg { max-width: 100%; height: auto; }
figcaption { color: #555; font-size: 0.92rem; }
@media print { body { max-width: none; margin: 0; } figure { break-inside: avoid; } }
";

pub(super) fn write(page: &Document) -> String {
    let title = escape(&page.title);
    let blocks: String = page.blocks.iter().map(block_text).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{blocks}</body>\n</html>\n"
    )
}

fn block_text(block: &Block) -> String {
    match block {
        Block::Heading(heading) => format!("<h2>{}</h2>\n", words(heading)),
        Block::Text(text) => format!("<p>{}</p>\n", words(text)),
        Block::List(items) => {
            let items: String = items.iter().map(|item| format!("<li>{}</li>\n", words(item))).collect();
            format!("<ul>\n{items}</ul>\n")
        }
        Block::Table { head, rows } => {
            let cells = |row: &[String], tag: &str| {
                row.iter().map(|c| format!("<{tag}>{}</{tag}>", words(c))).collect::<String>()
            };
            let rows: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells(row, "td"))).collect();
            format!(
                "<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n",
                cells(head, "th")
            )
        }
        Block::Code(lines) => format!("<pre>{}</pre>\n", escape(&lines.join("\n"))),
        Block::Figure { picture, caption, .. } => {
            format!("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", picture.svg(), words(caption))
        }
    }
}

fn words(text: &str) -> String {
    let piece = |piece: Inline<'_>| match piece {
        Inline::Plain(text) => escape(text),
        Inline::Code(text) => format!("<code>{}</code>", escape(text)),
        Inline::Bold(text) => format!("<strong>{}</strong>", escape(text)),
    };
    inlines(text).into_iter().map(piece).collect()
}

fn escape(text: &str) -> String {
    plain_lines(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
