//! Gradients that go to other GPUs while the backward pass is still at work.
//!
//! The gradients lie in the order of the layers, so they are complete from the end on. They are cut into buckets; as soon as
//! the last pass with a gradient in a bucket has been put into its stream, the bucket's sum follows it in a stream of its own.
//! Slopes are those of the mean over the batch of all GPUs, so a plain sum of gradients is all there is to do.

use crate::CudaError;
use crate::arena::{Arena, Region};
use crate::device::Device;
use crate::nccl::Communicator;
use crate::parameters::ParameterBuffers;
use crate::passes::Others;
use crate::stream::{CudaEvent, CudaStream, SideStream};
use std::ops::Range;

/// Gradients of a bucket, at least: 16 MiB. Fewer take as long as it takes to begin a sum, more leave less to overlap.
const BUCKET: usize = 4 << 20;

/// Gradients that are summed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bucket {
    range: Range<usize>,
    /// The pass after which all of them are there.
    after: usize,
}

/// What sums a network's gradients over several GPUs.
pub(crate) struct Exchange {
    communicator: Communicator,
    buckets: Vec<Bucket>,
    stream: CudaStream,
    ready: CudaEvent,
    done: CudaEvent,
    /// Whether the running statistics are the same on all anyway.
    sync_norm: bool,
}

impl Others for Exchange {
    /// In the stream of the gradients' sums: the sums of a communicator have one order, which is the same on all GPUs.
    fn sum(&self, arena: &Arena, region: Region, count: usize, main: &CudaStream) -> Result<(), CudaError> {
        self.follow(main)?;
        // SAFETY: the region has so many numbers and lives as long as the network.
        unsafe { self.communicator.sum_doubles(arena.inside(region, 0), count, &self.stream)? };
        self.join(main)
    }
}

impl Exchange {
    /// For passes that take the gradients of these parameters, of which there are `count`.
    pub(crate) fn new(
        device: &Device,
        communicator: Communicator,
        passes: &[Vec<Range<usize>>],
        count: usize,
        sync_norm: bool,
    ) -> Result<Self, CudaError> {
        Ok(Exchange {
            communicator,
            buckets: buckets(passes, count, BUCKET),
            stream: CudaStream::new(device)?,
            ready: CudaEvent::new(device)?,
            done: CudaEvent::new(device)?,
            sync_norm,
        })
    }

    /// Begins with the buckets that are complete once a pass, counted from the network's first, is in its stream.
    pub(crate) fn begin_after(
        &self,
        pass: usize,
        main: &CudaStream,
        side: Option<&SideStream>,
        parameters: &ParameterBuffers,
    ) -> Result<(), CudaError> {
        // The last one goes with the statistics.
        let (Some(last), complete) = (self.buckets.last(), self.buckets.iter().filter(|bucket| bucket.after == pass))
        else {
            return Ok(());
        };
        for bucket in complete.filter(|bucket| *bucket != last) {
            match side {
                // After both: the side stream first follows the main one, and with it belongs to what is captured.
                Some(side) => self.follow(side.fork_from(main)?)?,
                None => self.follow(main)?,
            }
            self.sum(bucket, parameters)?;
        }
        Ok(())
    }

    /// The last bucket and the running statistics; what is put into the main stream from now on waits for all sums.
    pub(crate) fn finish(&self, main: &CudaStream, parameters: &ParameterBuffers) -> Result<(), CudaError> {
        self.follow(main)?;
        self.communicator.together(|| {
            self.buckets.last().map_or(Ok(()), |last| self.sum(last, parameters))?;
            self.statistics(parameters)
        })?;
        self.join(main)
    }

    /// Everything at once, where there was no backward pass to run beside.
    pub(crate) fn all(&self, main: &CudaStream, parameters: &ParameterBuffers) -> Result<(), CudaError> {
        self.follow(main)?;
        // The same sums in the same order as on the others.
        let (last, others) = self.buckets.split_last().map_or((None, &[][..]), |(last, others)| (Some(last), others));
        others.iter().try_for_each(|bucket| self.sum(bucket, parameters))?;
        self.communicator.together(|| {
            last.map_or(Ok(()), |last| self.sum(last, parameters))?;
            self.statistics(parameters)
        })?;
        self.join(main)
    }

