//! PTX as text: from characters to statements, without looking into them.

use std::fmt;

/// Why a text is not a program that this GPU can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadProgram(pub(crate) String);

impl fmt::Display for BadProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadProgram {}

/// How wide a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// A truth value.
    Predicate,
    /// Up to 32 bits.
    Narrow,
    /// 64 bits.
    Wide,
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Parameter,
}

/// A named piece of memory.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) space: Space,
    pub(crate) name: String,
    pub(crate) align: usize,
    /// Nothing where the launch says how many.
    pub(crate) bytes: Option<usize>,
    /// Zeros where it says nothing.
    pub(crate) initial: Vec<u8>,
}

/// What a kernel is made of.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Open,
    Close,
    Label(String),
    Registers(Width, Vec<String>),
    Variable(Variable),
    Instruction { guard: Option<(String, bool)>, opcode: String, operands: Vec<String>, text: String },
}

/// A kernel.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Variable>,
    /// The most threads of a block, where it says so.
    pub(crate) most_threads: Option<u32>,
    pub(crate) body: Vec<Statement>,
}

/// A whole text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Module {
    pub(crate) variables: Vec<Variable>,
    pub(crate) entries: Vec<Entry>,
}

pub(crate) fn bad<T>(what: impl Into<String>) -> Result<T, BadProgram> {
    Err(BadProgram(what.into()))
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<Module, BadProgram> {
    let text = without_comments(text);
    let (mut module, mut rest) = (Module::default(), text.trim_start());
    while !rest.is_empty() {
        if rest.starts_with(".version") || rest.starts_with(".target") || rest.starts_with(".address_size") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after).trim_start();
        } else if let Some((head, after)) = entry_head(rest) {
            let (entry, after) = entry(head, after)?;
            module.entries.push(entry);
            rest = after.trim_start();
        } else if let Some((statement, after)) = rest.split_once(';') {
            module.variables.extend(variable(statement)?);
            rest = after.trim_start();
        } else {
            return bad(format!("no end of '{}'", rest.chars().take(40).collect::<String>()));
        }
    }
    Ok(module)
}

/// What stands before a kernel's body, and what begins with its brace.
fn entry_head(rest: &str) -> Option<(&str, &str)> {
    let first = rest.find([';', '{'])?;
    let head = &rest[..first];
    (rest[first..].starts_with('{') && head.contains(".entry")).then(|| (head, &rest[first..]))
}

fn without_comments(text: &str) -> String {
    let lines = text.trim_end_matches('\0').lines();
    lines.map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn entry<'a>(head: &str, rest: &'a str) -> Result<(Entry, &'a str), BadProgram> {
    let after = head.split_once(".entry").map_or("", |(_, after)| after);
    let (name, tail) = after.split_once('(').unwrap_or((after, ")"));
    let (parameters, directives) = tail.split_once(')').unwrap_or((tail, ""));
    let list = parameters.split(',').filter(|one| !one.trim().is_empty());
    let parameters = list.map(|one| variable(one)?.ok_or_else(|| BadProgram(format!("a parameter '{one}'"))));
    let most_threads = directives.split_once(".maxntid").map(|(_, sizes)| {
        let sizes = sizes.split(|c: char| c.is_whitespace() || c == ',').filter(|one| !one.is_empty());
        sizes.map_while(|one| one.parse::<u32>().ok()).take(3).product()
    });
    let (body, rest) = body(&rest[1..])?;
    let parameters = parameters.collect::<Result<_, _>>()?;
    Ok((Entry { name: name.trim().to_string(), parameters, most_threads, body }, rest))
}

/// The statements up to the brace that ends the body, which was opened before.
fn body(mut rest: &str) -> Result<(Vec<Statement>, &str), BadProgram> {
    let (mut statements, mut depth) = (Vec::new(), 1);
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('{') {
            (rest, depth) = (after, depth + 1);
            statements.push(Statement::Open);
        } else if let Some(after) = rest.strip_prefix('}') {
            (rest, depth) = (after, depth - 1);
            if depth == 0 {
                return Ok((statements, rest));
            }
            statements.push(Statement::Close);
        } else if let Some((label, after)) = label(rest) {
            statements.push(Statement::Label(label.to_string()));
            rest = after;
        } else if rest.starts_with(".loc") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else {
            let Some((text, after)) = rest.split_once(';') else { return bad("a body without an end") };
            statements.extend(statement(text.trim())?);
            rest = after;
        }
    }
}

fn label(rest: &str) -> Option<(&str, &str)> {
    let end = rest.find(|c: char| !(c.is_alphanumeric() || "_$%".contains(c)))?;
    let after = rest[end..].strip_prefix(':')?;
    (end > 0 && !after.starts_with(':')).then_some((&rest[..end], after))
}

fn statement(text: &str) -> Result<Option<Statement>, BadProgram> {
    if text.is_empty() || text.starts_with(".pragma") {
        return Ok(None);
    }
    if let Some(rest) = text.strip_prefix(".reg") {
        return registers(rest).map(Some);
    }
    if text.starts_with('.') {
        return Ok(variable(text)?.map(Statement::Variable));
    }
    let mut rest = text;
    let mut guard = None;
    if let Some(after) = rest.strip_prefix('@') {
        let (name, after) = after.split_once(char::is_whitespace).unwrap_or((after, ""));
        guard = Some((name.trim_start_matches('!').to_string(), name.starts_with('!')));
        rest = after.trim_start();
    }
    let end = rest.find(|c: char| c.is_whitespace() || "[{%".contains(c)).unwrap_or(rest.len());
    let (opcode, operands) = (rest[..end].to_string(), split(&rest[end..]));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Some(Statement::Instruction { guard, opcode, operands, text }))
}

