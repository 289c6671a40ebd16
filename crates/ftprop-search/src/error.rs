//! What can go wrong, in words for the person at the keyboard.

/// Every error of this crate. Rows and columns are counted from 1, as an editor shows them.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("there are no instances: the data is empty")]
    Empty,
    #[error("the instances have no inputs: each row needs at least one number and a label")]
    NoInputs,
    #[error("decision regions can be drawn for two inputs, not for {inputs}")]
    NotAPlane { inputs: usize },
    #[error("row {row} has {found} columns where the first row has {expected}; every row needs the same number")]
    Ragged { row: usize, found: usize, expected: usize },
    #[error("row {row}, column {column}: '{text}' is not a finite number; remove or repair that row")]
    NotFinite { row: usize, column: usize, text: String },
    #[error("row {row} has no label in its last column; remove or repair that row")]
    NoLabel { row: usize },
    #[error("row {row} has the label '{label}', which the training data does not have; it has {known}")]
    UnknownLabel { row: usize, label: String, known: String },
    #[error("every instance has the label '{label}'; there must be at least two classes to tell apart")]
    OneClass { label: String },
    #[error("{instances} instances but {labels} labels; each instance needs one")]
    LabelCount { instances: usize, labels: usize },
    #[error("there are {classes} classes; this needs exactly two")]
    NotBinary { classes: usize },
    #[error("the test data has {found} inputs where the training data has {expected}")]
    TestInputs { found: usize, expected: usize },
    #[error("unknown problem '{name}'; known are xor, parity:N, moons, spirals, multiplexer:N, digits:K and mnist:K")]
    UnknownProblem { name: String },
    #[error("problem '{name}': {why}")]
    BadProblem { name: String, why: String },
    #[error("the budget is zero; give the search some time or nodes, for example 10s")]
    ZeroBudget,
    #[error("budget '{text}' is not understood; write a time such as 500ms, 60s or 5m")]
    BadBudget { text: String },
    #[error("hidden widths '{text}' are not understood; write numbers of at least 1 such as 2 or 8,4")]
    BadHidden { text: String },
    #[error("unknown {what} '{name}'; known are {known}")]
    UnknownName { what: &'static str, name: String, known: &'static str },
    #[error("search '{search}' cannot do this: {why}")]
    Unsupported { search: &'static str, why: String },
    #[error(
        "targets that a unit can realise were not confirmed exactly; this is a mistake in the program, please report it"
    )]
    Unconfirmed,
    #[error("this needs about {needed} MiB of memory and may take {most}; use fewer units, or allow more")]
    Memory { needed: usize, most: usize },
    #[error("a weight became infinite; scale the inputs to a moderate range")]
    Overflow,
    #[error("the certificate cannot be read: {why}")]
    BadCertificate { why: String },
    #[error("the certificate is refused: {why}")]
    Refused { why: String },
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{path}: {source}")]
    InFile { path: String, source: Box<SearchError> },
}
