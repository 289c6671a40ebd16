//! The names of a kernel and where they lead.

use crate::program::Address;
use crate::registers::{Line, Register, Source};
use crate::text::{BadProgram, Space, Variable, Width, bad, constant};
use std::collections::HashMap;

/// What a name stands for.
#[derive(Clone, Copy)]
enum Meaning {
    Register(Register),
    Predicate(u32),
    /// Of a variable.
    Address(u64),
}

/// Names as a kernel's text declares them, with the room that they take.
pub(super) struct Names {
    /// The innermost last.
    scopes: Vec<HashMap<String, Meaning>>,
    known: HashMap<(u64, bool), u32>,
    /// Those spread over lanes.
    pub(super) constants: Vec<Line>,
    pub(super) lines: usize,
    pub(super) predicates: usize,
    pub(super) shared: usize,
    pub(super) local: usize,
    /// Of which the place of what the launch adds is a multiple.
    align: usize,
    parameters: usize,
    spares: [Option<Register>; 2],
}

/// Memory for a text's variables, and where each is.
pub(super) fn global_addresses(variables: &[Variable]) -> (Vec<Box<[u64]>>, HashMap<String, u64>) {
    let (mut memory, mut addresses) = (Vec::new(), HashMap::new());
    for variable in variables.iter().filter(|variable| variable.space == Space::Global) {
        let mut bytes = variable.initial.clone();
        bytes.resize(variable.bytes.unwrap_or(0).max(1).next_multiple_of(16), 0);
        let words: Box<[u64]> =
            bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().expect("eight bytes"))).collect();
        addresses.insert(variable.name.clone(), words.as_ptr() as u64);
        memory.push(words);
    }
    (memory, addresses)
}

impl Names {
    pub(super) fn new(addresses: &HashMap<String, u64>) -> Self {
        let globals = addresses.iter().map(|(name, at)| (name.clone(), Meaning::Address(*at))).collect();
        // Two predicates are always there: what never holds, and what always does.
        Names {
            scopes: vec![globals],
            known: HashMap::new(),
            constants: vec![Line::EMPTY; 4],
            lines: 0,
            predicates: 2,
            shared: 0,
            local: 0,
            align: 16,
            parameters: 0,
            spares: [None; 2],
        }
    }

    pub(super) fn open(&mut self) {
        self.scopes.push(HashMap::new());
    }

    pub(super) fn close(&mut self) {
        self.scopes.pop();
    }

    fn mean(&mut self, name: &str, meaning: Meaning) {
        self.scopes.last_mut().expect("one at least").insert(name.to_string(), meaning);
    }

