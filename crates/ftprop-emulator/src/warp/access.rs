//! What a warp reads and writes: each address is looked at before it is touched.

use super::{Copy, Launch};
use crate::memory::{LOCAL, PARAMETERS, SHARED};
use crate::program::{Access, Action, Address, Change};
use crate::registers::{LANES, Operands, Registers, Source};
use crate::shared::{SharedMemory, Touch};
use crate::text::Space;
use crate::together::spread_matrix;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether an action looks at what others may be about to write.
pub(super) fn polls(action: &Action) -> bool {
    matches!(action, Action::Load(access) | Action::Atomic(access, _) if access.polls)
}

/// Everything that a warp can reach.
pub(super) struct Reach<'a, 'b> {
    pub(super) launch: &'a Launch<'b>,
    pub(super) shared: &'a mut SharedMemory,
    pub(super) local: &'a mut [u64],
    /// The warp's number in its block.
    pub(super) warp: u32,
}

fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

impl Reach<'_, '_> {
    /// The addresses of all lanes, in the instruction's own space.
    fn addresses(&self, r: &Registers, address: Address) -> [u64; LANES] {
        match address.base {
            Some((base, true)) => r.read::<u64>(base).map(|base| base.wrapping_add(address.offset)),
            Some((base, false)) => r.read::<u32>(base).map(|base| u64::from(base.wrapping_add(address.offset as u32))),
            None => [address.offset; LANES],
        }
    }

    /// The host's address of bytes that a lane may touch.
    fn place(
        &mut self,
        space: Space,
        address: u64,
        bytes: usize,
        lane: usize,
        touch: Touch,
    ) -> Result<*mut u8, String> {
        let of_lane = |why: String| format!("lane {lane}: {why}");
        if !address.is_multiple_of(bytes as u64) {
            return Err(of_lane(format!("{bytes} bytes at {address:#x}, which is no multiple of it")));
        }
        let offset = address & (SHARED - 1);
        match space {
            Space::Generic if address >= PARAMETERS => self.place(Space::Parameter, offset, bytes, lane, touch),
            Space::Generic if address >= LOCAL => self.place(Space::Local, offset, bytes, lane, touch),
            Space::Generic if address >= SHARED => self.place(Space::Shared, offset, bytes, lane, touch),
            Space::Generic | Space::Global => match self.launch.places.hold(address, bytes as u64) {
                true => Ok(address as *mut u8),
                false => Err(of_lane(format!("{bytes} bytes {}", self.launch.places.describe(address)))),
            },
            Space::Shared => {
                let place = self.shared.place(address, bytes).map_err(of_lane)?;
                self.shared.note(address, bytes, self.warp, touch).map_err(of_lane)?;
                Ok(place)
            }
            Space::Local => {
                let own = self.local.len() * 8 / LANES;
                let all = self.local[lane * own / 8..][..own / 8].as_mut_ptr().cast();
                within(all, own, address, bytes)
                    .ok_or_else(|| of_lane(format!("{bytes} bytes at {address} of {own} of its own")))
            }
            Space::Parameter => {
                let all = self.launch.arguments;
                within(all.as_ptr().cast_mut().cast(), all.len() * 8, address, bytes)
                    .ok_or_else(|| of_lane(format!("{bytes} bytes at {address} of the arguments")))
            }
        }
    }

    /// The same for all lanes, with one look where they lie close together.
    fn places(&mut self, r: &Registers, access: Access, mask: u32, touch: Touch) -> Result<[*mut u8; LANES], String> {
        let (addresses, bytes) = (self.addresses(r, access.address), access.unit * access.count);
        let mut out = [std::ptr::null_mut(); LANES];
        if access.address.space == Space::Global {
            let (mut low, mut high, mut odd) = (u64::MAX, 0, 0);
            for lane in lanes_of(mask) {
                let address = addresses[lane];
                (low, high, odd) = (low.min(address), high.max(address), odd | address);
            }
            if odd % bytes as u64 == 0 && self.launch.places.hold(low, (high - low).saturating_add(bytes as u64)) {
                return Ok(addresses.map(|address| address as *mut u8));
            }
        }
        for lane in lanes_of(mask) {
            out[lane] = self.place(access.address.space, addresses[lane], bytes, lane, touch)?;
        }
        Ok(out)
    }

    pub(super) fn load(&mut self, r: &mut Registers, i: &Operands, access: Access, mask: u32) -> Result<(), String> {
        let places = self.places(r, access, mask, Touch::Read)?;
        for at in 0..access.count {
            let mut out = [0u64; LANES];
            for lane in lanes_of(mask) {
                // SAFETY: `places` looked at these bytes and where they begin.
                out[lane] = unsafe { read(places[lane].add(at * access.unit), access.unit, access.signed) };
            }
            r.write_any(i.to[at], &out, mask);
        }
        Ok(())
    }

