//! Instructions that read and write memory.

use super::{Draft, Lowering, parts};
use crate::memory::{LOCAL, PARAMETERS, SHARED};
use crate::program::{Access, Action, Change};
use crate::text::{BadProgram, Space, bad, bytes_of};

impl Lowering {
    /// Between addresses of one kind of memory and those of all.
    pub(super) fn convert_address(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let (to, space) = match &d.words[1..] {
            ["to", space, "u64"] => (true, *space),
            [space, "u64"] => (false, *space),
            _ => return bad("only addresses of 64 bits are known"),
        };
        self.target(d, true)?;
        self.sources(d, 1, &[true])?;
        Ok(Action::Compute(match (to, space) {
            (_, "global" | "const") => |r, i, m| r.one::<u64, u64>(i, m, |a| a),
            (true, _) => |r, i, m| r.one::<u64, u64>(i, m, |a| a & ((1 << 60) - 1)),
            (false, "shared") => |r, i, m| r.one::<u64, u64>(i, m, |a| a | SHARED),
            (false, "local") => |r, i, m| r.one::<u64, u64>(i, m, |a| a | LOCAL),
            (false, "param") => |r, i, m| r.one::<u64, u64>(i, m, |a| a | PARAMETERS),
            _ => return bad("a kind of memory that is not known here"),
        }))
    }

    pub(super) fn memory(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let words = d.words.clone();
        if words[0] == "cp" {
            return self.copy_aside(d);
        }
        let has = |word: &str| words.contains(&word);
        let kind = *words.last().expect("one word at least");
        let Some(unit) = bytes_of(kind) else { return bad(format!("memory of kind {kind}")) };
        let count = if has("v4") {
            4
        } else if has("v2") {
            2
        } else {
            1
        };
        let polls = has("acquire") || has("volatile") || has("relaxed") || words[0] == "atom";
        // A result of an atomic, or what is loaded, comes first; a store has its address first.
        let first = usize::from(matches!(words[0], "ld" | "atom"));
        let address = self.names.address(d.operand(first)?, space(&words))?;
        let access = Access { address, unit, count, signed: kind.starts_with('s'), polls };
        let listed = |text: &str| parts(text).unwrap_or_else(|| vec![text]).join(",");
        match words[0] {
            "ld" => {
                for (at, name) in listed(d.operand(0)?).split(',').enumerate() {
                    d.made.operands.to[at] = self.names.register(name)?;
                }
                Ok(Action::Load(access))
            }
            "st" => {
                for (at, name) in listed(d.operand(1)?).split(',').enumerate() {
                    let (source, wide) = self.names.any_source(name, unit == 8)?;
                    d.made.operands.from[at] = source;
                    d.made.operands.wide |= u16::from(wide) << at;
                }
                Ok(Action::Store(access))
            }
            atomic => {
                let wide = unit == 8;
                if atomic == "atom" {
                    self.target(d, wide)?;
                } else {
                    d.made.operands.to[0] = if wide { self.names.spare_wide() } else { self.names.spare() };
                }
                self.sources(d, first + 1, &[wide; 2][..d.operands.len() - first - 1])?;
                Ok(Action::Atomic(access, change(&words, kind)?))
            }
        }
    }

    fn copy_aside(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        match &d.words[1..] {
            ["async", "commit_group"] => return Ok(Action::CommitCopies),
            ["async", "wait_all"] => return Ok(Action::AwaitCopies(0)),
            ["async", "wait_group"] => {
                let count = d.operand(0)?.parse().map_err(|_| BadProgram("how many groups?".into()))?;
                return Ok(Action::AwaitCopies(count));
            }
            ["async", "ca" | "cg", "shared", "global"] => {}
            _ => return bad("a copy that is not known here"),
        }
        let to = self.names.address(d.operand(0)?, Space::Shared)?;
        let from = self.names.address(d.operand(1)?, Space::Global)?;
        let bytes = d.operand(2)?.parse().map_err(|_| BadProgram("how many bytes?".into()))?;
        let some = d.operands.get(3).map(|name| self.names.source(name, false)).transpose()?;
        Ok(Action::CopyAside { to, from, bytes, some })
    }
}

fn space(words: &[&str]) -> Space {
    words.iter().fold(Space::Generic, |space, word| match *word {
        "global" | "const" => Space::Global,
        "shared" => Space::Shared,
        "local" => Space::Local,
        "param" => Space::Parameter,
        _ => space,
    })
}

fn change(words: &[&str], kind: &str) -> Result<Change, BadProgram> {
    let has = |word: &str| words.contains(&word);
    Ok(match () {
        () if has("add") && kind == "f32" => Change::AddF32,
        () if has("add") && !kind.starts_with('f') => Change::Add,
        () if has("min") && kind.starts_with('u') => Change::Min,
        () if has("max") && kind.starts_with('u') => Change::Max,
        () if has("and") => Change::And,
        () if has("or") => Change::Or,
        () if has("xor") => Change::Xor,
        () if has("exch") => Change::Exchange,
        () if has("cas") => Change::CompareAndSwap,
        () if has("inc") => Change::Increase,
        () => return bad("an atomic instruction that is not known here"),
    })
}