    fn meaning(&self, name: &str) -> Result<Meaning, BadProgram> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.get(name));
        found.copied().ok_or_else(|| BadProgram(format!("no {name}")))
    }

    pub(super) fn declare(&mut self, name: &str, width: Width) {
        if width == Width::Predicate {
            self.mean(name, Meaning::Predicate(self.predicates as u32));
            self.predicates += 1;
            return;
        }
        let register = self.new_register(width == Width::Wide);
        self.mean(name, Meaning::Register(register));
    }

    fn new_register(&mut self, wide: bool) -> Register {
        let register = Register { line: self.lines as u32, wide };
        self.lines += Register::lines(wide) as usize;
        register
    }

    /// A register for what nobody reads.
    pub(super) fn spare(&mut self) -> Register {
        let spare = self.spares[0].unwrap_or_else(|| self.new_register(false));
        *self.spares[0].insert(spare)
    }

    pub(super) fn spare_wide(&mut self) -> Register {
        let spare = self.spares[1].unwrap_or_else(|| self.new_register(true));
        *self.spares[1].insert(spare)
    }

    /// Gives a variable of a block or a thread its place.
    pub(super) fn place(&mut self, variable: &Variable) {
        let room = match variable.space {
            Space::Local => &mut self.local,
            _ => &mut self.shared,
        };
        if variable.bytes.is_none() {
            self.align = self.align.max(variable.align);
        }
        let at = room.next_multiple_of(if variable.bytes.is_some() { variable.align } else { 16 });
        if let Some(bytes) = variable.bytes {
            *room = at + bytes;
        }
        self.mean(&variable.name, Meaning::Address(if variable.bytes.is_some() { at as u64 } else { DYNAMIC }));
    }

    /// Bytes of shared memory before what the launch adds, which begins where all others end.
    pub(super) fn shared_end(&self) -> usize {
        self.shared.next_multiple_of(self.align)
    }

    /// Gives an argument its place: its offset and size.
    pub(super) fn parameter(&mut self, variable: &Variable) -> Result<(usize, usize), BadProgram> {
        let Some(bytes) = variable.bytes else { return bad("an argument without a size") };
        let at = self.parameters.next_multiple_of(variable.align.max(1));
        self.parameters = at + bytes;
        self.mean(&variable.name, Meaning::Address(at as u64));
        Ok((at, bytes))
    }

    pub(super) fn register(&self, name: &str) -> Result<Register, BadProgram> {
        match self.meaning(name)? {
            Meaning::Register(register) => Ok(register),
            _ => bad(format!("{name} is no register")),
        }
    }

    pub(super) fn predicate(&self, name: &str) -> Result<u32, BadProgram> {
        match self.meaning(name)? {
            Meaning::Predicate(at) => Ok(at),
            _ => bad(format!("{name} is no predicate")),
        }
    }

    /// A predicate, its contrary, or a number that is one.
    pub(super) fn truth(&self, name: &str) -> Result<(u32, bool), BadProgram> {
        if let Some(number) = constant(name) {
            return Ok((0, number != 0));
        }
        let (name, negated) = name.strip_prefix('!').map_or((name, false), |name| (name, true));
        Ok((self.predicate(name)?, negated))
    }

    /// A register of that width, a number, or a variable's address.
    pub(super) fn source(&mut self, name: &str, wide: bool) -> Result<Source, BadProgram> {
        match self.any_source(name, wide)? {
            (source, found) if found == wide => Ok(source),
            _ => bad(format!("{name} has another width")),
        }
    }

    /// The same of any width, and whether it is wide.
    pub(super) fn any_source(&mut self, name: &str, wide: bool) -> Result<(Source, bool), BadProgram> {
        if let Some(value) = constant(name) {
            return Ok((self.constant(value, wide), wide));
        }
        match self.meaning(name)? {
            Meaning::Register(register) => Ok((Source::Register(register.line), register.wide)),
            Meaning::Address(at) => {
                let at = self.resolved(at);
                Ok((self.constant(at, wide), wide))
            }
            Meaning::Predicate(_) => bad(format!("{name} is a predicate")),
        }
    }

    /// Where a variable is, once all of a block's are known.
    fn resolved(&self, at: u64) -> u64 {
        if at == DYNAMIC { self.shared_end() as u64 } else { at }
    }

    fn constant(&mut self, value: u64, wide: bool) -> Source {
        let value = if wide { value } else { value & 0xffff_ffff };
        if let Some(line) = self.known.get(&(value, wide)) {
            return Source::Constant(*line);
        }
        let line = self.constants.len() as u32;
        self.constants.extend((0..Register::lines(wide)).map(|_| Line::filled(value, wide)));
        self.known.insert((value, wide), line);
        Source::Constant(line)
    }

    /// `[register + number]`, or parts of it.
    pub(super) fn address(&mut self, text: &str, space: Space) -> Result<Address, BadProgram> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let Some(inner) = inner else { return bad(format!("{text} is no address")) };
        let (name, offset) = match inner.split_once('+') {
            Some((name, offset)) => (name, constant(offset)),
            None => (inner, Some(0)),
        };
        let Some(mut offset) = offset else { return bad(format!("{text} is no address")) };
        if let Some(number) = constant(name) {
            return Ok(Address { base: None, offset: offset.wrapping_add(number), space });
        }
        let base = match self.meaning(name)? {
            Meaning::Register(register) => Some((Source::Register(register.line), register.wide)),
            Meaning::Address(at) => {
                offset = offset.wrapping_add(self.resolved(at));
                None
            }
            Meaning::Predicate(_) => return bad(format!("{text} is no address")),
        };
        Ok(Address { base, offset, space })
    }
}

/// Stands for the end of what is known before the launch.
const DYNAMIC: u64 = u64::MAX;
