//! Instructions of whole warps.

use super::{Draft, Lowering, parts};
use crate::program::Action;
use crate::registers::Source;
use crate::text::{BadProgram, Space, bad};
use crate::together::{Reduction, Shuffle, Together};
use crate::warpgroup::{GroupProduct, Left, Numbers};

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
            ["movmatrix", "sync", "aligned", "m8n8", "trans", "b16"] => {
                self.target(d, false)?;
                self.sources(d, 1, &[false])?;
                Together::TurnMatrix
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

    /// What four warps do together.
    pub(super) fn warpgroup(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let words = d.words.clone();
        let kinds = match &words[1..] {
            ["fence", "sync", "aligned"] => return Ok(Action::Nothing),
            ["commit_group", "sync", "aligned"] => return Ok(Action::CommitProducts),
            ["wait_group", "sync", "aligned"] => {
                let count = d.operand(0)?.parse().map_err(|_| BadProgram("how many groups?".into()))?;
                return Ok(Action::AwaitProducts(count));
            }
            ["mma_async", "sync", "aligned", _shape, kinds @ ..] => kinds,
            _ => return bad("an instruction of four warps that is not known here"),
        };
        let numbers = match kinds {
            ["f32", "bf16", "bf16"] => Numbers::Bf16,
            ["f32", "tf32", "tf32"] => Numbers::Tf32,
            _ => return bad("a product that is not known here"),
        };
        let names = parts(d.operand(0)?).unwrap_or_default();
        let sums = names.into_iter().map(|name| self.names.register(name)).collect::<Result<Box<[_]>, _>>()?;
        let shape = format!("m64n{}k{}", 2 * sums.len(), if numbers == Numbers::Bf16 { 16 } else { 8 });
        if words[4] != shape || !sums.len().is_multiple_of(4) {
            return bad("a product of another shape");
        }
        let left = match parts(d.operand(1)?) {
            Some(names) if names.len() == 4 => {
                let mut sources = [Source::Constant(0); 4];
                for (to, name) in sources.iter_mut().zip(names) {
                    *to = self.names.source(name, false)?;
                }
                Left::Registers(sources)
            }
            Some(_) => return bad("a product of another shape"),
            None => Left::Shared(self.names.source(d.operand(1)?, true)?),
        };
        let right = self.names.source(d.operand(2)?, true)?;
        // To what is there, and nothing negated; then what lies how, where that can be said.
        let [added, signs @ ..] = &d.operands[3..] else { return bad("too few operands") };
        let (signs, orders) = signs.split_at(signs.len().min(2));
        if ![added].into_iter().chain(signs).all(|one| one == "1") {
            return bad("only sums that are added to are known");
        }
        let wide = match (&left, orders) {
            (_, []) => [false; 2],
            (Left::Registers(_), [right]) => [false, right == "1"],
            (Left::Shared(_), [left, right]) => [left == "1", right == "1"],
            _ => return bad("too many operands"),
        };
        self.group_products.push(GroupProduct { numbers, sums, left, right, wide });
        Ok(Action::GroupProduct(self.group_products.len() as u32 - 1))
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
