//! Whether a JPEG has all the data that its header announces.
//!
//! The decoder fills what is missing with something and says nothing. Here the codes of all scans are counted and thrown
//! away (ITU-T T.81, annexes B, F and G); refining scans of progressive pictures are left out, for without them nothing
//! is missing but detail.

use std::ops::Range;

/// Whether data are missing; false where that cannot be told.
pub(crate) fn lacks_data(file: &[u8]) -> bool {
    let mut picture = Picture::default();
    picture.walk(file).is_some_and(|whole| !whole)
}

#[derive(Clone, Copy, Default)]
struct Component {
    id: u8,
    across: usize,
    down: usize,
    /// Whether a scan held its brightness (or colour) at all.
    seen: bool,
}

/// Bits that are looked up at once.
const LOOK: u32 = 10;

/// How many codes there are of each length, and what they stand for, in order.
#[derive(Clone)]
struct Codes {
    counts: [usize; 17],
    symbols: Vec<u8>,
    /// For the next bits: how many a code and the number after it take together, and how many coefficients they make
    /// up; no bits where that is not so simple.
    short: [(u8, u8); 1 << LOOK],
}

impl Default for Codes {
    fn default() -> Self {
        Codes { counts: [0; 17], symbols: Vec::new(), short: [(0, 0); 1 << LOOK] }
    }
}

impl Codes {
    /// Fills the table of short codes.
    fn look_up(&mut self) {
        let (mut code, mut symbols) = (0usize, self.symbols.iter());
        for length in 1..=LOOK {
            for _ in 0..self.counts[length as usize] {
                let Some(&symbol) = symbols.next() else { return };
                let from = code << (LOOK - length);
                let Some(places) = self.short.get_mut(from..from + (1 << (LOOK - length))) else { return };
                places.fill(match (symbol >> 4, symbol & 15) {
                    (15, 0) => (length as u8, 16),
                    (0, 0) => (length as u8, 64),
                    // The end of several blocks.
                    (_, 0) => (0, 0),
                    (zeros, size) => (length as u8 + size, zeros + 1),
                });
                code += 1;
            }
            code <<= 1;
        }
    }
}

#[derive(Default)]
struct Picture {
    width: usize,
    height: usize,
    progressive: bool,
    components: Vec<Component>,
    /// Of the first coefficients and of the others, four each.
    codes: [[Codes; 4]; 2],
    restart: usize,
}

impl Picture {
    /// Whether all data are there; `None` where the file is of no kind that is known here.
    fn walk(&mut self, file: &[u8]) -> Option<bool> {
        let mut at = 2;
        loop {
            // A marker, perhaps after bytes that fill.
            while *file.get(at)? != 0xff || matches!(*file.get(at + 1)?, 0 | 0xff | 0xd0..=0xd7) {
                at += 1;
            }
            let marker = file[at + 1];
            at += 2;
            if marker == 0xd9 {
                return (!self.components.is_empty()).then(|| self.components.iter().all(|c| c.seen));
            }
            let length = usize::from(u16::from_be_bytes([*file.get(at)?, *file.get(at + 1)?]));
            let segment = file.get(at + 2..at + length)?;
            at += length;
            match marker {
                0xc4 => self.tables(segment)?,
                0xc0..=0xc2 => self.frame(marker, segment)?,
                // Lossless, hierarchical or arithmetic.
                0xc3 | 0xc5..=0xcf => return None,
                0xdd => self.restart = usize::from(u16::from_be_bytes([*segment.first()?, *segment.get(1)?])),
                0xda => {
                    let mut bits = Bits { data: file, at, waiting: 0, left: 0 };
                    match self.scan(segment, &mut bits)? {
                        true => at = bits.at,
                        false => return Some(false),
                    }
                }
                _ => {}
            }
        }
    }

    fn tables(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((&head, rest)) = segment.split_first() {
            let mut codes = Codes::default();
            for (count, &stored) in codes.counts[1..].iter_mut().zip(rest.get(..16)?) {
                *count = usize::from(stored);
            }
            let symbols: usize = codes.counts.iter().sum();
            codes.symbols = rest.get(16..16 + symbols)?.to_vec();
            codes.look_up();
            *self.codes.get_mut(usize::from(head >> 4))?.get_mut(usize::from(head & 15))? = codes;
            segment = &rest[16 + symbols..];
        }
        Some(())
    }

    fn frame(&mut self, marker: u8, segment: &[u8]) -> Option<()> {
        let word = |at: usize| Some(usize::from(u16::from_be_bytes([*segment.get(at)?, *segment.get(at + 1)?])));
        (self.height, self.width, self.progressive) = (word(1)?, word(3)?, marker == 0xc2);
        let components = segment.get(6..6 + 3 * usize::from(*segment.get(5)?))?.chunks_exact(3);
        self.components = components
            .map(|c| Component { id: c[0], across: usize::from(c[1] >> 4), down: usize::from(c[1] & 15), seen: false })
            .collect();
        let sound = |c: &Component| (1..=4).contains(&c.across) && (1..=4).contains(&c.down);
        self.components.iter().all(sound).then_some(())
    }

