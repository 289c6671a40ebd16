//! Configuration in layers: defaults, then files, then settings `KEY=VALUE`, then named flags.
//!
//! Each layer is laid over the ones before it: tables merge key by key, everything else (arrays too) replaces.
//! [`Layers`] remembers where each key came from, so that every error is one line that names the file and line, or
//! the argument, and the key's full path. An unknown key is an error that names the nearest known one.
//!
//! ```
//! use ftprop_train::config::Layers;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Recipe {
//!     activation: String,
//!     train: Train,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Train {
//!     epochs: u32,
//!     seed: u64,
//! }
//!
//! let defaults = Recipe { activation: "relu".into(), train: Train { epochs: 20, seed: 0 } };
//! let layers = Layers::new(&defaults)?
//!     .text("digits.toml", "activation = 'sign'\n[train]\nepochs = 5")?
//!     .set("train.epochs=10")?
//!     .flag("--seed", "train.seed", 7)?;
//! let recipe: Recipe = layers.build()?;
//! assert_eq!((recipe.activation.as_str(), recipe.train.epochs, recipe.train.seed), ("sign", 10, 7));
//!
//! let misspelt = layers.set("train.epoch=3")?.build::<Recipe>().err().unwrap();
//! assert_eq!(
//!     misspelt.to_string(),
//!     "the setting train.epoch=3: unknown key `train.epoch`; did you mean `train.epochs`?"
//! );
//! # Ok::<(), ftprop_train::config::ConfigError>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use crate::files::{self, FileError};

/// What is wrong with a configuration, and where.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read at all.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not TOML.
    #[error("{file}:{line}:{column}: {message}")]
    Syntax {
        /// The file's name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// An argument cannot be laid over what is there.
    #[error("{origin}: {message}")]
    Argument {
        /// The argument.
        origin: Origin,
        /// What is wrong with it.
        message: String,
    },
    /// A key that is unknown, missing, or holds the wrong thing.
    #[error("{origin}: {message}")]
    Key {
        /// Where it came from.
        origin: Origin,
        /// Its full path.
        key: String,
        /// What is wrong with it.
        message: String,
    },
}

impl ConfigError {
    /// The setting or flag at fault; none where it is a file.
    pub fn argument(&self) -> Option<&Origin> {
        match self {
            Self::Argument { origin, .. } | Self::Key { origin, .. } => Some(origin).filter(|o| o.is_argument()),
            Self::File(_) | Self::Syntax { .. } => None,
        }
    }

