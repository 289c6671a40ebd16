//! Any function of one or two numbers, mapped over buffers.
//!
//! The function is compiled into the loop for each instruction set, so a plain scalar definition runs as
//! fast as vector code, and the definition a reader checks is the one that runs.

use super::simd::{Kernel, Simd, dispatch};
use super::{Cpu, Shared};

/// Numbers that one task handles: several pages, small enough to spread.
const RUN: usize = 16 * 1024;

/// out[i] = f(x[i])
pub fn map(cpu: &Cpu, x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32 + Sync + Send) {
    assert_eq!(x.len(), out.len());
    cpu.each_chunk(out, RUN, |i, out| {
        let x = &x[i * RUN..][..out.len()];
        dispatch(cpu.isa, Loop(|| out.iter_mut().zip(x).for_each(|(o, &x)| *o = f(x))));
    });
}

/// out[i] = f(out[i], x[i])
pub fn update(cpu: &Cpu, out: &mut [f32], x: &[f32], f: impl Fn(f32, f32) -> f32 + Sync + Send) {
    assert_eq!(x.len(), out.len());
    cpu.each_chunk(out, RUN, |i, out| {
        let x = &x[i * RUN..][..out.len()];
        dispatch(cpu.isa, Loop(|| out.iter_mut().zip(x).for_each(|(o, &x)| *o = f(*o, x))));
    });
}

/// Runs over equal parts of several buffers: `f(start, [part of each])`, for passes that update some of them.
pub fn update_parts<const N: usize>(
    cpu: &Cpu,
    buffers: [&mut [f32]; N],
    f: impl Fn(usize, [&mut [f32]; N]) + Sync + Send,
) {
    let len = buffers[0].len();
    assert!(buffers.iter().all(|b| b.len() == len), "the buffers differ in length");
    let shared = buffers.map(Shared::new);
    cpu.each(len.div_ceil(RUN), |i| {
        let n = RUN.min(len - i * RUN);
        // SAFETY: the runs of different tasks do not overlap.
        let parts = shared.map(|b| unsafe { b.slice(i * RUN, n) });
        dispatch(cpu.isa, Loop(|| f(i * RUN, parts)));
    });
}

/// A closure as a kernel: inlined into the function that has the instruction set's features.
struct Loop<F>(F);

impl<F: FnOnce()> Kernel for Loop<F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    #[test]
    fn maps_every_element_once_with_the_same_bits_on_every_instruction_set() {
        let x: Vec<f32> = (0..3 * RUN + 17).map(|i| (i as f32 * 0.37).sin()).collect();
        for isa in Isa::all_available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let mut out = vec![0.0; x.len()];
            map(&cpu, &x, &mut out, |v| v * v + 0.5);
            assert!(out.iter().zip(&x).all(|(o, v)| *o == v * v + 0.5));
            update(&cpu, &mut out, &x, |o, v| o - v);
            assert!(out.iter().zip(&x).all(|(o, v)| *o == v * v + 0.5 - v));
            let mut other = vec![1.0; x.len()];
            update_parts(&cpu, [&mut out, &mut other], |start, [a, b]| {
                for (i, (a, b)) in a.iter_mut().zip(b).enumerate() {
                    *a = x[start + i];
                    *b += *a;
                }
            });
            assert!(out == x && other.iter().zip(&x).all(|(o, v)| *o == 1.0 + v));
        }
    }
}
