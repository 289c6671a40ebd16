//! Layers that are learned by the kernel of their gradient, which the suite's are too small for.

use super::*;

/// Steps of such a layer beside the same with a bound on the gradient's norm that none reaches: then the whole gradient has to be
/// there before the first weight is learned.
pub(super) fn learned_products(device: &Device, precision: Precision) -> Result<Check, EngineError> {
    let (split, normalize, problem) = problem(precision)?;
    let data = resident(device, &split, &normalize)?;
    // Linear, and with nothing to make much of a small difference.
    let layers = [fc(Some(2048)), fc(Some(1024)), fc(None)];
    let optimizer = OptimizerSpec::adam(1e-3)?.with("eps", Setting::Number(1e-2))?;
    let config = config(&layers, Activation::Sign, problem.graph.input(), problem.graph.classes(), &optimizer)?;
    let config = NetworkConfig { batch: problem.batch, precision, ..config };
    let moved = |clip| {
        let learning = Learning { clip, ..config.learning.clone() };
        let mut network = CudaNetwork::new(device, NetworkConfig { learning, ..config.clone() })?;
        network.initialise(1)?;
        how_far(&mut network, &data, config.batch)
    };
    let error = distance(&moved(None)?, &moved(Some(1e30))?);
    let name = format!("{precision}: layers that are learned with their gradient");
    Ok(Check { name, error, allowed: if precision == Precision::Bf16 { 3e-2 } else { 3e-3 } })
}
