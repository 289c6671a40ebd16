//! From statements to instructions: names become places, opcodes what is done.

mod memory;
mod operands;
mod together;

use crate::convert::Conversion;
use crate::program::{Action, Instruction, Kernel, Program, Special};
use crate::registers::{Combine, Compute, Operands, Register, Registers, Source, Truth};
use crate::text::{self, BadProgram, Entry, Space, Statement, bad, bytes_of};
use crate::together::{Together, pack_bf16};
use crate::warpgroup::GroupProduct;
use crate::{float, integer};
use operands::{Names, global_addresses};
use std::collections::HashMap;
use std::sync::Arc;

/// Makes the kernels of a text ready to run.
pub(crate) fn lower(text: &str) -> Result<Program, BadProgram> {
    let module = text::parse(text)?;
    let (variables, addresses) = global_addresses(&module.variables);
    let mut kernels = HashMap::new();
    for entry in &module.entries {
        let kernel = Lowering::new(entry, &module.variables, &addresses)?.kernel(entry)?;
        kernels.insert(entry.name.clone(), Arc::new(kernel));
    }
    Ok(Program { kernels, variables })
}

/// One kernel on its way.
struct Lowering {
    names: Names,
    code: Vec<Instruction>,
    group_products: Vec<GroupProduct>,
    /// Branches and the labels that they go to.
    branches: Vec<(usize, String)>,
    labels: HashMap<String, usize>,
    parameters: Vec<(usize, usize)>,
}

/// An instruction that is being made: which operands are already spoken for.
struct Draft<'a> {
    words: Vec<&'a str>,
    operands: &'a [String],
    made: Instruction,
}

impl Lowering {
    fn new(entry: &Entry, variables: &[text::Variable], addresses: &HashMap<String, u64>) -> Result<Self, BadProgram> {
        let mut names = Names::new(addresses);
        variables.iter().filter(|v| v.space == Space::Shared).for_each(|v| names.place(v));
        let parameters = entry.parameters.iter().map(|p| names.parameter(p)).collect::<Result<_, _>>()?;
        Ok(Lowering {
            names,
            code: Vec::new(),
            group_products: Vec::new(),
            branches: Vec::new(),
            labels: HashMap::new(),
            parameters,
        })
    }

    fn kernel(mut self, entry: &Entry) -> Result<Kernel, BadProgram> {
        for statement in &entry.body {
            match statement {
                Statement::Open => self.names.open(),
                Statement::Close => self.names.close(),
                Statement::Label(name) => {
                    self.labels.insert(name.clone(), self.code.len());
                }
                Statement::Registers(width, names) => names.iter().for_each(|name| self.names.declare(name, *width)),
                Statement::Variable(variable) => self.names.place(variable),
                Statement::Instruction { guard, opcode, operands, text } => {
                    let guard = guard.as_ref().map(|(name, not)| Ok((self.names.predicate(name)?, *not)));
                    let made = self.instruction(opcode, operands, guard.transpose()?, text);
                    let made = made.map_err(|BadProgram(why)| BadProgram(format!("{}: {text}: {why}", entry.name)))?;
                    self.code.push(made);
                }
            }
        }
        for (at, label) in &self.branches {
            let Some(target) = self.labels.get(label) else { return bad(format!("no label {label}")) };
            self.code[*at].action = Action::Branch(*target as u32);
        }
        // Who runs off the end is done.
        self.code.push(blank("ret"));
        let shared = self.names.shared_end();
        Ok(Kernel {
            name: entry.name.clone(),
            code: self.code,
            group_products: self.group_products,
            parameters: self.parameters,
            most_threads: entry.most_threads,
            lines: self.names.lines,
            predicates: self.names.predicates,
            constants: self.names.constants.into(),
            shared,
            local: self.names.local.next_multiple_of(16),
        })
    }

    fn instruction(
        &mut self,
        opcode: &str,
        operands: &[String],
        guard: Option<Truth>,
        text: &str,
    ) -> Result<Instruction, BadProgram> {
        let mut made = blank(text);
        made.guard = guard;
        let mut draft = Draft { words: opcode.split('.').collect(), operands, made };
        draft.made.action = self.action(&mut draft)?;
        Ok(draft.made)
    }

