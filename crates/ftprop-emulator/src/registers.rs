//! The registers of a warp: 32 lanes each, so that one instruction is one loop over lanes.

/// How many threads a warp has.
pub(crate) const LANES: usize = 32;

/// A piece of the register file, sized and aligned for the CPU's own vectors.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line([u32; 16]);

impl Line {
    pub(crate) const EMPTY: Line = Line([0; 16]);

    /// One number in every lane.
    pub(crate) fn filled(value: u64, wide: bool) -> Line {
        Line(std::array::from_fn(|at| if wide && at % 2 == 1 { (value >> 32) as u32 } else { value as u32 }))
    }
}

/// A place in the register file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) line: u32,
    /// 64 bits.
    pub(crate) wide: bool,
}

impl Register {
    /// How many lines a register takes.
    pub(crate) fn lines(wide: bool) -> u32 {
        if wide { 4 } else { 2 }
    }
}

/// What an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Register(u32),
    /// Among the program's constants, which are spread over lanes already.
    Constant(u32),
}

/// A predicate, and whether its contrary is meant.
pub(crate) type Truth = (u32, bool);

/// What an instruction reads and writes.
#[derive(Clone)]
pub(crate) struct Operands {
    pub(crate) to: [Register; 4],
    pub(crate) from: [Source; 10],
    /// Which of the sources are wide, a bit each.
    pub(crate) wide: u16,
    /// Zero where there is none.
    pub(crate) to_predicates: [u32; 2],
    pub(crate) from_predicates: [Truth; 2],
    /// What a comparison's outcome is combined with, and how.
    pub(crate) combine: Option<(Combine, Truth)>,
}

/// How two truths of all lanes become one.
pub(crate) type Combine = fn(u32, u32) -> u32;

/// What only touches registers, in these lanes.
pub(crate) type Compute = fn(&mut Registers, &Operands, u32);

/// What a lane of a register holds.
///
/// # Safety
/// Any bits are a value of it, and 32 of them fill the lines of a register of its width.
pub(crate) unsafe trait Lane: Copy + Default {
    const WIDE: bool;
}

// SAFETY: whole numbers; 32 of 4 bytes are two lines.
unsafe impl Lane for u32 {
    const WIDE: bool = false;
}

// SAFETY: whole numbers; 32 of 8 bytes are four lines.
unsafe impl Lane for u64 {
    const WIDE: bool = true;
}

/// The registers of one warp.
pub(crate) struct Registers {
    lines: Vec<Line>,
    /// A bit a lane.
    pub(crate) predicates: Vec<u32>,
    constants: std::sync::Arc<[Line]>,
}

/// Lines in which 32 values lie.
fn lanes<T: Lane>(lines: &[Line], first: u32) -> &[T; LANES] {
    let lines = &lines[first as usize..][..Register::lines(T::WIDE) as usize];
    // SAFETY: these lines are there, and as many values of this type fill them.
    unsafe { &*lines.as_ptr().cast() }
}

impl Registers {
    pub(crate) fn new(lines: usize, predicates: usize, constants: std::sync::Arc<[Line]>) -> Self {
        Registers { lines: vec![Line::EMPTY; lines], predicates: vec![0; predicates], constants }
    }

    pub(crate) fn read<T: Lane>(&self, from: Source) -> &[T; LANES] {
        match from {
            Source::Register(line) => lanes(&self.lines, line),
            Source::Constant(line) => lanes(&self.constants, line),
        }
    }

    pub(crate) fn write<T: Lane>(&mut self, to: Register, values: &[T; LANES], mask: u32) {
        debug_assert_eq!(to.wide, T::WIDE);
        let lines = &mut self.lines[to.line as usize..][..Register::lines(T::WIDE) as usize];
        // SAFETY: these lines are there, as many values of this type fill them, and nobody else looks at them.
        let place: &mut [T; LANES] = unsafe { &mut *lines.as_mut_ptr().cast() };
        if mask == !0 {
            *place = *values;
            return;
        }
        for (lane, (place, value)) in place.iter_mut().zip(values).enumerate() {
            if mask >> lane & 1 != 0 {
                *place = *value;
            }
        }
    }

    /// The same for a value of up to 64 bits, whatever the register's width.
    pub(crate) fn write_any(&mut self, to: Register, values: &[u64; LANES], mask: u32) {
        if to.wide {
            self.write(to, values, mask);
        } else {
            self.write(to, &values.map(|value| value as u32), mask);
        }
    }

    /// A register as 64 bits a lane.
    pub(crate) fn read_any(&self, from: Source, wide: bool) -> [u64; LANES] {
        if wide { *self.read::<u64>(from) } else { self.read::<u32>(from).map(u64::from) }
    }

    pub(crate) fn set_predicate(&mut self, at: u32, bits: u32, mask: u32) {
        let place = &mut self.predicates[at as usize];
        *place = (*place & !mask) | (bits & mask);
    }

    /// Lanes in which a predicate, or its contrary, holds.
    pub(crate) fn predicate(&self, (at, negated): Truth) -> u32 {
        let bits = self.predicates[at as usize];
        if negated { !bits } else { bits }
    }

    #[inline(always)]
    pub(crate) fn one<A: Lane, D: Lane>(&mut self, i: &Operands, mask: u32, f: impl Fn(A) -> D) {
        let (a, mut out) = (self.read::<A>(i.from[0]), [D::default(); LANES]);
        for lane in 0..LANES {
            out[lane] = f(a[lane]);
        }
        self.write(i.to[0], &out, mask);
    }

    #[inline(always)]
    pub(crate) fn two<A: Lane, B: Lane, D: Lane>(&mut self, i: &Operands, mask: u32, f: impl Fn(A, B) -> D) {
        let (a, b, mut out) = (self.read::<A>(i.from[0]), self.read::<B>(i.from[1]), [D::default(); LANES]);
        for lane in 0..LANES {
            out[lane] = f(a[lane], b[lane]);
        }
        self.write(i.to[0], &out, mask);
    }

    #[inline(always)]
    pub(crate) fn three<A: Lane, B: Lane, C: Lane, D: Lane>(
        &mut self,
        i: &Operands,
        mask: u32,
        f: impl Fn(A, B, C) -> D,
    ) {
        let (a, b, c) = (self.read::<A>(i.from[0]), self.read::<B>(i.from[1]), self.read::<C>(i.from[2]));
        let mut out = [D::default(); LANES];
        for lane in 0..LANES {
            out[lane] = f(a[lane], b[lane], c[lane]);
        }
        self.write(i.to[0], &out, mask);
    }

    #[inline(always)]
    pub(crate) fn compare<A: Lane>(&mut self, i: &Operands, mask: u32, f: impl Fn(A, A) -> bool) {
        let (a, b, mut bits) = (self.read::<A>(i.from[0]), self.read::<A>(i.from[1]), 0);
        for lane in 0..LANES {
            bits |= u32::from(f(a[lane], b[lane])) << lane;
        }
        let [first, second] = i.to_predicates;
        let with = |bits: u32| match i.combine {
            Some((combine, other)) => combine(bits, self.predicate(other)),
            None => bits,
        };
        let (yes, no) = (with(bits), with(!bits));
        self.set_predicate(first, yes, mask);
        if second != 0 {
            self.set_predicate(second, no, mask);
        }
    }
}