    /// What is wrong, without where.
    pub fn message(&self) -> String {
        match self {
            Self::Argument { message, .. } | Self::Key { message, .. } | Self::Syntax { message, .. } => {
                message.clone()
            }
            Self::File(error) => error.to_string(),
        }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The program's own defaults.
    Defaults,
    /// A line of a file.
    File {
        /// The file's name.
        name: String,
        /// Counted from 1.
        line: usize,
    },
    /// A setting, as `KEY=VALUE`.
    Set(String),
    /// One of the values of a grid, as `KEY=VALUE`.
    Grid(String),
    /// A flag, by the name that it was given with.
    Flag(String),
}

impl Origin {
    /// Whether the caller gave it, beside files.
    fn is_argument(&self) -> bool {
        matches!(self, Origin::Set(_) | Origin::Grid(_) | Origin::Flag(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defaults => write!(f, "the built-in defaults"),
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Set(argument) => write!(f, "the setting {argument}"),
            Self::Grid(argument) => write!(f, "the grid's {argument}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// Layers of configuration, merged as they are added; later ones win. See the [module](self).
#[derive(Debug, Clone)]
pub struct Layers {
    merged: Table,
    /// The origin of each key by its dotted path, for tables and array entries as well as for leaves.
    origins: BTreeMap<String, Origin>,
    /// The full keys that say which kind of thing their table describes.
    kinds: Vec<&'static str>,
}

impl Layers {
    /// Begins with the program's defaults.
    pub fn new<T: Serialize>(defaults: &T) -> Result<Self, ConfigError> {
        let defaults = Table::try_from(defaults).map_err(|error| ConfigError::Argument {
            origin: Origin::Defaults,
            message: first_line(&error.to_string()).to_owned(),
        })?;
        let mut layers = Self { merged: Table::new(), origins: BTreeMap::new(), kinds: Vec::new() };
        layers.merge(defaults, &|_| Origin::Defaults);
        Ok(layers)
    }

    /// Names full keys, such as `optimizer.name`, that say what kind of thing their table describes. A layer that
    /// changes one of them replaces the table: what was said of one kind does not fit another.
    pub fn kinds(mut self, keys: &[&'static str]) -> Self {
        self.kinds.extend(keys);
        self
    }

    /// Lays the TOML file at `path` over what is there.
    pub fn file(self, path: &Path) -> Result<Self, ConfigError> {
        let text = files::read_text(path)?;
        self.text(&path.display().to_string(), &text)
    }

    /// As [`Layers::file`], for TOML that is already in memory; errors call it `name`.
    pub fn text(mut self, name: &str, text: &str) -> Result<Self, ConfigError> {
        let syntax = |error: toml::de::Error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            ConfigError::Syntax { file: name.to_owned(), line, column, message: one_line(error.message()) }
        };
        let table: Table = toml::from_str(text).map_err(syntax)?;
        // The plain table has no positions; a second parse, which has, tells the line of each key.
        let mut lines = BTreeMap::new();
        let starts: Vec<usize> = text.match_indices('\n').map(|(feed, _)| feed + 1).collect();
        collect_lines(DeTable::parse(text).map_err(syntax)?.get_ref(), "", &starts, &mut lines);
        self.merge(table, &|key| Origin::File { name: name.to_owned(), line: lines.get(key).copied().unwrap_or(1) });
        Ok(self)
    }

    /// Lays one `KEY=VALUE` over what is there. The key is a dotted path, in which a number
    /// picks an entry of an array; the value is TOML, and what is not TOML is taken as a plain string.
    pub fn set(self, argument: &str) -> Result<Self, ConfigError> {
        self.assign(argument, Origin::Set(argument.to_owned()))
    }

    /// The same for one of a grid's values.
    pub fn grid(self, argument: &str) -> Result<Self, ConfigError> {
        self.assign(argument, Origin::Grid(argument.to_owned()))
    }

    fn assign(self, argument: &str, origin: Origin) -> Result<Self, ConfigError> {
        let fail = |message: String| ConfigError::Argument { origin: origin.clone(), message };
        let Some((key, text)) = argument.split_once('=') else {
            return Err(fail("expected KEY=VALUE, for example train.epochs=10".to_owned()));
        };
        let text = text.trim();
        let value = match text.parse::<Value>() {
            Ok(value) => value,
            // What opens like a list, a table or a quoted string was meant as one.
            Err(error) if text.starts_with(['[', '{', '"', '\'']) => {
                return Err(fail(format!("the value is not valid TOML: {}", one_line(error.message()))));
            }
            Err(_) => Value::String(text.to_owned()),
        };
        self.put(key.trim(), value, origin)
    }

    /// Lays the value of a named flag over what is there; errors about it name `flag`.
    pub fn flag(self, flag: &str, key: &str, value: impl Into<Value>) -> Result<Self, ConfigError> {
        self.put(key, value.into(), Origin::Flag(flag.to_owned()))
    }

    /// Everything merged, as it would be written to a file.
    pub fn table(&self) -> &Table {
        &self.merged
    }

    /// The merged configuration as a checked type. Give `T` and what it holds `#[serde(deny_unknown_fields)]`.
    pub fn build<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        serde_path_to_error::deserialize(Value::Table(self.merged.clone()))
            .map_err(|error| self.explain(error.path(), error.inner().message()))
    }

    fn merge(&mut self, from: Table, origin: &dyn Fn(&str) -> Origin) {
        merge_table(&mut self.merged, from, "", &self.kinds, &mut self.origins, origin);
    }

    fn put(mut self, key: &str, value: Value, origin: Origin) -> Result<Self, ConfigError> {
        let fail = |message: String| ConfigError::Argument { origin: origin.clone(), message };
        let segments: Vec<&str> = key.split('.').collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return Err(fail(format!("`{key}` is not a key; expected names joined by dots")));
        }
        let (last, parents) = segments.split_last().expect("splitting a string yields at least one piece");
        // Walk down to the table or array that holds the last name, making tables on the way.
        let mut path = String::new();
        let mut root = Value::Table(std::mem::take(&mut self.merged));
        let mut here = &mut root;
        for segment in parents {
            path = join(&path, segment);
            here = match here {
                Value::Table(table) => {
                    self.origins.entry(path.clone()).or_insert_with(|| origin.clone());
                    table.entry(*segment).or_insert_with(|| Value::Table(Table::new()))
                }
                Value::Array(array) => entry(array, segment, &path).map_err(fail)?,
                _ => return Err(fail(not_a_table(&path, here))),
            };
        }
        let full = join(&path, last);
        let slot = match here {
            Value::Table(table) => {
                if self.kinds.contains(&full.as_str()) && table.get(*last) != Some(&value) {
                    // What other arguments say stays: they know of this one, whatever their order.
                    let argued = |key: &str| self.origins.get(key).is_some_and(Origin::is_argument);
                    let (kept, gone): (Table, Table) =
                        std::mem::take(table).into_iter().partition(|(name, _)| argued(&join(&path, name)));
                    *table = kept;
                    for name in gone.keys() {
                        let key = join(&path, name);
                        self.origins.remove(&key);
                        forget_below(&key, &mut self.origins);
                    }
                    self.origins.insert(path.clone(), origin.clone());
                }
                table.entry(*last).or_insert_with(|| Value::Table(Table::new()))
            }
            Value::Array(array) => entry(array, last, &full).map_err(fail)?,
            _ => return Err(fail(not_a_table(&full, here))),
        };
        merge_value(slot, value, &full, &self.kinds, &mut self.origins, &|_| origin.clone());
        if let Value::Table(merged) = root {
            self.merged = merged;
        }
        Ok(self)
    }

    /// Turns serde's complaint at `path` into a line that helps.
    fn explain(&self, path: &serde_path_to_error::Path, complaint: &str) -> ConfigError {
        let mut key = path.iter().fold(String::new(), |key, segment| match segment {
            Segment::Map { key: name } => join(&key, name),
            Segment::Seq { index } => join(&key, &index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => key,
        });
        let complaint = first_line(complaint);
        let message = if let Some((name, known)) = unknown(complaint, "unknown field ") {
            // Inside an enum serde does not tell the last step of the path.
            if key != name && !key.ends_with(&format!(".{name}")) {
                key = join(&key, name);
            }
            format!("unknown key `{key}`{}", self.suggest_key(&key, name, &known))
        } else if let Some((name, known)) = unknown(complaint, "unknown variant ") {
            format!("`{key}` cannot be `{name}`{}", suggest("", name, &known))
        } else if let Some(name) = complaint.strip_prefix("missing field ") {
            format!("the key `{}` is missing", join(&key, name.trim_matches('`')))
        } else if let Some(named) =
            complaint.split_whitespace().next().filter(|word| word.starts_with(&format!("{key}.")))
        {
            // What is checked as a whole names the key in it itself.
            key = named.to_owned();
            complaint.to_owned()
        } else if complaint.starts_with("must be ") {
            format!("`{key}` {complaint}")
        } else {
            format!("`{key}`: {}", plain_types(complaint))
        };
        ConfigError::Key { origin: self.origin(&key), key, message }
    }

    /// The origin of `key`, or of the nearest table around it.
    fn origin(&self, key: &str) -> Origin {
        let mut key = key;
        loop {
            match (self.origins.get(key), key.rsplit_once('.')) {
                (Some(origin), _) => return origin.clone(),
                (None, Some((parent, _))) => key = parent,
                (None, None) => return Origin::Defaults,
            }
        }
    }

    fn suggest_key(&self, key: &str, name: &str, known: &[&str]) -> String {
        let parent = key.strip_suffix(name).unwrap_or_default();
        // The right name in the wrong table is a commoner slip than a far-fetched misspelling.
        let elsewhere = self.origins.iter().find_map(|(path, origin)| {
            let same_name = path.rsplit('.').next() == Some(name);
            let known = matches!(origin, Origin::Defaults | Origin::File { .. });
            (same_name && known && path != key).then_some(path)
        });
        match elsewhere {
            Some(path) if nearest(name, known).is_none() => format!("; did you mean `{path}`?"),
            _ => suggest(parent, name, known),
        }
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

fn entry<'a>(array: &'a mut [Value], segment: &str, path: &str) -> Result<&'a mut Value, String> {
    let length = array.len();
    let found = segment.parse::<usize>().ok().and_then(|index| array.get_mut(index));
    found.ok_or_else(|| match length {
        0 => format!("`{path}`: the list is empty"),
        _ => format!("`{path}`: the list has {length} entries, numbered 0 to {}", length - 1),
    })
}

fn not_a_table(path: &str, value: &Value) -> String {
    let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
    format!("`{path}` cannot be set: `{parent}` is no table but of type {}", value.type_str())
}

fn merge_table(
    into: &mut Table,
    from: Table,
    path: &str,
    kinds: &[&str],
    origins: &mut BTreeMap<String, Origin>,
    origin: &dyn Fn(&str) -> Origin,
) {
    for (name, value) in from {
        let path = join(path, &name);
        let slot = into.entry(name).or_insert_with(|| Value::Table(Table::new()));
        merge_value(slot, value, &path, kinds, origins, origin);
    }
}

fn merge_value(
    slot: &mut Value,
    value: Value,
    path: &str,
    kinds: &[&str],
    origins: &mut BTreeMap<String, Origin>,
    origin: &dyn Fn(&str) -> Origin,
) {
    match (slot, value) {
        (Value::Table(into), Value::Table(from)) => {
            let changes = |name: &String| from.contains_key(name) && from.get(name) != into.get(name);
            if into.keys().any(|name| changes(name) && kinds.contains(&join(path, name).as_str())) {
                into.clear();
                forget_below(path, origins);
                origins.insert(path.to_owned(), origin(path));
            }
            origins.entry(path.to_owned()).or_insert_with(|| origin(path));
            merge_table(into, from, path, kinds, origins, origin);
        }
        (slot, value) => {
            forget_below(path, origins);
            record(&value, path, origins, origin);
            *slot = value;
        }
    }
}

fn forget_below(path: &str, origins: &mut BTreeMap<String, Origin>) {
    let below = format!("{path}.");
    // They lie side by side; a look at all of them for each key would take hours for a long file.
    let gone: Vec<String> =
        origins.range(below.clone()..).map(|(key, _)| key.clone()).take_while(|key| key.starts_with(&below)).collect();
    gone.iter().for_each(|key| {
        origins.remove(key);
    });
}

/// Notes `origin` for `value` and everything in it.
fn record(value: &Value, path: &str, origins: &mut BTreeMap<String, Origin>, origin: &dyn Fn(&str) -> Origin) {
    origins.insert(path.to_owned(), origin(path));
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                record(value, &join(path, name), origins, origin);
            }
        }
        Value::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                record(value, &join(path, &index.to_string()), origins, origin);
            }
        }
        _ => {}
    }
}