    fn action(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let (name, rest) = (d.words[0], d.words[1..].to_vec());
        match name {
            "ret" | "exit" => Ok(Action::Exit),
            "trap" => Ok(Action::Trap),
            "bra" => {
                self.branches.push((self.code.len(), d.operand(0)?.to_string()));
                Ok(Action::Branch(0))
            }
            "membar" | "fence" | "prefetch" | "prefetchu" | "nanosleep" | "griddepcontrol" | "discard" => {
                Ok(Action::Nothing)
            }
            "bar" | "barrier" if rest.first() == Some(&"warp") => {
                self.sources(d, 0, &[false])?;
                Ok(Action::Together(Together::Meet))
            }
            "bar" | "barrier" => match (rest.contains(&"sync"), d.operands) {
                (true, [id]) if id == "0" => Ok(Action::Barrier),
                (true, [_, threads]) => {
                    let threads = threads.parse::<u32>().ok().filter(|threads| threads.is_multiple_of(32));
                    let Some(threads) = threads else { return bad("how many warps meet?") };
                    self.sources(d, 0, &[false])?;
                    Ok(Action::PartBarrier(threads))
                }
                _ => bad("a barrier that is not known here"),
            },
            "ld" | "st" | "atom" | "red" | "cp" => self.memory(d),
            "mov" => self.mov(d),
            "cvta" => self.convert_address(d),
            "shfl" | "vote" | "redux" | "activemask" | "ldmatrix" | "movmatrix" | "mma" => self.together(d),
            "wgmma" => self.warpgroup(d),
            "cvt" => self.convert(d),
            "setp" => self.compare(d),
            "selp" => self.choose(d),
            "and" | "or" | "xor" | "not" if rest == ["pred"] => self.truth(d),
            _ => self.compute(d),
        }
    }

    /// Registers and constants that are read, from operand `first` on.
    fn sources(&mut self, d: &mut Draft<'_>, first: usize, wide: &[bool]) -> Result<(), BadProgram> {
        for (at, &wide) in wide.iter().enumerate() {
            d.made.operands.from[at] = self.names.source(d.operand(first + at)?, wide)?;
        }
        Ok(())
    }

    /// The register that is written.
    fn target(&mut self, d: &mut Draft<'_>, wide: bool) -> Result<(), BadProgram> {
        let register = self.names.register(d.operand(0)?)?;
        if register.wide != wide {
            return bad("the result has another width than its register");
        }
        d.made.operands.to[0] = register;
        Ok(())
    }

    /// Arithmetic: the number of sources and their widths follow from the opcode.
    fn compute(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let name = d.words[0];
        let kind = *d.words.last().expect("one word at least");
        let modifiers = &d.words[1..d.words.len().max(2) - 1];
        let wide = bytes_of(kind) == Some(8);
        let joined = modifiers.iter().fold(name.to_string(), |all, one| format!("{all}.{one}"));
        let compute: Option<Compute> = match kind {
            "f32" => float::of_f32(name, modifiers),
            "f64" => float::of_f64(name, modifiers),
            _ if name == "bfi" => integer::insert_bits(kind),
            _ if name == "bfe" => integer::extract_bits(kind),
            _ => integer::arithmetic(&joined, kind).or_else(|| integer::bits(&joined, kind)),
        };
        let Some(compute) = compute else { return bad("an instruction that is not known here") };
        let spread = modifiers.contains(&"wide");
        let target = match name {
            "mul" | "mad" if spread => bytes_of(kind) == Some(4),
            "popc" | "clz" => false,
            _ => wide,
        };
        let widths: &[bool] = match name {
            "shl" | "shr" => &[wide, false],
            "bfi" => &[wide, wide, false, false],
            "bfe" => &[wide, false, false],
            "mad" if spread => &[wide, wide, target],
            _ => &[wide; 4][..d.operands.len() - 1],
        };
        self.target(d, target)?;
        self.sources(d, 1, widths)?;
        Ok(Action::Compute(compute))
    }

