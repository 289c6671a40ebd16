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
    // More examples than the kernel multiplies at a time.
    let config = NetworkConfig { batch: 40, precision, ..config };
    let error = from_whole_gradients(device, &data, &config)?;
    let name = format!("{precision}: layers that are learned with their gradient");
    Ok(Check { name, error, allowed: if precision == Precision::Bf16 { 3e-2 } else { 3e-3 } })
}

/// The same where a target rule asks what the layers above would do with other outputs: what is kept of those layers is then written
/// again on the way back, so that none of them may be learned before it has ended.
pub(super) fn learned_above(device: &Device, precision: Precision) -> Result<Check, EngineError> {
    let (split, normalize, problem) = problem(precision)?;
    let data = resident(device, &split, &normalize)?;
    let sign = |rule: &str| -> Result<LayerSpec, EngineError> {
        let target_rule = Some(rule.parse()?);
        Ok(LayerSpec::Act { activation: None, layer_loss: None, target_rule, qrelu_form: None })
    };
    let layers = [fc(Some(2048)), sign("verified:0.3")?, fc(Some(1024)), sign("gradient_sign")?, fc(None)];
    let optimizer = OptimizerSpec::adam(1e-3)?;
    let config = config(&layers, Activation::Sign, problem.graph.input(), problem.graph.classes(), &optimizer)?;
    let error = from_whole_gradients(device, &data, &NetworkConfig { batch: problem.batch, precision, ..config })?;
    let name = format!("{precision}: layers above of which more is asked");
    Ok(Check { name, error, allowed: 0.0 })
}

/// How far an epoch is from one in which the whole gradient has to be there before the first weight is learned.
fn from_whole_gradients(device: &Device, data: &ResidentData, config: &NetworkConfig) -> Result<f64, EngineError> {
    let moved = |clip| {
        let learning = Learning { clip, ..config.learning.clone() };
        let mut network = CudaNetwork::new(device, NetworkConfig { learning, ..config.clone() })?;
        network.initialise(1)?;
        how_far(&mut network, data, config.batch)
    };
    Ok(distance(&moved(None)?, &moved(Some(1e30))?))
}