/// `starts` are where the lines after the first begin.
fn collect_lines(table: &DeTable<'_>, path: &str, starts: &[usize], lines: &mut BTreeMap<String, usize>) {
    for (name, value) in table {
        let path = join(path, name.get_ref());
        lines.insert(path.clone(), line_of(starts, name.span().start));
        collect_value_lines(value.get_ref(), &path, starts, lines);
    }
}

fn line_of(starts: &[usize], byte: usize) -> usize {
    starts.partition_point(|&start| start <= byte) + 1
}

fn collect_value_lines(value: &DeValue<'_>, path: &str, starts: &[usize], lines: &mut BTreeMap<String, usize>) {
    match value {
        DeValue::Table(table) => collect_lines(table, path, starts, lines),
        DeValue::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                let path = join(path, &index.to_string());
                lines.insert(path.clone(), line_of(starts, value.span().start));
                collect_value_lines(value.get_ref(), &path, starts, lines);
            }
        }
        _ => {}
    }
}

/// Line and column of a byte of `text`, both counted from 1.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |feed| feed + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

/// Splits serde's "unknown field `a`, expected one of `b`, `c`" into `a` and `[b, c]`.
fn unknown<'a>(complaint: &'a str, prefix: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let mut quoted = complaint.strip_prefix(prefix)?.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// The known name that is near enough to be what was meant.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, best) = known.iter().map(|known| (strsim::osa_distance(name, known), *known)).min()?;
    (distance <= 2.max(name.chars().count() / 2)).then_some(best)
}

fn suggest(parent: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(best) => format!("; did you mean `{parent}{best}`?"),
        None if known.is_empty() => String::new(),
        None => format!("; known are {}", known.join(", ")),
    }
}

/// Says in words which type was expected, where serde names a Rust type.
fn plain_types(complaint: &str) -> String {
    let Some((found, expected)) = complaint.rsplit_once(", expected ") else { return complaint.to_owned() };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list such as [1, 2]",
        other if other.starts_with("struct ") => "a table of keys",
        other => other,
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests;