    pub(super) fn store(&mut self, r: &Registers, i: &Operands, access: Access, mask: u32) -> Result<(), String> {
        if access.address.space == Space::Parameter {
            return Err("arguments cannot be written".into());
        }
        let places = self.places(r, access, mask, Touch::Write)?;
        for at in 0..access.count {
            let values = r.read_any(i.from[at], i.wide >> at & 1 != 0);
            for lane in lanes_of(mask) {
                // SAFETY: as in `load`.
                unsafe { write(places[lane].add(at * access.unit), access.unit, values[lane]) };
            }
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        r: &mut Registers,
        i: &Operands,
        access: Access,
        change: Change,
        mask: u32,
    ) -> Result<(), String> {
        let (places, wide) = (self.places(r, access, mask, Touch::Atomic)?, access.unit == 8);
        let [a, b] = [0, 1].map(|k| r.read_any(i.from[k], wide));
        let mut out = [0u64; LANES];
        for lane in lanes_of(mask) {
            let new = |old: u64| changed(change, old, a[lane], b[lane]);
            // SAFETY: as in `load`; nobody touches these bytes otherwise than through pointers.
            out[lane] = unsafe {
                if wide {
                    let place = AtomicU64::from_ptr(places[lane].cast());
                    place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(new(old))).unwrap_or_default()
                } else {
                    let place = AtomicU32::from_ptr(places[lane].cast());
                    let update = |old: u32| Some(new(u64::from(old)) as u32);
                    u64::from(place.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update).unwrap_or_default())
                }
            };
        }
        r.write_any(i.to[0], &out, mask);
        Ok(())
    }

    /// Reads what is to be copied now; it arrives when it is waited for, so that nobody can rely on it before.
    pub(super) fn copy_aside(
        &mut self,
        r: &Registers,
        (to, from): (Address, Address),
        bytes: usize,
        some: Option<Source>,
        mask: u32,
        copies: &mut Vec<Copy>,
    ) -> Result<(), String> {
        let (to, from) = (self.addresses(r, to), self.addresses(r, from));
        let some = some.map(|source| *r.read::<u32>(source));
        for lane in lanes_of(mask) {
            let filled = some.map_or(bytes, |some| some[lane] as usize).min(bytes);
            let mut copy = Copy { to: to[lane], bytes: [0; 16], count: bytes, lane: lane as u32 };
            self.shared.place(to[lane], bytes).map_err(|why| format!("lane {lane}: {why}"))?;
            if filled > 0 {
                if from[lane] % bytes as u64 != 0 {
                    return Err(format!("lane {lane}: {bytes} bytes from {:#x}, no multiple of it", from[lane]));
                }
                if !self.launch.places.hold(from[lane], filled as u64) {
                    return Err(format!("lane {lane}: {filled} bytes {}", self.launch.places.describe(from[lane])));
                }
                // SAFETY: these bytes may be touched, as was just seen.
                unsafe { std::ptr::copy_nonoverlapping(from[lane] as *const u8, copy.bytes.as_mut_ptr(), filled) };
            }
            copies.push(copy);
        }
        Ok(())
    }

    pub(super) fn arrive(&mut self, copy: &Copy) -> Result<(), String> {
        let place = self.place(Space::Shared, copy.to, copy.count, copy.lane as usize, Touch::Write)?;
        // SAFETY: these bytes are shared memory of this block.
        unsafe { std::ptr::copy_nonoverlapping(copy.bytes.as_ptr(), place, copy.count) };
        Ok(())
    }
}

fn within(start: *mut u8, size: usize, address: u64, bytes: usize) -> Option<*mut u8> {
    let inside = address.checked_add(bytes as u64).is_some_and(|end| end <= size as u64);
    // SAFETY: so many bytes begin at `start`, and these are among them.
    inside.then(|| unsafe { start.add(address as usize) })
}

/// # Safety
/// That many bytes can be read there, and it is a multiple of their number.
unsafe fn read(place: *const u8, bytes: usize, signed: bool) -> u64 {
    // Volatile: another thread may be writing, as on a GPU.
    // SAFETY: the caller's promise.
    unsafe {
        match (bytes, signed) {
            (1, false) => u64::from(place.read_volatile()),
            (1, true) => place.cast::<i8>().read_volatile() as u64,
            (2, false) => u64::from(place.cast::<u16>().read_volatile()),
            (2, true) => place.cast::<i16>().read_volatile() as u64,
            (4, false) => u64::from(place.cast::<u32>().read_volatile()),
            (4, true) => place.cast::<i32>().read_volatile() as u64,
            _ => place.cast::<u64>().read_volatile(),
        }
    }
}

/// # Safety
/// That many bytes can be written there, and it is a multiple of their number.
unsafe fn write(place: *mut u8, bytes: usize, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => place.write_volatile(value as u8),
            2 => place.cast::<u16>().write_volatile(value as u16),
            4 => place.cast::<u32>().write_volatile(value as u32),
            _ => place.cast::<u64>().write_volatile(value),
        }
    }
}

fn changed(change: Change, old: u64, a: u64, b: u64) -> u64 {
    match change {
        Change::Add => old.wrapping_add(a),
        Change::AddF32 => u64::from((f32::from_bits(old as u32) + f32::from_bits(a as u32)).to_bits()),
        Change::Min => old.min(a),
        Change::Max => old.max(a),
        Change::And => old & a,
        Change::Or => old | a,
        Change::Xor => old ^ a,
        Change::Exchange => a,
        Change::CompareAndSwap => {
            if old == a {
                b
            } else {
                old
            }
        }
        Change::Increase => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
    }
}

/// Eight rows of each matrix from shared memory, spread over the lanes; how many matrices, and whether rows become columns.
pub(super) fn load_matrices(
    r: &mut Registers,
    i: &Operands,
    (count, transposed): (usize, bool),
    warp: u32,
    shared: &mut SharedMemory,
) -> Result<(), String> {
    let addresses = *r.read::<u32>(i.from[0]);
    for matrix in 0..count {
        let mut rows = [[0u16; 8]; 8];
        for (row, to) in rows.iter_mut().enumerate() {
            let (lane, address) = (8 * matrix + row, u64::from(addresses[8 * matrix + row]));
            let of_lane = |why: String| format!("lane {lane}: {why}");
            let place = shared.place(address, 16).map_err(of_lane)?;
            shared.note(address, 16, warp, Touch::Read).map_err(of_lane)?;
            // SAFETY: 16 bytes of shared memory, at a multiple of 16.
            *to = unsafe { place.cast::<[u16; 8]>().read() };
        }
        r.write(i.to[matrix], &spread_matrix(&rows, transposed), !0);
    }
    Ok(())
}
