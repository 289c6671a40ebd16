//! A page as headings, texts, tables and figures, written as Markdown and as one HTML file that opens offline.
//!
//! Texts may hold `code` between backquotes and **bold** words between double stars; everything else is taken as it
//! stands, in both formats.
//!
//! ```
//! use ftprop_lab::report::document::Document;
//!
//! let mut page = Document::new("Two runs");
//! page.text("Both with `train.epochs = 3`.");
//! page.table(&["run", "accuracy"], vec![vec!["a <b>".into(), "81.2".into()]]);
//! assert!(page.markdown().contains("| run | accuracy |"));
//! assert!(page.html().contains("<td>a &lt;b&gt;</td>"));
//! ```

use super::{html, markdown};
use crate::error::Error;
use crate::plot::Picture;
use ftprop_train::files;
use std::path::Path;

/// A page, block by block.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub(super) title: String,
    pub(super) blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    Heading(String),
    Text(String),
    List(Vec<String>),
    Table {
        head: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    /// Commands and the like, as they stand.
    Code(Vec<String>),
    /// A picture, the path of its files without their ending, relative to the page, and what is said below it.
    Figure {
        picture: Box<Picture>,
        path: String,
        caption: String,
    },
}

impl Document {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        Document { title: title.to_owned(), blocks: Vec::new() }
    }

    /// Begins a section.
    pub fn heading(&mut self, text: &str) {
        self.blocks.push(Block::Heading(text.to_owned()));
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str) {
        self.blocks.push(Block::Text(text.to_owned()));
    }

    /// A list of points.
    pub fn list(&mut self, items: Vec<String>) {
        self.blocks.push(Block::List(items));
    }

    /// A table; the first column holds names, the others figures.
    pub fn table<S: AsRef<str>>(&mut self, head: &[S], rows: Vec<Vec<String>>) {
        self.blocks.push(Block::Table { head: head.iter().map(|h| h.as_ref().to_owned()).collect(), rows });
    }

    /// Commands and the like, as they stand.
    pub fn code(&mut self, lines: Vec<String>) {
        self.blocks.push(Block::Code(lines));
    }

    /// A picture; `path` is where its files lie beside the page, without their ending.
    pub fn figure(&mut self, picture: Picture, path: &str, caption: &str) {
        self.blocks.push(Block::Figure { picture: Box::new(picture), path: path.into(), caption: caption.into() });
    }

    /// The page as Markdown, which points to its pictures.
    pub fn markdown(&self) -> String {
        markdown::write(self)
    }

    /// Its tables alone, as text for a terminal of so many columns, where it is one.
    pub fn tables(&self, columns: Option<usize>) -> String {
        markdown::tables(self, columns.unwrap_or(usize::MAX))
    }

    /// The page as HTML, with its pictures inside.
    pub fn html(&self) -> String {
        html::write(self)
    }

    /// Writes `NAME.md`, `NAME.html` and the pictures into a folder, which is made if need be.
    pub fn save(&self, folder: &Path, name: &str) -> Result<(), Error> {
        files::create_folder(folder)?;
        for block in &self.blocks {
            if let Block::Figure { picture, path, .. } = block {
                let path = folder.join(path);
                if let Some(parent) = path.parent() {
                    files::create_folder(parent)?;
                }
                picture.save(&path)?;
            }
        }
        files::write(&folder.join(format!("{name}.md")), self.markdown().as_bytes())?;
        files::write(&folder.join(format!("{name}.html")), self.html().as_bytes())?;
        Ok(())
    }
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Inline<'a> {
    Plain(&'a str),
    Code(&'a str),
    Bold(&'a str),
}

/// Takes a text apart; marks that are never closed are plain.
pub(super) fn inlines(text: &str) -> Vec<Inline<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let marks = [("`", Inline::Code as fn(_) -> _), ("**", Inline::Bold as fn(_) -> _)];
        let next = marks
            .into_iter()
            .filter_map(|(mark, kind)| {
                let start = rest.find(mark)?;
                let length = rest[start + mark.len()..].find(mark)?;
                Some((start, length, mark, kind))
            })
            .min_by_key(|(start, ..)| *start);
        let Some((start, length, mark, kind)) = next else {
            pieces.push(Inline::Plain(rest));
            break;
        };
        if start > 0 {
            pieces.push(Inline::Plain(&rest[..start]));
        }
        let inside = start + mark.len();
        pieces.push(kind(&rest[inside..inside + length]));
        rest = &rest[inside + length + mark.len()..];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Figure, Picture};

    #[test]
    fn marks_come_apart() {
        use Inline::{Bold, Code, Plain};
        assert_eq!(inlines("a `b` **c** d"), [Plain("a "), Code("b"), Plain(" "), Bold("c"), Plain(" d")]);
        assert_eq!(inlines("`**a**`"), [Code("**a**")]);
        assert_eq!(inlines("2 * 3 ` 4"), [Plain("2 * 3 ` 4")]);
        assert_eq!(inlines(""), []);
    }

    fn page() -> Document {
        let mut page = Document::new("A & B");
        page.heading("What <came> out");
        page.text("As `a|b < c` and **d & e**.");
        page.list(vec!["one".into(), "two `x`".into()]);
        page.table(&["name", "value"], vec![vec!["a|b".into(), "1 < 2".into()]]);
        page.code(vec!["ftprop plot 'a & b'".into()]);
        page.figure(Picture::of(Figure { title: "Curves".into(), ..Figure::default() }), "figures/a", "Below.");
        page
    }

    #[test]
    fn markdown_escapes_what_would_break_a_table() {
        let text = page().markdown();
        for part in [
            "# A & B\n",
            "## What &lt;came> out\n",
            "- two `x`\n",
            "| name | value |\n| --- | ---: |\n| a\\|b | 1 < 2 |\n",
            "```sh\nftprop plot 'a & b'\n```\n",
            "![Below.](figures/a.png)\n",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    /// Names from files are data: in no format do they become a line, a link or HTML.
    #[test]
    fn words_of_files_stay_words() {
        let name = "x <img src=http://a/b> ![y](http://c)\n## proved\u{1b}[2J";
        let mut page = Document::new(name);
        page.heading(name);
        page.text(name);
        page.list(vec![name.into()]);
        page.table(&["run", name], vec![vec![name.into(), "1".into()]]);
        page.code(vec!["```".into(), name.into()]);
        let (markdown, html, tables) = (page.markdown(), page.html(), page.tables(None));
        for text in [&markdown, &html, &tables] {
            assert!(!text.contains('\u{1b}'), "{text}");
        }
        assert!(!markdown.contains("\n## proved") && !tables.contains("\n## proved"), "{markdown}");
        let outside = markdown.split("```").next().unwrap();
        assert!(!outside.contains("<img") && !outside.contains("![y]"), "{outside}");
        assert_eq!(markdown.lines().filter(|line| line.starts_with("```")).count(), 2, "{markdown}");
        assert!(!html.contains("<img"), "{html}");
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let mut page = Document::new("any");
        page.heading("Runs");
        page.table(&["`key`", "last epoch", "b"], vec![vec!["a".into(), "**81.00 ± 0.20**".into(), "1".into()]]);
        assert_eq!(page.tables(Some(22)), "Runs\n  key    last epoch  b\n  a    81.00 ± 0.20  1");
        assert_eq!(
            page.tables(Some(20)),
            "Runs\n  key    last epoch\n  a    81.00 ± 0.20\n  (and 1 column in the report)"
        );
        page.table(&["", "b"], vec![vec!["猫".into(), "é".into()], vec!["cat".into(), "\u{1f431}\u{1f431}".into()]]);
        assert!(
            page.tables(None).ends_with("        b\n  猫      é\n  cat  \u{1f431}\u{1f431}"),
            "{}",
            page.tables(None)
        );
        page.blocks.pop();
        assert_eq!(page.tables(Some(18)), "Runs\n  key a\n    last epoch: 81.00 ± 0.20\n    b: 1");
        let row = vec!["a".to_string(), "a value that is long".into()];
        page.table(&["", "b"], vec![row; 13]);
        assert!(page.tables(Some(20)).ends_with("  13 rows, wider than this terminal: see the report"));
    }

    #[test]
    fn html_holds_everything_itself() {
        let text = page().html();
        for part in [
            "<title>A &amp; B</title>",
            "<h2>What &lt;came&gt; out</h2>",
            "<code>a|b &lt; c</code> and <strong>d &amp; e</strong>",
            "<td>1 &lt; 2</td>",
            "ftprop plot 'a &amp; b'",
            "<svg ",
            "<figcaption>Below.</figcaption>",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("src=") && !text.contains("href=") && !text.contains("url("), "{text}");
    }
}