    fn convert(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        if d.words[1..] == ["rn", "bf16x2", "f32"] {
            self.target(d, false)?;
            self.sources(d, 1, &[false, false])?;
            return Ok(Action::Compute(pack_bf16));
        }
        let Some(conversion) = Conversion::of(&d.words[1..]) else { return bad("a conversion that is not known here") };
        d.made.operands.to[0] = self.names.register(d.operand(0)?)?;
        self.sources(d, 1, &[conversion.from.is_wide()])?;
        // Those that stand in every loop, without the detour.
        Ok(match (&d.words[1..], d.made.operands.to[0].wide) {
            (["u64", "u32"], true) => Action::Compute(|r, i, m| r.one::<u32, u64>(i, m, u64::from)),
            (["s64", "s32"], true) => Action::Compute(|r, i, m| r.one::<u32, u64>(i, m, |a| a as i32 as u64)),
            (["u32", "u64"], false) => Action::Compute(|r, i, m| r.one::<u64, u32>(i, m, |a| a as u32)),
            (["f64", "f32"], true) => {
                Action::Compute(|r, i, m| r.one::<u32, u64>(i, m, |a| f64::from(f32::from_bits(a)).to_bits()))
            }
            _ => Action::Convert(conversion),
        })
    }

    fn compare(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let (how, kind) = (d.words[1], *d.words.last().expect("one word at least"));
        let flush = d.words.contains(&"ftz");
        let compute = integer::comparison(how, kind).or_else(|| float::comparison(how, kind, flush));
        let Some(compute) = compute else { return bad("a comparison that is not known here") };
        for (at, name) in d.operand(0)?.split('|').take(2).enumerate() {
            d.made.operands.to_predicates[at] = self.names.predicate(name)?;
        }
        self.sources(d, 1, &[bytes_of(kind) == Some(8); 2])?;
        if let Some(other) = d.operands.get(3) {
            let combine: Combine = match () {
                () if d.words.contains(&"and") => |a, b| a & b,
                () if d.words.contains(&"or") => |a, b| a | b,
                () if d.words.contains(&"xor") => |a, b| a ^ b,
                () => return bad("combined in a way that is not known here"),
            };
            d.made.operands.combine = Some((combine, self.names.truth(other)?));
        }
        Ok(Action::Compute(compute))
    }

    fn choose(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let wide = d.words.last().and_then(|kind| bytes_of(kind)) == Some(8);
        self.target(d, wide)?;
        self.sources(d, 1, &[wide; 2])?;
        d.made.operands.from_predicates[0] = self.names.truth(d.operand(3)?)?;
        fn choose<T: crate::registers::Lane>(r: &mut Registers, i: &Operands, mask: u32) {
            let (yes, [a, b]) = (r.predicate(i.from_predicates[0]), [0, 1].map(|k| r.read::<T>(i.from[k])));
            let out = std::array::from_fn(|lane| if yes >> lane & 1 != 0 { a[lane] } else { b[lane] });
            r.write(i.to[0], &out, mask);
        }
        Ok(Action::Compute(if wide { choose::<u64> } else { choose::<u32> }))
    }

    fn truth(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        d.made.operands.to_predicates[0] = self.names.predicate(d.operand(0)?)?;
        for at in 0..d.operands.len() - 1 {
            d.made.operands.from_predicates[at] = self.names.truth(d.operand(1 + at)?)?;
        }
        Ok(Action::Compute(match d.words[0] {
            "and" => |r, i, m| by_truth(r, i, m, |a, b| a & b),
            "or" => |r, i, m| by_truth(r, i, m, |a, b| a | b),
            "xor" => |r, i, m| by_truth(r, i, m, |a, b| a ^ b),
            _ => |r, i, m| by_truth(r, i, m, |a, _| !a),
        }))
    }

    fn mov(&mut self, d: &mut Draft<'_>) -> Result<Action, BadProgram> {
        let (kind, operand) = (d.words[1], d.operand(1)?.to_string());
        if kind == "pred" {
            d.made.operands.to_predicates[0] = self.names.predicate(d.operand(0)?)?;
            d.made.operands.from_predicates[0] = self.names.truth(&operand)?;
            return Ok(Action::Compute(|r, i, m| by_truth(r, i, m, |a, _| a)));
        }
        if let Some(parts) = parts(d.operand(0)?) {
            return self.unpack(d, &parts, &operand);
        }
        if let Some(parts) = parts(&operand) {
            return self.pack(d, &parts);
        }
        d.made.operands.to[0] = self.names.register(d.operand(0)?)?;
        if let Some(special) = special(&operand) {
            return Ok(Action::Special(special));
        }
        let wide = d.made.operands.to[0].wide;
        self.sources(d, 1, &[wide])?;
        Ok(Action::Compute(match wide {
            true => |r, i, m| r.one::<u64, u64>(i, m, |a| a),
            false => |r, i, m| r.one::<u32, u32>(i, m, |a| a),
        }))
    }

