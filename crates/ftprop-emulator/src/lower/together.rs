//! Instructions of whole warps.

use super::{Draft, Lowering, parts};
use crate::program::Action;
use crate::text::{BadProgram, Space, bad};
use crate::together::{Reduction, Shuffle, Together};

impl Lowering {
    pub(super) fn together(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let words = d.words.clone();
        Ok(Action::Together(match &words[..] {
            ["shfl", "sync", how, "b32"] => {
                let mut to = d.operand(0)?.split('|');
                d.made.operands.to[0] = self.names.register(to.next().unwrap_or(""))?;
                d.made.operands.to_predicates[0] = to.next().map_or(Ok(0), |name| self.names.predicate(name))?;
                self.sources(d, 1, &[false; 4])?;
                Together::Shuffle(match *how {
                    "up" => Shuffle::Up,
                    "down" => Shuffle::Down,
                    "bfly" => Shuffle::Butterfly,
                    "idx" => Shuffle::Index,
                    _ => return bad("a shuffle that is not known here"),
                })
            }
            ["vote", "sync", how, _] => {
                d.made.operands.from_predicates[0] = self.names.truth(d.operand(1)?)?;
                d.made.operands.from[0] = self.names.source(d.operand(2)?, false)?;
                if *how == "ballot" {
                    self.target(d, false)?;
                    Together::Ballot
                } else {
                    d.made.operands.to_predicates[0] = self.names.predicate(d.operand(0)?)?;
                    if *how == "any" { Together::Any } else { Together::All }
                }
            }
            ["activemask", "b32"] => {
                self.target(d, false)?;
                Together::Active
            }
            ["redux", "sync", how, kind] => {
                self.target(d, false)?;
                self.sources(d, 1, &[false; 2])?;
                Together::Reduce(reduction(how, kind)?)
            }
            ["ldmatrix", "sync", "aligned", "m8n8", many, rest @ ..] => {
                let count =
                    many.trim_start_matches('x').parse().map_err(|_| BadProgram("how many matrices?".into()))?;
                let address = self.names.address(d.operand(1)?, Space::Shared)?;
                let (Some((base, false)), 0) = (address.base, address.offset) else {
                    return bad("matrices at an address that is not a register");
                };
                self.registers(d, count)?;
                d.made.operands.from[0] = base;
                Together::LoadMatrix { count, transposed: rest.contains(&"trans") }
            }
            ["mma", "sync", "aligned", shape, "row", "col", kinds @ ..] => {
                self.registers(d, 4)?;
                let mut at = 0;
                for (operand, count) in [(1, 4), (2, 2), (3, 4)] {
                    let names = parts(d.operand(operand)?).filter(|names| names.len() == count);
                    let Some(names) = names else { return bad("a product of another shape") };
                    for name in names {
                        d.made.operands.from[at] = self.names.source(name, false)?;
                        at += 1;
                    }
                }
                match (*shape, kinds) {
                    ("m16n8k16", ["f32", "bf16", "bf16", "f32"]) => Together::ProductBf16,
                    ("m16n8k8", ["f32", "tf32", "tf32", "f32"]) => Together::ProductTf32,
                    ("m16n8k32", ["s32", "s8", "s8", "s32"]) => Together::ProductS8,
                    _ => return bad("a product that is not known here"),
                }
            }
            _ => return bad("an instruction of warps that is not known here"),
        }))
    }

    /// The registers of a list, which are written.
    fn registers(&mut self, d: &mut Draft<'_>, count: usize) -> Result<(), BadProgram> {
        let names = parts(d.operand(0)?).unwrap_or_else(|| vec![&d.operands[0]]);
        if names.len() != count {
            return bad("another number of registers");
        }
        for (at, name) in names.into_iter().enumerate() {
            d.made.operands.to[at] = self.names.register(name)?;
        }
        Ok(())
    }
}

fn reduction(how: &str, kind: &str) -> Result<Reduction, BadProgram> {
    Ok(match (how, kind) {
        ("add", _) => Reduction::Add,
        ("min", "s32") => Reduction::MinSigned,
        ("max", "s32") => Reduction::MaxSigned,
        ("min", "u32") => Reduction::MinUnsigned,
        ("max", "u32") => Reduction::MaxUnsigned,
        ("and", _) => Reduction::And,
        ("or", _) => Reduction::Or,
        ("xor", _) => Reduction::Xor,
        _ => return bad("a reduction that is not known here"),
    })
}
