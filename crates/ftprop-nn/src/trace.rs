//! Formulas written down: the same generic code that runs on the CPU, as text for a GPU's compiler.
//!
//! A [`Tape`] takes note of what is done to [`Traced`] numbers, one operation a line, in a language that is C, C++ and
//! CUDA alike. What they call beside are the [`called_functions`].
//!
//! ```
//! use ftprop_nn::number::Number;
//! use ftprop_nn::trace::{Traced, function};
//! let text = function("hat", &["x"], |[x]| (Traced::of(1.0) - x.abs()).max(Traced::of(0.0)));
//! assert!(text.contains("const float v0 = fabsf(x);") && text.contains("return v2;"), "{text}");
//! ```

use crate::number::Number;
use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// What stands before every function: CUDA's words for one that the GPU calls and the compiler takes apart.
const QUALIFIERS: &str = "__device__ __forceinline__";

/// The lines of one function.
#[derive(Default)]
pub struct Tape {
    lines: RefCell<String>,
    names: Cell<u32>,
}

impl Tape {
    fn name(&self, letter: char) -> Name {
        let number = self.names.get();
        self.names.set(number + 1);
        Name::Line(letter, number)
    }

    fn line(&self, text: fmt::Arguments<'_>) {
        let _ = writeln!(self.lines.borrow_mut(), "    {text}");
    }

    fn value(&self, text: fmt::Arguments<'_>) -> Traced<'_> {
        let name = self.name('v');
        self.line(format_args!("const float {name} = {text};"));
        Traced::On(self, name)
    }

    fn truth(&self, text: fmt::Arguments<'_>) -> TracedTruth<'_> {
        let name = self.name('b');
        self.line(format_args!("const bool {name} = {text};"));
        TracedTruth::On(self, name)
    }
}

/// What a line's result, or a function's argument, is called.
#[derive(Clone, Copy)]
pub enum Name {
    /// An argument.
    Input(&'static str),
    /// The result of a line.
    Line(char, u32),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Input(name) => f.write_str(name),
            Name::Line(letter, number) => write!(f, "{letter}{number}"),
        }
    }
}

/// A number whose operations are written down. What is done to constants alone is computed here.
#[derive(Clone, Copy)]
pub enum Traced<'a> {
    /// A number that is known now.
    Constant(f32),
    /// One that the device will know.
    On(&'a Tape, Name),
}

/// A comparison that is written down.
#[derive(Clone, Copy)]
pub enum TracedTruth<'a> {
    /// Known now.
    Constant(bool),
    /// Known on the device.
    On(&'a Tape, Name),
}

impl<'a> Traced<'a> {
    fn tape(self) -> Option<&'a Tape> {
        match self {
            Traced::Constant(_) => None,
            Traced::On(tape, _) => Some(tape),
        }
    }

    /// On a tape if either is, else computed.
    fn with(self, other: Self, known: impl Fn(f32, f32) -> f32, text: fmt::Arguments<'_>) -> Self {
        match (self, other) {
            (Traced::Constant(a), Traced::Constant(b)) => Traced::Constant(known(a, b)),
            _ => self.tape().or(other.tape()).expect("one of them is on a tape").value(text),
        }
    }

    fn alone(self, known: impl Fn(f32) -> f32, function: &str) -> Self {
        match self {
            Traced::Constant(a) => Traced::Constant(known(a)),
            Traced::On(tape, name) => tape.value(format_args!("{function}({name})")),
        }
    }

    fn compared(self, other: Self, known: impl Fn(&f32, &f32) -> bool, sign: &str) -> TracedTruth<'a> {
        match (self, other) {
            (Traced::Constant(a), Traced::Constant(b)) => TracedTruth::Constant(known(&a, &b)),
            _ => {
                let tape = self.tape().or(other.tape()).expect("one of them is on a tape");
                tape.truth(format_args!("{self} {sign} {other}"))
            }
        }
    }
}

