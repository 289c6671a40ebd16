//! How passes over whole maps are launched that take no sums: a thread has a vector of channels and goes over rows.

use crate::kernel::LaunchConfig;

/// The threads of a block stand `threads_x` across, each with a vector of channels, and the others over rows.
#[derive(Clone, Copy)]
pub(super) struct MapLaunch {
    threads_x: usize,
    /// Blocks across all channels.
    chunks: usize,
    rows_at_once: usize,
}

impl MapLaunch {
    const THREADS: usize = 256;
    /// So many that each thread has several rows, since what it knows about its channels it has to read first.
    const MAX_BLOCKS: usize = 4 * 132;

    /// For so many vectors a row and rows of a full batch. Where rows are many, a thread reads several before it uses the
    /// first, at most `most`.
    pub(super) fn new(vectors: usize, rows: usize, most: usize) -> Self {
        let threads_x = vectors.min(MapLaunch::THREADS);
        let each = rows * vectors / (MapLaunch::MAX_BLOCKS * MapLaunch::THREADS);
        let rows_at_once = [4, 2].into_iter().find(|&rows| rows <= most && rows <= each).unwrap_or(1);
        MapLaunch { threads_x, chunks: vectors.div_ceil(threads_x), rows_at_once }
    }

    pub(super) fn threads_x(&self) -> usize {
        self.threads_x
    }

    pub(super) fn rows_at_once(&self) -> usize {
        self.rows_at_once
    }

    pub(super) fn launch_config(&self, rows: usize) -> LaunchConfig {
        let block_rows = MapLaunch::THREADS / self.threads_x * self.rows_at_once;
        // Where little is to be done, blocks are as many as there can be.
        let most = if self.rows_at_once > 1 { MapLaunch::MAX_BLOCKS } else { 4096 };
        let down = rows.div_ceil(block_rows).clamp(1, (most / self.chunks).max(1));
        LaunchConfig { grid: (down as u32, self.chunks as u32, 1), threads: MapLaunch::THREADS as u32, shared: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_channel_and_long_maps_are_read_several_rows_at_a_time() {
        for (vectors, rows, most, expected) in [
            (8, 256 * 56 * 56, 4, 4),
            (8, 256 * 56 * 56, 2, 2),
            (64, 256 * 49, 4, 4),
            (16, 64 * 64, 4, 1),
            (300, 7, 4, 1),
        ] {
            let map = MapLaunch::new(vectors, rows, most);
            assert_eq!(map.rows_at_once(), expected, "{vectors} {rows}");
            assert!(map.threads_x() * map.chunks >= vectors);
            let config = map.launch_config(rows);
            assert!(config.grid.0 >= 1 && config.grid.1 as usize == map.chunks);
        }
    }
}
