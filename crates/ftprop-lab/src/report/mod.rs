//! Reports: what many runs came to, as pages that can be read without this program.
//!
//! | module | subject |
//! | --- | --- |
//! | [`document`] | a page as headings, tables and figures; written as Markdown and as one HTML file |
//! | [`statistics`] | means, deviations and Student's intervals for a handful of seeds |
//! | [`columns`] | texts in columns of a terminal |
//! | [`machine`] | what runs ran on |

pub mod columns;
pub mod document;
mod html;
pub mod machine;
mod markdown;
pub mod statistics;