impl fmt::Display for Traced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // To the bit, and with brackets: a minus must not meet another.
            Traced::Constant(value) if value.is_finite() => write!(f, "({value:e}f)"),
            Traced::Constant(value) if value.is_nan() => f.write_str("(0.0f / 0.0f)"),
            Traced::Constant(value) => write!(f, "({}1.0f / 0.0f)", if *value < 0.0 { "-" } else { "" }),
            Traced::On(_, name) => name.fmt(f),
        }
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $sign:tt) => {
        impl<'a> $trait for Traced<'a> {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                let text = concat!(" ", stringify!($sign), " ");
                self.with(other, |a, b| a $sign b, format_args!("{self}{text}{other}"))
            }
        }
    };
}
operator!(Add, add, +);
operator!(Sub, sub, -);
operator!(Mul, mul, *);
operator!(Div, div, /);

impl Neg for Traced<'_> {
    type Output = Self;
    fn neg(self) -> Self {
        self.alone(|a| -a, "-")
    }
}

impl<'a> Number for Traced<'a> {
    type Truth = TracedTruth<'a>;

    fn of(value: f32) -> Self {
        Traced::Constant(value)
    }

    fn abs(self) -> Self {
        self.alone(f32::abs, "fabsf")
    }

    fn max(self, other: Self) -> Self {
        self.with(other, f32::max, format_args!("fmaxf({self}, {other})"))
    }

    fn min(self, other: Self) -> Self {
        self.with(other, f32::min, format_args!("fminf({self}, {other})"))
    }

    fn sqrt(self) -> Self {
        self.alone(f32::sqrt, "sqrtf")
    }

    fn ceil(self) -> Self {
        self.alone(f32::ceil, "ceilf")
    }

    fn less(self, other: Self) -> TracedTruth<'a> {
        self.compared(other, |a, b| a < b, "<")
    }

    fn at_most(self, other: Self) -> TracedTruth<'a> {
        self.compared(other, |a, b| a <= b, "<=")
    }

    fn both(one: TracedTruth<'a>, other: TracedTruth<'a>) -> TracedTruth<'a> {
        match (one, other) {
            (TracedTruth::Constant(known), unknown) | (unknown, TracedTruth::Constant(known)) => match known {
                true => unknown,
                false => TracedTruth::Constant(false),
            },
            (TracedTruth::On(tape, a), TracedTruth::On(_, b)) => tape.truth(format_args!("{a} && {b}")),
        }
    }

    fn either(truth: TracedTruth<'a>, yes: Self, no: Self) -> Self {
        match truth {
            TracedTruth::Constant(true) => yes,
            TracedTruth::Constant(false) => no,
            TracedTruth::On(tape, truth) => tape.value(format_args!("{truth} ? {yes} : {no}")),
        }
    }

    fn power_of_two(self) -> Self {
        match self {
            Traced::Constant(a) => Traced::Constant(a.power_of_two()),
            Traced::On(tape, name) => {
                let round = 12_582_912f32.to_bits();
                tape.value(format_args!("__uint_as_float((__float_as_uint({name}) - {round}u + 127u) << 23)"))
            }
        }
    }

    fn exp_negative(self) -> Self {
        match self {
            Traced::Constant(a) => Traced::Constant(a.exp_negative()),
            Traced::On(tape, name) => tape.value(format_args!("exp_negative({name})")),
        }
    }

    fn sech_squared(self) -> Self {
        match self {
            Traced::Constant(a) => Traced::Constant(a.sech_squared()),
            Traced::On(tape, name) => tape.value(format_args!("sech_squared({name})")),
        }
    }

    fn sum(count: u32, f: impl Fn(Self) -> Self) -> Self {
        // The body is written on the tape of whatever it uses, which only shows when it has been written; so a first
        // term finds the tape, and the others are a loop.
        let first = f(Traced::Constant(0.0));
        let Traced::On(tape, _) = first else {
            return (1..count).fold(first, |sum, i| sum + f(Traced::Constant(i as f32)));
        };
        let (total, index) = (tape.name('s'), tape.name('i'));
        tape.line(format_args!("float {total} = 0.0f + {first};"));
        tape.line(format_args!("for (int {index} = 1; {index} < {count}; {index}++) {{"));
        let at = tape.value(format_args!("(float){index}"));
        let term = f(at);
        tape.line(format_args!("{total} += {term};"));
        tape.line(format_args!("}}"));
        Traced::On(tape, total)
    }
}