    /// Walks through a scan's data: whether they suffice.
    fn scan(&mut self, segment: &[u8], bits: &mut Bits<'_>) -> Option<bool> {
        let count = usize::from(*segment.first()?);
        let [first, last, steps] = *segment.get(1 + 2 * count..4 + 2 * count)?.first_chunk()?;
        let (first, last) = (usize::from(first), usize::from(last).min(63));
        let mut chosen = Vec::new();
        for pair in segment[1..].chunks_exact(2).take(count) {
            let number = self.components.iter().position(|c| c.id == pair[0])?;
            self.components[number].seen |= first == 0;
            let (of_first, of_others) = (usize::from(pair[1] >> 4), usize::from(pair[1] & 15));
            chosen.push((number, of_first.min(3), of_others.min(3)));
        }
        if steps >> 4 > 0 {
            return Some(true);
        }
        let most = |of: fn(&Component) -> usize| self.components.iter().map(of).max().unwrap_or(1);
        let (across, down) = (most(|c| c.across), most(|c| c.down));
        let units = match chosen.as_slice() {
            // A component by itself is stored without what only fills a unit of several.
            [(number, ..)] => {
                let c = self.components[*number];
                let blocks = |side: usize, part: usize, whole: usize| (side * part).div_ceil(whole).div_ceil(8);
                blocks(self.width, c.across, across) * blocks(self.height, c.down, down)
            }
            _ => self.width.div_ceil(8 * across) * self.height.div_ceil(8 * down),
        };
        let single = chosen.len() == 1;
        let mut skip = 0;
        for unit in 0..units {
            if self.restart > 0 && unit > 0 && unit % self.restart == 0 {
                skip = 0;
                if !bits.restart() {
                    return Some(false);
                }
            }
            for (number, of_first, of_others) in &chosen {
                let c = self.components[*number];
                for _ in 0..if single { 1 } else { c.across * c.down } {
                    let codes = (&self.codes[0][*of_first], &self.codes[1][*of_others]);
                    if block(bits, codes, first..last + 1, self.progressive, &mut skip).is_none() {
                        return Some(false);
                    }
                }
            }
        }
        Some(true)
    }
}

/// Walks over one block; `None` where its data end.
fn block(
    bits: &mut Bits<'_>,
    (of_first, of_others): (&Codes, &Codes),
    coefficients: Range<usize>,
    progressive: bool,
    skip: &mut u32,
) -> Option<()> {
    let mut at = coefficients.start;
    if at == 0 {
        if bits.short(of_first).is_none() {
            let size = bits.symbol(of_first)?;
            bits.take(u32::from(size & 15))?;
        }
        at = 1;
        if progressive {
            return Some(());
        }
    }
    if *skip > 0 {
        *skip -= 1;
        return Some(());
    }
    while at < coefficients.end {
        if let Some(coefficients) = bits.short(of_others) {
            at += usize::from(coefficients);
            continue;
        }
        let symbol = bits.symbol(of_others)?;
        let (zeros, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        match (zeros, size) {
            (15, 0) => at += 16,
            (run, 0) => {
                // The end of this block and, in a progressive scan, of some more.
                if progressive && run > 0 {
                    *skip = (1 << run) - 1 + bits.take(run)?;
                }
                return Some(());
            }
            _ => {
                bits.take(size)?;
                at += zeros as usize + 1;
            }
        }
    }
    Some(())
}

/// The bits of a scan, up to the next marker.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// Bits that were read, the next one highest, zeros behind them.
    waiting: u64,
    left: u32,
}

impl Bits<'_> {
    /// Reads on while there is room and no marker.
    #[inline]
    fn fill(&mut self) {
        while self.left <= 56 {
            let Some(&byte) = self.data.get(self.at) else { return };
            if byte == 0xff {
                // Data have a zero after it, a marker has not.
                if self.data.get(self.at + 1) != Some(&0) {
                    return;
                }
                self.at += 1;
            }
            self.at += 1;
            self.waiting |= u64::from(byte) << (56 - self.left);
            self.left += 8;
        }
    }

    /// Takes so many bits, at most 32.
    #[inline]
    fn take(&mut self, count: u32) -> Option<u32> {
        if self.left < count {
            self.fill();
            if self.left < count {
                return None;
            }
        }
        // In two steps, for a shift by all 64 is none.
        let taken = (self.waiting >> 1 >> (63 - count)) as u32;
        self.waiting <<= count;
        self.left -= count;
        Some(taken)
    }

    /// Walks over a short code and the number after it: how many coefficients they make up.
    #[inline]
    fn short(&mut self, codes: &Codes) -> Option<u8> {
        if self.left < 32 {
            self.fill();
        }
        let (bits, coefficients) = codes.short[(self.waiting >> (64 - LOOK)) as usize];
        if bits == 0 || u32::from(bits) > self.left {
            return None;
        }
        self.waiting <<= bits;
        self.left -= u32::from(bits);
        Some(coefficients)
    }

    /// What the next code stands for.
    fn symbol(&mut self, codes: &Codes) -> Option<u8> {
        let (mut code, mut first, mut before) = (0usize, 0usize, 0usize);
        for &count in &codes.counts[1..] {
            code |= self.take(1)? as usize;
            if code < first + count {
                return codes.symbols.get(before + code.checked_sub(first)?).copied();
            }
            before += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }

    /// Goes on behind a restart marker.
    fn restart(&mut self) -> bool {
        self.fill();
        // Less than a byte may be left, to fill the last one.
        let here = self.left < 8 && matches!(self.data.get(self.at..self.at + 2), Some([0xff, 0xd0..=0xd7]));
        (self.waiting, self.left) = (0, 0);
        self.at += 2;
        here
    }
}
