//! Any function of one or two numbers, mapped over buffers.
//!
//! The function is compiled into the loop for each instruction set, so a plain scalar definition runs as
//! fast as vector code, and the definition a reader checks is the one that runs.

use super::simd::{Kernel, Simd, dispatch};
use super::{Cpu, Shared};

/// Numbers that one task handles: several pages, small enough to spread.
const RUN: usize = 16 * 1024;

/// `out[i] = f(x[i])`
pub fn map(cpu: &Cpu, x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32 + Sync + Send) {
    assert_eq!(x.len(), out.len());
    cpu.each_chunk(out, RUN, |i, out| {
        let x = &x[i * RUN..][..out.len()];
        dispatch(cpu.isa, Map { x, out, f: &f });
    });
}

struct Map<'a, F> {
    x: &'a [f32],
    out: &'a mut [f32],
    f: &'a F,
}

impl<F: Fn(f32) -> f32> Kernel for Map<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        map_loop(self.out, self.x, self.f);
    }
}

// The loops are functions of their own because only as arguments are buffers known not to overlap, without which the
// compiler would not use vectors.

#[inline(always)]
fn map_loop(out: &mut [f32], x: &[f32], f: &impl Fn(f32) -> f32) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f(x);
    }
}

#[inline(always)]
fn update_loop(out: &mut [f32], x: &[f32], f: &impl Binary) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = f.apply(*out, x);
    }
}

#[inline(always)]
fn update2_loop(a: &mut [f32], b: &mut [f32], x: &[f32], f: &impl Fn(f32, f32, f32) -> (f32, f32)) {
    for ((a, b), &x) in a.iter_mut().zip(b).zip(x) {
        (*a, *b) = f(*a, *b, x);
    }
}

#[inline(always)]
fn update3_loop(
    a: &mut [f32],
    b: &mut [f32],
    c: &mut [f32],
    x: &[f32],
    f: &impl Fn(f32, f32, f32, f32) -> (f32, f32, f32),
) {
    for (((a, b), c), &x) in a.iter_mut().zip(b).zip(c).zip(x) {
        (*a, *b, *c) = f(*a, *b, *c, x);
    }
}

/// A function of two numbers. A closure is one; a type whose `apply` is `#[inline(always)]` is certain to be compiled
/// into the loop, which of a large closure the compiler may think too much.
pub trait Binary: Sync {
    /// The function's value.
    fn apply(&self, a: f32, b: f32) -> f32;
}

impl<F: Fn(f32, f32) -> f32 + Sync> Binary for F {
    #[inline(always)]
    fn apply(&self, a: f32, b: f32) -> f32 {
        self(a, b)
    }
}

/// `out[i] = f(out[i], x[i])`
pub fn update(cpu: &Cpu, out: &mut [f32], x: &[f32], f: impl Binary) {
    assert_eq!(x.len(), out.len());
    cpu.each_chunk(out, RUN, |i, out| {
        let x = &x[i * RUN..][..out.len()];
        dispatch(cpu.isa, Update { out, x, f: &f });
    });
}

/// A function of three numbers, as [`Binary`] is one of two.
pub trait Ternary: Sync {
    /// The function's value.
    fn apply(&self, a: f32, b: f32, c: f32) -> f32;
}

/// `out[i] = f(out[i], x[i], y[i])`
pub fn update_with(cpu: &Cpu, out: &mut [f32], [x, y]: [&[f32]; 2], f: impl Ternary) {
    assert!(x.len() == out.len() && y.len() == out.len(), "the buffers differ in length");
    cpu.each_chunk(out, RUN, |i, out| {
        let (x, y) = (&x[i * RUN..][..out.len()], &y[i * RUN..][..out.len()]);
        dispatch(cpu.isa, UpdateWith { out, x, y, f: &f });
    });
}

struct UpdateWith<'a, F> {
    out: &'a mut [f32],
    x: &'a [f32],
    y: &'a [f32],
    f: &'a F,
}

impl<F: Ternary> Kernel for UpdateWith<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        update_with_loop(self.out, self.x, self.y, self.f);
    }
}

#[inline(always)]
fn update_with_loop(out: &mut [f32], x: &[f32], y: &[f32], f: &impl Ternary) {
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        *out = f.apply(*out, x, y);
    }
}

struct Update<'a, F> {
    out: &'a mut [f32],
    x: &'a [f32],
    f: &'a F,
}

impl<F: Binary> Kernel for Update<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        update_loop(self.out, self.x, self.f);
    }
}