/// Operands, where commas within brackets do not part.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c if c.is_whitespace() => {}
            c => parts.last_mut().expect("one at least").push(c),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn registers(text: &str) -> Result<Statement, BadProgram> {
    let (kind, names) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
    let width = match bytes_of(kind.trim_start_matches('.')) {
        _ if kind == ".pred" => Width::Predicate,
        Some(8) => Width::Wide,
        Some(1..=4) => Width::Narrow,
        _ => return bad(format!("registers of kind {kind}")),
    };
    let mut all = Vec::new();
    for name in split(names) {
        match name.strip_suffix('>').and_then(|name| name.split_once('<')) {
            Some((prefix, count)) => {
                let count: usize = count.parse().map_err(|_| BadProgram(format!("registers {name}")))?;
                all.extend((0..count).map(|number| format!("{prefix}{number}")));
            }
            None => all.push(name),
        }
    }
    Ok(Statement::Registers(width, all))
}

/// The size of a type, such as `f32`.
pub(crate) fn bytes_of(kind: &str) -> Option<usize> {
    Some(match kind {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "bf16x2" | "f16x2" | "tf32" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        _ => return None,
    })
}

/// A declaration; nothing where it declares none.
fn variable(text: &str) -> Result<Option<Variable>, BadProgram> {
    let (declared, value) = text.split_once('=').map_or((text, None), |(left, right)| (left, Some(right)));
    let (mut space, mut align, mut unit, mut name) = (None, 1, None, "");
    let mut words = declared.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            ".global" | ".const" => space = space.or(Some(Space::Global)),
            ".shared" => space = space.or(Some(Space::Shared)),
            ".local" => space = space.or(Some(Space::Local)),
            ".param" => space = space.or(Some(Space::Parameter)),
            ".align" => align = words.next().and_then(|number| number.parse().ok()).unwrap_or(align),
            word if word.starts_with('.') => unit = unit.or(bytes_of(&word[1..])),
            word => name = word,
        }
    }
    let (Some(space), Some(unit)) = (space, unit) else { return Ok(None) };
    let (name, count) = match name.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse::<usize>().ok()),
        None => (name, Some(1)),
    };
    let bytes = count.map(|count| count * unit);
    let initial = value.map_or(Ok(Vec::new()), |value| initial(value, unit))?;
    Ok(Some(Variable { space, name: name.to_string(), align: align.max(unit), bytes, initial }))
}

fn initial(text: &str, unit: usize) -> Result<Vec<u8>, BadProgram> {
    let numbers = text.trim().trim_start_matches('{').trim_end_matches('}').split(',');
    let mut bytes = Vec::new();
    for number in numbers.map(str::trim).filter(|one| !one.is_empty()) {
        let value = constant(number).ok_or_else(|| BadProgram(format!("an initial value {number}")))?;
        bytes.extend_from_slice(&value.to_le_bytes()[..unit]);
    }
    Ok(bytes)
}

/// A number as it is written in an instruction, as bits.
pub(crate) fn constant(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return u32::from_str_radix(hex, 16).ok().map(u64::from);
    }
    if let Some(hex) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0D")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let digits = digits.trim_end_matches('U');
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_comes_apart() {
        let text = ".version 9.0\n.target sm_90\n.address_size 64\n\
            .global .align 4 .u32 N = 7;\n\
            .visible .entry f( .param .u64 a, .param .align 8 .b8 b[24] )\n.maxntid 64, 2, 1\n{\n\
            .reg .b32 %r<3>; .shared .align 8 .b8 s[16];\n\
            $L_1: @!%p1 bra $L_1; // here\n\
            { .reg .pred q; mov.b64 {%r1, %r2}, %rd1; }\n ld.global.v2.f32 {%f1,%f2}, [%rd1+-8]; ret; }";
        let module = parse(text).unwrap();
        assert_eq!((module.variables[0].name.as_str(), &module.variables[0].initial[..]), ("N", &[7, 0, 0, 0][..]));
        let entry = &module.entries[0];
        assert_eq!((entry.name.as_str(), entry.most_threads), ("f", Some(128)));
        assert_eq!(entry.parameters.iter().map(|p| p.bytes.unwrap()).collect::<Vec<_>>(), [8, 24]);
        let operands = entry.body.iter().filter_map(|s| match s {
            Statement::Instruction { opcode, operands, .. } => Some(format!("{opcode} {}", operands.join(" "))),
            _ => None,
        });
        let operands = operands.collect::<Vec<_>>();
        assert_eq!(operands[1], "mov.b64 {%r1,%r2} %rd1");
        assert_eq!(operands[2], "ld.global.v2.f32 {%f1,%f2} [%rd1+-8]");
        assert!(parse(".visible .entry f() { ret; ").is_err());
    }

    #[test]
    fn numbers_are_bits() {
        assert_eq!(constant("0f3F800000"), Some(u64::from(1f32.to_bits())));
        assert_eq!(constant("0dFFF0000000000000"), Some(f64::NEG_INFINITY.to_bits()));
        assert_eq!(constant("-2"), Some(u64::MAX - 1));
        assert_eq!(constant("0x10U"), Some(16));
        assert_eq!(constant("%r1"), None);
    }
}
