//! What can go wrong between ranks.

use std::path::PathBuf;
use std::time::Duration;

/// Why ranks cannot work together, or cannot any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// Two launchers' variables that do not go together.
    #[error(
        "{one} and {other} contradict each other: is a launcher started inside another? unset those of the outer one"
    )]
    Contradiction {
        /// What one says.
        one: String,
        /// What the other says.
        other: String,
    },
    /// A variable that is not what it should be.
    #[error("{name}={value}: {why}")]
    Variable {
        /// The variable.
        name: String,
        /// What it holds.
        value: String,
        /// What it should be.
        why: String,
    },
    /// Nobody says where the ranks meet.
    #[error(
        "{launcher} does not say where the ranks meet; set MASTER_ADDR to the host of rank 0, and MASTER_PORT if 29500 is taken there"
    )]
    NoMeeting {
        /// Who started the ranks.
        launcher: &'static str,
    },
    /// MPI does not do its part.
    #[error("MPI cannot pass messages between the ranks: {why}")]
    Mpi {
        /// Why.
        why: String,
    },
    /// There is no token.
    #[error(
        "ranks that meet over TCP show each other a token: set FTPROP_TOKEN, the same on all, to {least} characters or more that nobody guesses, or FTPROP_TOKEN_FILE to a file that holds them"
    )]
    NoToken {
        /// Characters that it has at least.
        least: usize,
    },
    /// A token that can be guessed.
    #[error("the token of {place} has {length} characters; it must have at least {least}")]
    ShortToken {
        /// Where it is.
        place: String,
        /// What it has.
        length: usize,
        /// What it needs.
        least: usize,
    },
    /// The token's file.
    #[error("cannot read the token in {}: {why}", path.display())]
    TokenFile {
        /// Where it should be.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// The meeting point could not be opened or reached.
    #[error("cannot {what} {address}: {why}")]
    Meeting {
        /// What was tried.
        what: &'static str,
        /// Where.
        address: String,
        /// The system's words.
        why: String,
    },
    /// Somebody did not come.
    #[error("after {} s rank {} of {size} has not come to {address}{}", waited.as_secs(), list(missing), turned_away(*refused))]
    Absent {
        /// Those who did not come.
        missing: Vec<usize>,
        /// How many there should be.
        size: usize,
        /// Where they should have come.
        address: String,
        /// How long they were waited for.
        waited: Duration,
        /// Connections that were turned away meanwhile.
        refused: u64,
    },
    /// The other end knows another token, or is none of ours.
    #[error("{address} does not know this job's token, or is no ftprop")]
    Stranger {
        /// Who it was.
        address: String,
    },
    /// Ranks that are not of one mind.
    #[error("rank {rank} has {what} {theirs}, rank 0 has {ours}; all ranks need the same")]
    Differs {
        /// Who differs.
        rank: usize,
        /// In what.
        what: String,
        /// Its own.
        theirs: String,
        /// Rank 0's.
        ours: String,
    },
    /// Two of the same number.
    #[error("two processes say that they are rank {rank}")]
    Twice {
        /// The number.
        rank: usize,
    },
    /// A rank that is there no longer, or does not go on.
    #[error("{who} {what}; {hint}")]
    Lost {
        /// Which.
        who: String,
        /// What became of it.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// A process that ended before it had come.
    #[error("rank {rank} ended with {status} before it had begun; what it said is above")]
    Ended {
        /// Which.
        rank: usize,
        /// How.
        status: String,
    },
    /// Messages that do not fit together.
    #[error("rank {rank} sent {got} bytes where {expected} were due: the ranks are out of step")]
    OutOfStep {
        /// Whose message it was.
        rank: usize,
        /// What came.
        got: u64,
        /// What should have.
        expected: u64,
    },
}

/// What to do after a rank was lost.
pub(crate) const RESUME: &str = "go on from the last checkpoint, with as many ranks as you like";

fn list(ranks: &[usize]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn turned_away(count: u64) -> String {
    match count {
        0 => String::new(),
        _ => format!("; {count} connections without the token were turned away"),
    }
}
