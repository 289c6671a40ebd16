//! The job's token: what a process shows before it may join.
//!
//! It is never sent. Each end gives the other a random number and gets back what only somebody with the token can make of
//! it. What is exchanged afterwards is not encrypted: a network on which others listen needs a tunnel.

use crate::RankError;
use std::fmt;
use std::path::Path;

/// Characters that a token has at least.
const LEAST: usize = 16;

/// Bytes of a random number or of a proof.
pub(crate) const PROOF: usize = 32;

/// What all ranks of a job know, and nobody else.
#[derive(Clone)]
pub struct Token {
    key: [u8; 32],
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// From its characters; `place` is where they were, for an error.
    pub fn new(characters: &str, place: &str) -> Result<Self, RankError> {
        let characters = characters.trim();
        if characters.len() < LEAST {
            return Err(RankError::ShortToken { place: place.into(), length: characters.len(), least: LEAST });
        }
        Ok(Token { key: blake3::derive_key("ftprop-ranks 1 the token of a job", characters.as_bytes()) })
    }

    /// From `FTPROP_TOKEN`, or from the file that `FTPROP_TOKEN_FILE` names.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Self, RankError> {
        if let Some(token) = variable("FTPROP_TOKEN") {
            return Token::new(&token, "FTPROP_TOKEN");
        }
        let Some(file) = variable("FTPROP_TOKEN_FILE") else { return Err(RankError::NoToken { least: LEAST }) };
        let path = Path::new(&file);
        let failed = |why: std::io::Error| RankError::TokenFile { path: path.into(), why: why.to_string() };
        Token::new(&std::fs::read_to_string(path).map_err(failed)?, &file)
    }

    /// New characters for a job, that nobody guesses.
    pub fn random() -> Result<String, RankError> {
        Ok(random()?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// What only somebody with the token can make of these parts, whose lengths are fixed.
    pub(crate) fn proof(&self, purpose: &str, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&[purpose.len() as u8]).update(purpose.as_bytes());
        parts.iter().for_each(|part| {
            hasher.update(part);
        });
        // Hashes are compared in constant time.
        hasher.finalize()
    }
}

/// Random bytes from the system.
pub(crate) fn random() -> Result<[u8; PROOF], RankError> {
    let mut bytes = [0; PROOF];
    let failed = |why: getrandom::Error| RankError::Meeting {
        what: "get random numbers from",
        address: "the system".into(),
        why: why.to_string(),
    };
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_from_a_variable_a_file_or_not_at_all() {
        let none = Token::find(|_| None).unwrap_err().to_string();
        assert!(none.contains("FTPROP_TOKEN_FILE") && !none.contains('\n'), "{none}");
        let short = Token::find(|name| (name == "FTPROP_TOKEN").then(|| "secret".into())).unwrap_err().to_string();
        assert!(short.contains("6 characters") && !short.contains("secret"), "{short}");
        let path = std::env::temp_dir().join(format!("ftprop-token-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let file = Token::find(|name| (name == "FTPROP_TOKEN_FILE").then(|| path.display().to_string())).unwrap();
        let variable = Token::find(|name| (name == "FTPROP_TOKEN").then(|| "0123456789abcdef".into())).unwrap();
        assert_eq!(file.proof("x", &[b"y"]), variable.proof("x", &[b"y"]));
        std::fs::remove_file(&path).unwrap();
        let gone = Token::find(|name| (name == "FTPROP_TOKEN_FILE").then(|| path.display().to_string()));
        assert!(gone.unwrap_err().to_string().contains("cannot read the token"));
    }

    #[test]
    fn a_proof_depends_on_token_purpose_and_parts() {
        let token = |text: &str| Token::new(text, "test").unwrap();
        let (one, other) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let proof = one.proof("join", &[b"a", b"b"]);
        assert_eq!(proof, one.proof("join", &[b"a", b"b"]));
        for different in
            [other.proof("join", &[b"a", b"b"]), one.proof("meet", &[b"a", b"b"]), one.proof("join", &[b"a", b"c"])]
        {
            assert_ne!(proof, different);
        }
        assert_ne!(Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(format!("{one:?}"), "Token");
    }
}
