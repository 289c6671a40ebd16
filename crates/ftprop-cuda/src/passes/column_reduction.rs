//! How sums over a matrix's columns are launched, as column_reduction.cuh computes them.

use crate::kernel::LaunchConfig;

/// The threads of a block stand `threads_x` across, each with a vector of columns, and `threads_y` down over rows.
#[derive(Clone, Copy)]
pub(super) struct ColumnReduction {
    threads_x: usize,
    threads_y: usize,
    /// Blocks across all columns.
    chunks: usize,
}

impl ColumnReduction {
    const THREADS: u32 = 512;
    const MAX_BLOCKS: usize = 264;
    /// The most rows that a thread keeps while its block waits for others, and the most where it keeps two numbers of each.
    pub(super) const MAX_ROWS_PER_THREAD: usize = 16;
    pub(super) const MAX_PAIRED_ROWS: usize = 8;

    /// Threads across where there is much to read: with vectors of 16 bytes two whole lines of the cache.
    const WIDE: usize = 16;

    /// For so many rows of a full batch. Few channels a block mean few blocks whose sums have to be added up, many mean
    /// longer reads; where there is little to read, the first counts.
    pub(super) fn new(channels: usize, vector_width: usize, rows: usize) -> Self {
        let vectors = channels / vector_width;
        let threads_x = if rows * channels <= 1 << 22 {
            16 / vector_width
        } else {
            vectors.div_ceil(vectors.div_ceil(ColumnReduction::WIDE))
        };
        ColumnReduction::across(vectors, threads_x)
    }

    /// The same for blocks that wait for each other: each reads the sums of all that have its channels.
    pub(super) fn waiting(channels: usize, vector_width: usize, rows: usize) -> Self {
        let span = if rows * channels <= 1 << 22 { 16 } else { 32 };
        ColumnReduction::across(channels / vector_width, span / vector_width)
    }

    fn across(vectors: usize, threads_x: usize) -> Self {
        let threads_y = ColumnReduction::THREADS as usize / threads_x;
        ColumnReduction { threads_x, threads_y, chunks: vectors.div_ceil(threads_x) }
    }

    pub(super) fn threads_x(&self) -> usize {
        self.threads_x
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    pub(super) fn launch_config(&self, rows: usize) -> LaunchConfig {
        let most = (ColumnReduction::MAX_BLOCKS / self.chunks).max(1);
        self.blocks(rows.div_ceil(self.threads_y * 4).clamp(1, most))
    }

    fn blocks(&self, down: usize) -> LaunchConfig {
        LaunchConfig { grid: (down as u32, self.chunks as u32, 1), threads: ColumnReduction::THREADS, shared: 0 }
    }

    /// At most so many blocks, which all run at once, and how many rows each thread then has; `None` where these are more than
    /// `most_rows`.
    pub(super) fn cooperative(&self, rows: usize, blocks: usize, most_rows: usize) -> Option<(LaunchConfig, usize)> {
        let (turns, most) = (rows.div_ceil(self.threads_y), blocks.min(ColumnReduction::MAX_BLOCKS) / self.chunks);
        let rows_per_thread = (most > 0).then(|| turns.div_ceil(most))?;
        (rows_per_thread <= most_rows).then(|| (self.blocks(turns.div_ceil(rows_per_thread)), rows_per_thread))
    }

    /// Numbers that the blocks' own sums need.
    pub(super) fn partial_len(channels: usize, sums: usize) -> usize {
        ColumnReduction::MAX_BLOCKS * sums * channels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::vector_width;

    #[test]
    fn blocks_that_wait_for_each_other_fit_on_the_gpu_and_take_every_row() {
        const MOST: usize = ColumnReduction::MAX_BLOCKS;
        for (channels, rows) in [(64, 64 * 256), (128, 64 * 36), (512, 64), (10, 7), (48, 64 * 1024), (2112, 3)] {
            let columns = ColumnReduction::new(channels, vector_width(&[channels]), rows);
            assert!(columns.threads_x * columns.chunks * vector_width(&[channels]) >= channels);
            for blocks in [1000, 132, 60, 8, 0] {
                let Some((config, kept)) = columns.cooperative(rows, blocks, 8) else {
                    let many = rows > 8 * columns.threads_y * blocks / columns.chunks;
                    assert!(columns.chunks > blocks.min(MOST) || many);
                    continue;
                };
                let (down, across, _) = config.grid;
                assert!((down * across) as usize <= blocks.min(MOST) && kept <= 8);
                assert!(down as usize * kept * columns.threads_y >= rows);
            }
        }
        // The largest that waits on a large GPU, and the first that does not.
        let kept = |columns: ColumnReduction, rows| columns.cooperative(rows, 132, 8).map(|(_, kept)| kept);
        assert_eq!(kept(ColumnReduction::new(64, 4, 64 * 256), 64 * 256), Some(4));
        assert_eq!(kept(ColumnReduction::new(64, 4, 256 * 256), 256 * 256), None);
        // With wide vectors twice as much is kept, and more where one number of each is enough.
        assert_eq!(kept(ColumnReduction::waiting(256, 8, 256 * 64), 256 * 64), Some(8));
        let (most, rows) = (ColumnReduction::MAX_ROWS_PER_THREAD, 256 * 256);
        let two = ColumnReduction::waiting(128, 8, rows).cooperative(rows, 132, most);
        assert!(two.is_some_and(|(_, kept)| kept > ColumnReduction::MAX_PAIRED_ROWS));
    }
}