/// A function of numbers that gives one.
pub fn function<const N: usize>(
    name: &str,
    inputs: &[&'static str; N],
    body: impl for<'a> FnOnce([Traced<'a>; N]) -> Traced<'a>,
) -> String {
    let tape = Tape::default();
    let result = body(inputs.map(|input| Traced::On(&tape, Name::Input(input)))).to_string();
    let arguments = inputs.map(|input| format!("float {input}")).join(", ");
    let lines = tape.lines.into_inner();
    format!("{QUALIFIERS} float {name}({arguments}) {{\n{lines}    return {result};\n}}\n")
}

/// The functions that others call, `exp_negative` and `sech_squared`: the CPU's, operation by operation. A device may have some of
/// its own that are faster.
pub fn called_functions() -> String {
    let exp = function("exp_negative", &["x"], |[x]| x.exp_negative_series());
    exp + &function("sech_squared", &["x"], |[x]| x.sech_squared_by_exp())
}

/// A function that changes some numbers, given others.
pub fn procedure<const M: usize, const N: usize>(
    name: &str,
    changed: &[&'static str; M],
    inputs: &[&'static str; N],
    body: impl for<'a> FnOnce([Traced<'a>; M], [Traced<'a>; N]) -> [Traced<'a>; M],
) -> String {
    let tape = Tape::default();
    let named = |input: &'static str| Traced::On(&tape, Name::Input(input));
    let results = body(changed.map(named), inputs.map(named)).map(|r| r.to_string());
    // Results may be arguments themselves, so none is overwritten before all are read.
    for (i, result) in results.iter().enumerate() {
        tape.line(format_args!("const float r{i} = {result};"));
    }
    for (i, place) in changed.iter().enumerate() {
        tape.line(format_args!("{place} = r{i};"));
    }
    let mut arguments: Vec<String> = changed.iter().map(|c| format!("float& {c}")).collect();
    arguments.extend(inputs.iter().map(|input| format!("float {input}")));
    let lines = tape.lines.into_inner();
    format!("{QUALIFIERS} void {name}({}) {{\n{lines}}}\n", arguments.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_computed_and_the_rest_is_written() {
        let text = function("f", &["x"], |[x]| x * (Traced::of(2.0) + Number::of(3.0)).sqrt());
        let root = 5f32.sqrt();
        assert!(text.contains(&format!("x * ({root:e}f)")), "{text}");
        assert_eq!(text.matches("float v").count(), 1, "{text}");
    }

    #[test]
    fn changed_numbers_are_read_before_they_are_written() {
        let text = procedure("swap", &["a", "b"], &["c"], |[a, b], [c]| [b, a + c]);
        let (read, written) = (text.find("r1 =").unwrap(), text.find("a = r0").unwrap());
        assert!(read < written && text.contains("void swap(float& a, float& b, float c)"), "{text}");
    }

    #[test]
    fn sums_are_loops_and_extreme_constants_stay_themselves() {
        let text = function("f", &["x"], |[x]| Number::sum(9, |i| x * i) + Number::of(f32::NEG_INFINITY));
        assert!(text.contains("for (int i") && text.contains("(-1.0f / 0.0f)"), "{text}");
        let text = function("g", &["x"], |[x]| x - Number::of(-0.0) - Number::of(f32::MIN_POSITIVE));
        assert!(text.contains("x - (-0e0f)") && text.contains("1.1754944e-38f"), "{text}");
    }
}
