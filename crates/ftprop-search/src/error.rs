//! What can go wrong, in words for the person at the keyboard.

/// Every error of this crate. Rows and columns are counted from 1, as an editor shows them.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// No instances.
    #[error("there are no instances: the data is empty")]
    Empty,
    /// Labels only.
    #[error("the instances have no inputs: each row needs at least one number and a label")]
    NoInputs,
    /// A picture of more than a plane.
    #[error("decision regions can be drawn for two inputs, not for {inputs}")]
    NotAPlane {
        /// How many inputs there are.
        inputs: usize,
    },
    /// Rows of different lengths.
    #[error("row {row} has {found} columns where the first row has {expected}; every row needs the same number")]
    Ragged {
        /// The row.
        row: usize,
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A cell that is no number.
    #[error(
        "row {row}, column {column}: '{text}' is not a finite number; inputs are numbers, and the label is in the last column"
    )]
    NotFinite {
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// As it was written.
        text: String,
    },
    /// A number that is written with more digits, or is farther from 1, than is of use.
    #[error(
        "row {row}, column {column}: '{text}' is too long, too large or too small a number; up to 400 digits and magnitudes of \
         1e-400 to 1e308 are read"
    )]
    OutOfProportion {
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// As it was written.
        text: String,
    },
    /// A row without a label.
    #[error("row {row} has no label in its last column; remove or repair that row")]
    NoLabel {
        /// The row.
        row: usize,
    },
    /// A test label that training did not have.
    #[error("row {row} has the label '{label}', which the training data does not have; it has {known}")]
    UnknownLabel {
        /// The row.
        row: usize,
        /// The label.
        label: String,
        /// Those that there are.
        known: String,
    },
    /// Nothing to tell apart.
    #[error("every instance has the label '{label}'; there must be at least two classes to tell apart")]
    OneClass {
        /// The label.
        label: String,
    },
    /// Labels that do not belong to the instances.
    #[error("{instances} instances but {labels} labels; each instance needs one")]
    LabelCount {
        /// How many instances.
        instances: usize,
        /// How many labels.
        labels: usize,
    },
    /// More than two classes where two are needed.
    #[error("there are {classes} classes; this needs exactly two")]
    NotBinary {
        /// How many classes.
        classes: usize,
    },
    /// Test data of another width.
    #[error("the test data has {found} inputs where the training data has {expected}")]
    TestInputs {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A made-up problem that is not known.
    #[error("unknown problem '{name}'; known are xor, parity:N, moons, spirals, multiplexer:N, digits:K and mnist:K")]
    UnknownProblem {
        /// As it was written.
        name: String,
    },
    /// A made-up problem that cannot be.
    #[error("problem '{name}': {why}")]
    BadProblem {
        /// As it was written.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// No time at all.
    #[error("the budget is zero; give the search some time or nodes, for example 10s")]
    ZeroBudget,
    /// A time that is not understood.
    #[error("budget '{text}' is not understood; write a time such as 500ms, 60s or 5m")]
    BadBudget {
        /// As it was written.
        text: String,
    },
    /// Widths that are not understood.
    #[error("hidden widths '{text}' are not understood; write numbers of at least 1 such as 2 or 8,4")]
    BadHidden {
        /// As it was written.
        text: String,
    },
    /// A name that is not known.
    #[error("unknown {what} '{name}'; known are {known}")]
    UnknownName {
        /// What it would be the name of.
        what: &'static str,
        /// As it was written.
        name: String,
        /// Those that there are.
        known: &'static str,
    },
    /// A search that is not made for this.
    #[error("search '{search}' cannot do this: {why}")]
    Unsupported {
        /// The search.
        search: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A mistake in the program.
    #[error(
        "targets that a unit can realise were not confirmed exactly; this is a mistake in the program, please report it"
    )]
    Unconfirmed,
    /// More memory than is allowed.
    #[error("this needs about {needed} MiB of memory and may take {most}; use fewer units, or allow more")]
    Memory {
        /// In MiB.
        needed: usize,
        /// In MiB.
        most: usize,
    },
    /// Numbers too large for floats.
    #[error(
        "weights are beyond what floats hold, as instances lie too near to each other or too far out; multiply the inputs"
    )]
    Overflow,
    /// A question about robustness that has no answer.
    #[error("{why}")]
    Robust {
        /// What is wrong.
        why: String,
    },
    /// What is known from before is about another loss.
    #[error(
        "the search to go on from minimised the {known} loss, this one the {wanted} loss; minimise the same, or begin anew"
    )]
    OtherLoss {
        /// What it minimised.
        known: String,
        /// What is to be minimised now.
        wanted: String,
    },
    /// A file that is no certificate.
    #[error("the certificate cannot be read: {why}")]
    BadCertificate {
        /// What is wrong.
        why: String,
    },
    /// A certificate that does not hold.
    #[error("the certificate is refused: {why}")]
    Refused {
        /// What is wrong.
        why: String,
    },
    /// A file that cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What happened.
        source: std::io::Error,
    },
    /// An error in a file.
    #[error("{path}: {source}")]
    InFile {
        /// The file.
        path: String,
        /// What happened.
        source: Box<SearchError>,
    },
}
