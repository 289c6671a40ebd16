//! Norms by blocks that wait for each other, of maps larger than the suite has.

use super::*;

/// Norms of maps that only wide vectors keep while blocks wait for each other, one way or both, beside those of blocks that do
/// not wait; and once more, which must give the same bits.
pub(super) fn wide_norms(device: &Device) -> Result<Check, EngineError> {
    let plain = |out, stride| conv(out, [3, 3], stride, 1, 1, Some(false));
    let around = |out| LayerSpec::Residual { main: vec![act(), plain(out, 1), norm()], shortcut: vec![] };
    let layers = [plain(128, 1), norm(), around(128), around(128), act(), plain(256, 2), norm(), around(256), fc(None)];
    let input = Shape { height: 16, width: 16, channels: 8 };
    let config = config(&layers, Activation::Relu, input, 10, &OptimizerSpec::adam(1e-3)?)?;
    let config = NetworkConfig { batch: 256, precision: Precision::Bf16, ..config };
    let random = Stream::numbered(5);
    let images: Vec<f32> = (0..config.batch * input.len()).map(|i| random.uniform(i as u64) - 0.5).collect();
    let labels: Vec<u32> = (0..config.batch).map(|i| random.below((1 << 40) | i as u64, 10) as u32).collect();
    let gradients = |paths| {
        let mut network = CudaNetwork::with_paths(device, config.clone(), paths)?;
        network.initialise(1)?;
        network.learn(&images, &labels, &Step { seed: 1, number: 0, progress: 0.0 })?;
        Ok::<_, EngineError>(network.grads()?)
    };
    let [waiting, again, apart] = [Paths::Cooperative, Paths::Cooperative, Paths::Apart].map(gradients);
    let (waiting, same) = (waiting?, again?);
    let error = if waiting == same { distance(&waiting, &apart?) } else { f64::INFINITY };
    Ok(Check { name: "bf16: norms of large maps by blocks that wait".into(), error, allowed: 5e-2 })
}