/// `(a[i], b[i]) = f(a[i], b[i], x[i])`
pub fn update2(cpu: &Cpu, [a, b]: [&mut [f32]; 2], x: &[f32], f: impl Fn(f32, f32, f32) -> (f32, f32) + Sync + Send) {
    assert!(a.len() == x.len() && b.len() == x.len(), "the buffers differ in length");
    let b = Shared::new(b);
    cpu.each_chunk(a, RUN, |i, a| {
        // SAFETY: the runs of different tasks do not overlap.
        let b = unsafe { b.slice(i * RUN, a.len()) };
        dispatch(cpu.isa, Update2 { a, b, x: &x[i * RUN..], f: &f });
    });
}

struct Update2<'a, F> {
    a: &'a mut [f32],
    b: &'a mut [f32],
    x: &'a [f32],
    f: &'a F,
}

impl<F: Fn(f32, f32, f32) -> (f32, f32)> Kernel for Update2<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        update2_loop(self.a, self.b, self.x, self.f);
    }
}

/// `(a[i], b[i], c[i]) = f(a[i], b[i], c[i], x[i])`
pub fn update3(
    cpu: &Cpu,
    [a, b, c]: [&mut [f32]; 3],
    x: &[f32],
    f: impl Fn(f32, f32, f32, f32) -> (f32, f32, f32) + Sync + Send,
) {
    assert!(a.len() == x.len() && b.len() == x.len() && c.len() == x.len(), "the buffers differ in length");
    let (b, c) = (Shared::new(b), Shared::new(c));
    cpu.each_chunk(a, RUN, |i, a| {
        // SAFETY: the runs of different tasks do not overlap.
        let (b, c) = unsafe { (b.slice(i * RUN, a.len()), c.slice(i * RUN, a.len())) };
        dispatch(cpu.isa, Update3 { a, b, c, x: &x[i * RUN..], f: &f });
    });
}

struct Update3<'a, F> {
    a: &'a mut [f32],
    b: &'a mut [f32],
    c: &'a mut [f32],
    x: &'a [f32],
    f: &'a F,
}

impl<F: Fn(f32, f32, f32, f32) -> (f32, f32, f32)> Kernel for Update3<'_, F> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        update3_loop(self.a, self.b, self.c, self.x, self.f);
    }
}

/// `x[i] = f(i, x[i])`, for functions that depend on the place.
pub fn update_places(cpu: &Cpu, x: &mut [f32], f: impl Fn(usize, f32) -> f32 + Sync + Send) {
    cpu.each_chunk(x, RUN, |run, x| {
        for (i, x) in x.iter_mut().enumerate() {
            *x = f(run * RUN + i, *x);
        }
    });
}

/// `f(i, row i of x)` for rows of `len` numbers, each a task of its own.
pub fn update_rows(cpu: &Cpu, x: &mut [f32], len: usize, f: impl Fn(usize, &mut [f32]) + Sync + Send) {
    cpu.each_chunk(x, len, f);
}

/// `out[i] = f(i, x[i], y[i])`
pub fn map_places(cpu: &Cpu, out: &mut [f32], [x, y]: [&[f32]; 2], f: impl Fn(usize, f32, f32) -> f32 + Sync + Send) {
    assert!(x.len() == out.len() && y.len() == out.len(), "the buffers differ in length");
    cpu.each_chunk(out, RUN, |run, out| {
        let start = run * RUN;
        for (i, out) in out.iter_mut().enumerate() {
            *out = f(start + i, x[start + i], y[start + i]);
        }
    });
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
            update2(&cpu, [&mut out, &mut other], &x, |_, b, x| (x, b + x));
            assert!(out == x && other.iter().zip(&x).all(|(o, v)| *o == 1.0 + v));
            let mut third = vec![2.0; x.len()];
            update3(&cpu, [&mut third, &mut out, &mut other], &x, |a, b, c, x| (a * x, b, c - x));
            assert!(out == x && third.iter().zip(&x).all(|(o, v)| *o == 2.0 * v));
            assert!(other.iter().zip(&x).all(|(o, v)| *o == 1.0 + v - v));
            struct Fused;
            impl Ternary for Fused {
                fn apply(&self, a: f32, b: f32, c: f32) -> f32 {
                    a * b - c
                }
            }
            update_with(&cpu, &mut other, [&x, &third], Fused);
            assert!(other.iter().zip(&x).all(|(o, v)| *o == (1.0 + v - v) * v - 2.0 * v));
            map_places(&cpu, &mut other, [&x, &third], |i, a, b| a + b * i as f32);
            assert!(other.iter().zip(&x).enumerate().all(|(i, (o, v))| *o == v + 2.0 * v * i as f32));
            update_places(&cpu, &mut out, |i, v| v + i as f32);
            assert!(out.iter().zip(&x).enumerate().all(|(i, (o, v))| *o == v + i as f32));
        }
    }
}
