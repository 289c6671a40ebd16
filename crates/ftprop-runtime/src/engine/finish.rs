//! Reading any value as reals, and writing reals through an activation.

use super::buffer::{Buffer, Format, Layout};
use crate::error::Result;
use crate::memory;
use crate::model::{Activation, Kind, Preprocessing};

/// Reads a value as reals, whatever it holds.
pub(super) enum Reader {
    Reals,
    /// The real of each level.
    Levels(Vec<f32>),
    /// The normalised value of each byte, 256 for each channel.
    Words(Vec<f32>),
}

impl Reader {
    pub(super) fn new(kind: Kind, about: &Preprocessing) -> Result<Self> {
        Ok(match kind {
            Kind::Real => Reader::Reals,
            Kind::Levels(activation) => {
                Reader::Levels((0..=activation.steps().unwrap_or(0)).map(|level| activation.value(level)).collect())
            }
            Kind::Image => {
                let normal = |byte: usize, c: usize| (byte as f32 / 255.0 - about.mean[c]) / about.std[c];
                Reader::Words(memory::collect((0..about.mean.len() * 256).map(|i| normal(i % 256, i / 256)))?)
            }
        })
    }

    /// Bytes its tables take.
    pub(super) fn size(kind: Kind, about: &Preprocessing) -> u128 {
        match kind {
            Kind::Image => about.mean.len() as u128 * 1024,
            _ => 512,
        }
    }

    /// Channels `first ..` of the pixel whose first element is `at`.
    ///
    /// # Safety
    /// Nobody may write the buffer meanwhile.
    pub(super) unsafe fn read(&self, buffer: &Buffer, at: usize, first: usize, to: &mut [f32]) {
        let range = at + first..at + first + to.len();
        // SAFETY: the caller keeps writers away.
        unsafe {
            match (self, buffer) {
                (Reader::Reals, Buffer::Reals(reals)) => to.copy_from_slice(&reals.all()[range]),
                (Reader::Levels(values), Buffer::Bytes(levels)) => {
                    to.iter_mut().zip(&levels.all()[range]).for_each(|(to, &level)| *to = values[level as usize]);
                }
                (Reader::Words(values), Buffer::Words(words)) => {
                    for (c, (to, &word)) in to.iter_mut().zip(&words.all()[range]).enumerate() {
                        *to = values[(first + c) * 256 + word as usize];
                    }
                }
                _ => unreachable!("the plan gives each value the buffer of its kind"),
            }
        }
    }
}

/// Applies an activation to reals and writes them to channels `first ..` of the pixel at `at`.
///
/// # Safety
/// Nobody else may touch those elements meanwhile.
pub(super) unsafe fn write(
    reals: &[f32],
    activation: Option<Activation>,
    layout: &Layout,
    buffer: &Buffer,
    at: usize,
    first: usize,
) {
    debug_assert!(layout.format != Format::Bits);
    let range = at + first..at + first + reals.len();
    // SAFETY: the caller keeps everybody else away.
    unsafe {
        match (buffer, activation) {
            (Buffer::Reals(to), activation) => {
                let to = to.part(range).iter_mut().zip(reals);
                match activation {
                    Some(Activation::Relu) => to.for_each(|(to, &z)| *to = if z > 0.0 { z } else { 0.0 }),
                    Some(Activation::SaturatedRelu) => to.for_each(|(to, &z)| {
                        *to = if z > 0.0 { if z < 1.0 { z } else { 1.0 } } else { 0.0 };
                    }),
                    _ => to.for_each(|(to, &z)| *to = z),
                }
            }
            (Buffer::Bytes(to), Some(activation)) => {
                let to = to.part(range);
                to.fill(0);
                for i in 0..activation.steps().unwrap_or(0) {
                    let threshold = activation.threshold(i) as f32;
                    to.iter_mut().zip(reals).for_each(|(to, &z)| *to += (z > threshold) as u8);
                }
            }
            _ => unreachable!("the plan gives each value the buffer of its kind"),
        }
    }
}
