//! Texts in columns of a terminal, where a character may take none, one or two of them.
//!
//! ```
//! use ftprop_lab::report::columns::{left, right, shortened, width};
//!
//! assert_eq!((width("cat"), width("猫"), width("e\u{301}")), (3, 2, 1));
//! assert_eq!((left("猫", 4).as_str(), right("cat", 4).as_str()), ("猫  ", " cat"));
//! assert_eq!((shortened("cat", 3).as_str(), shortened("a 猫 cat", 4).as_str()), ("cat", "a …"));
//! ```

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// A text at the left of so many columns.
pub fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A text at the right of so many columns.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// As much of a text as so many columns hold, with `…` for the rest.
pub fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for character in text.chars() {
        used += character.width().unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        kept.push(character);
    }
    if columns > 0 { kept + "…" } else { kept }
}