    /// One register into two.
    fn unpack(&mut self, d: &mut Draft<'_>, parts: &[&str], operand: &str) -> Result<Action, BadProgram> {
        let wide = bytes_of(d.words[1]) == Some(8);
        let [low, high] = parts else { return bad("only two parts are known") };
        for (at, name) in [low, high].into_iter().enumerate() {
            d.made.operands.to[at] = if *name == "_" { Register::default() } else { self.names.register(name)? };
        }
        // A place for what is thrown away.
        if d.made.operands.to.iter().take(2).any(|register| *register == Register::default()) {
            let spare = self.names.spare();
            d.made.operands.to.iter_mut().take(2).filter(|r| **r == Register::default()).for_each(|r| *r = spare);
        }
        d.made.operands.from[0] = self.names.source(operand, wide)?;
        Ok(Action::Compute(match wide {
            true => |r, i, m| {
                let all = *r.read::<u64>(i.from[0]);
                r.write::<u32>(i.to[0], &all.map(|value| value as u32), m);
                r.write::<u32>(i.to[1], &all.map(|value| (value >> 32) as u32), m);
            },
            false => |r, i, m| {
                let all = *r.read::<u32>(i.from[0]);
                r.write::<u32>(i.to[0], &all.map(|value| value & 0xffff), m);
                r.write::<u32>(i.to[1], &all.map(|value| value >> 16), m);
            },
        }))
    }

    /// Two registers into one.
    fn pack(&mut self, d: &mut Draft<'_>, parts: &[&str]) -> Result<Action, BadProgram> {
        let wide = bytes_of(d.words[1]) == Some(8);
        self.target(d, wide)?;
        let [low, high] = parts else { return bad("only two parts are known") };
        (d.made.operands.from[0], d.made.operands.from[1]) =
            (self.names.source(low, false)?, self.names.source(high, false)?);
        Ok(Action::Compute(match wide {
            true => |r, i, m| r.two::<u32, u32, u64>(i, m, |low, high| u64::from(high) << 32 | u64::from(low)),
            false => |r, i, m| r.two::<u32, u32, u32>(i, m, |low, high| high << 16 | low & 0xffff),
        }))
    }
}

impl<'a> Draft<'a> {
    fn operand(&self, at: usize) -> Result<&'a str, BadProgram> {
        self.operands.get(at).map(String::as_str).ok_or_else(|| BadProgram("too few operands".into()))
    }
}

fn blank(text: &str) -> Instruction {
    Instruction {
        action: Action::Exit,
        guard: None,
        operands: Operands {
            to: [Register::default(); 4],
            from: [Source::Constant(0); 10],
            wide: 0,
            to_predicates: [0; 2],
            from_predicates: [(0, false); 2],
            combine: None,
        },
        text: text.into(),
    }
}

fn by_truth(r: &mut Registers, i: &Operands, mask: u32, f: impl Fn(u32, u32) -> u32) {
    let [a, b] = i.from_predicates.map(|from| r.predicate(from));
    r.set_predicate(i.to_predicates[0], f(a, b), mask);
}

/// What stands in braces.
fn parts(text: &str) -> Option<Vec<&str>> {
    Some(text.strip_prefix('{')?.strip_suffix('}')?.split(',').collect())
}

fn special(name: &str) -> Option<Special> {
    let axis = |rest: &str| ["x", "y", "z"].iter().position(|axis| *axis == rest);
    let (group, rest) = name.split_once('.').unwrap_or((name, ""));
    Some(match group {
        "%tid" => Special::Thread(axis(rest)?),
        "%ntid" => Special::Threads(axis(rest)?),
        "%ctaid" => Special::Block(axis(rest)?),
        "%nctaid" => Special::Blocks(axis(rest)?),
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%smid" => Special::Multiprocessor,
        "%clock" | "%clock64" | "%globaltimer" => Special::Clock,
        _ => return None,
    })
}