    fn follow(&self, other: &CudaStream) -> Result<(), CudaError> {
        other.record(&self.ready)?;
        self.stream.wait_for(&self.ready)
    }

    fn join(&self, main: &CudaStream) -> Result<(), CudaError> {
        self.stream.record(&self.done)?;
        main.wait_for(&self.done)
    }

    fn sum(&self, bucket: &Bucket, parameters: &ParameterBuffers) -> Result<(), CudaError> {
        let at = parameters.grad(bucket.range.start);
        // SAFETY: the buckets lie in the gradients, which live as long as the network.
        unsafe { self.communicator.reduce(at, bucket.range.len(), false, &self.stream) }
    }

    fn statistics(&self, parameters: &ParameterBuffers) -> Result<(), CudaError> {
        match parameters.stat_count() {
            _ if self.sync_norm => Ok(()),
            0 => Ok(()),
            // SAFETY: there are so many, and they live as long as the network.
            count => unsafe { self.communicator.reduce(parameters.stat(0), count, true, &self.stream) },
        }
    }
}

/// The last parameters, at least so many, and the pass after which all of their gradients are there; none where these are all.
pub(crate) fn last_parameters(
    passes: &[Vec<Range<usize>>],
    count: usize,
    least: usize,
) -> Option<(Range<usize>, usize)> {
    let first = buckets(passes, count, least).into_iter().next()?;
    (first.range.start > 0).then_some((first.range, first.after))
}

/// Cuts the parameters into buckets from the end on, each of at least `least` of them but for the last.
fn buckets(passes: &[Vec<Range<usize>>], count: usize, least: usize) -> Vec<Bucket> {
    let mut ranges: Vec<(Range<usize>, usize)> = Vec::new();
    for (pass, own) in passes.iter().enumerate() {
        ranges.extend(own.iter().filter(|range| !range.is_empty()).map(|range| (range.clone(), pass)));
    }
    ranges.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let (mut buckets, mut end, mut after) = (Vec::new(), count, usize::MAX);
    for (range, pass) in ranges {
        after = after.min(pass);
        if end - range.start >= least || range.start == 0 {
            buckets.push(Bucket { range: range.start..end, after });
            (end, after) = (range.start, usize::MAX);
        }
    }
    if end > 0 {
        buckets.push(Bucket { range: 0..end, after: 0 });
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(range: Range<usize>, after: usize) -> Bucket {
        Bucket { range, after }
    }

    #[test]
    fn buckets_cover_everything_and_wait_for_all_that_is_in_them() {
        // A weight, its norm in the pass after, a block whose shortcut comes last in the list of passes, a last layer.
        let passes = vec![vec![0..10], vec![10..12, 12..14], vec![14..30], vec![40..44], vec![30..40], vec![44..50]];
        assert_eq!(buckets(&passes, 50, 1000), [bucket(0..50, 0)]);
        assert_eq!(
            buckets(&passes, 50, 8),
            [bucket(40..50, 3), bucket(30..40, 4), bucket(14..30, 2), bucket(0..14, 0)]
        );
        for least in 1..60 {
            let cut = buckets(&passes, 50, least);
            assert_eq!((cut[0].range.end, cut[cut.len() - 1].range.start), (50, 0));
            assert!(cut.windows(2).all(|pair| pair[0].range.start == pair[1].range.end));
            for bucket in &cut {
                let inside = |range: &Range<usize>| range.start >= bucket.range.start && range.end <= bucket.range.end;
                let last = passes.iter().position(|own| own.iter().any(inside));
                assert!(last.is_none_or(|pass| bucket.after <= pass), "{least}: {bucket:?}");
            }
        }
        assert!(buckets(&[], 0, 8).is_empty());
    }
}
