//! What each pass has to move and to multiply, by the kernels that its size asks for.

use super::epilogue_source::{position_bytes, windows_and_places_together};
use super::threads::Threads;
use super::{CompileOptions, gemms};
use crate::gemm::{Gemm, Mode};
use crate::plan::{Affine, Epilogue, FusedPass, FusionPlan, Norm, PlannedTensor};
use crate::work::{PassWork, Work};

/// Of all passes, in order, for a full batch.
pub(crate) fn of_plan(plan: &FusionPlan, options: &CompileOptions) -> Vec<PassWork> {
    let (n, kept) = (options.batch, options.precision.activation_bytes());
    let mut products = gemms(plan, options.precision).into_iter();
    let len = |tensor: usize| n * plan.tensors[tensor].shape.len() * kept;
    let moving = |bytes| Work { bytes, operations: 0 };
    let of = |pass: &FusedPass| match pass {
        FusedPass::Product(_) => {
            let three = products.next().expect("three products each");
            let [forward, back, gradients] =
                three.map(|gemm| gemm.map_or(Work::default(), |gemm| of_product(&gemm, n)));
            PassWork { forward, back, gradients }
        }
        FusedPass::Epilogue(f) => EpilogueBytes::new(f, &plan.tensors, options).work(),
        FusedPass::AveragePool(a) => {
            let needed = plan.tensors[a.x].needs_slopes;
            let read_again = if a.adds { len(a.x) } else { 0 };
            let back = if needed { len(a.out) + len(a.x) + read_again } else { 0 };
            PassWork { forward: moving(len(a.x) + len(a.out)), back: moving(back), ..PassWork::default() }
        }
        // Whatever else the rule looks at.
        FusedPass::Targets(t) => {
            let back = 3 * len(t.z) + if t.adds { len(t.z) } else { 0 };
            PassWork { forward: moving(len(t.z) + len(t.out)), back: moving(back), ..PassWork::default() }
        }
    };
    plan.passes.iter().map(of).collect()
}

/// Of a product of n examples.
fn of_product(gemm: &Gemm, n: usize) -> Work {
    let (g, kept) = (&gemm.geometry, gemm.precision.activation_bytes());
    let x = n * g.height * g.width * gemm.stored * kept;
    let y = n * g.out_len() * if gemm.f32_output { 4 } else { kept };
    let weights = g.weight_len();
    let bytes = match gemm.mode {
        Mode::Forward => x + weights * kept + y,
        // What is there already is read too.
        Mode::Input => y + weights * kept + if gemm.adds { 2 * x } else { x },
        Mode::Weights => x + y + weights * 4,
    };
    Work { bytes, operations: 2 * n * g.out_len() * g.fan_in() }
}

/// The bytes of an epilogue's tensors, and what it does with them.
struct EpilogueBytes<'a> {
    f: &'a Epilogue,
    threads: Threads,
    /// Of its input and of its output.
    map: usize,
    out: usize,
    /// Of the places of a pool's largest values.
    places: usize,
    /// Whether slopes come down to it, and go on to its two inputs.
    has_slopes: bool,
    needs: [bool; 2],
}

impl<'a> EpilogueBytes<'a> {
    fn new(f: &'a Epilogue, tensors: &[PlannedTensor], options: &CompileOptions) -> Self {
        let (n, kept) = (options.batch, options.precision.activation_bytes());
        let out = n * tensors[f.out].shape.len();
        let other = f.residual.as_ref().is_some_and(|(tensor, _)| tensors[*tensor].needs_slopes);
        EpilogueBytes {
            f,
            threads: Threads::new(f, tensors, options),
            map: n * tensors[f.y].shape.len() * kept,
            out: out * kept,
            places: f.pool.map_or(0, |pool| out * position_bytes(pool.kernel)),
            has_slopes: tensors[f.out].needs_slopes,
            needs: [tensors[f.y].needs_slopes, other],
        }
    }

    fn work(&self) -> PassWork {
        let back = if self.has_slopes { self.back() } else { 0 };
        let moving = |bytes| Work { bytes, operations: 0 };
        PassWork { forward: moving(self.forward()), back: moving(back), ..PassWork::default() }
    }

    fn norms(&self) -> impl Iterator<Item = &Norm> {
        let first = match &self.f.affine {
            Affine::Norm(norm) => Some(norm),
            Affine::Identity | Affine::Bias(_) => None,
        };
        first.into_iter().chain(self.f.residual.as_ref().and_then(|(_, norm)| norm.as_ref()))
    }

    /// Whether windows are gone through on the way back, and have slopes of their own.
    fn keeps_largest(&self) -> bool {
        self.threads.sharing.by_windows && self.f.has_slopes_by_windows()
    }

    fn forward(&self) -> usize {
        // Blocks that wait for each other keep what they read for the statistics.
        let statistics = match self.threads.cooperative {
            Some(_) => 0,
            None => self.norms().filter(|norm| !norm.is_fixed()).count() * self.map,
        };
        let inputs = if self.f.residual.is_some() { 2 * self.map } else { self.map };
        let outputs = if self.f.branch.is_some() { 2 * self.out } else { self.out };
        statistics + inputs + outputs + self.places + if self.keeps_largest() { self.out } else { 0 }
    }

    /// Slopes written to one of the inputs, which may have some already.
    fn slopes(&self, input: usize) -> usize {
        let adds = [self.f.adds, self.f.adds_residual][input];
        if self.needs[input] { self.map * (1 + usize::from(adds)) } else { 0 }
    }

    /// What slopes by the pre-activation follow from.
    fn read(&self) -> usize {
        let two = match (&self.f.residual, self.f.branch) {
            (None, _) => false,
            (Some((_, Some(_))), _) | (Some(_), None) => true,
            // The output, which is read, is the sum already.
            (Some((_, None)), Some(_)) => false,
        };
        let branch = if self.f.branch.is_some() { 2 * self.out } else { 0 };
        self.map * (1 + usize::from(two)) + self.out + branch + self.places
    }

    fn back(&self) -> usize {
        let (f, sharing) = (self.f, &self.threads.sharing);
        let normed = self.norms().next().is_some();
        let slopes = self.slopes(0) + self.slopes(1);
        if sharing.cooperative_back {
            return self.read() + slopes;
        }
        if self.keeps_largest() {
            // The slopes by the windows' largest values take the place of those by the output.
            return match windows_and_places_together(f) {
                true => 2 * self.out + self.places + self.slopes(0),
                false => 3 * self.out + self.second_by_windows(normed),
            };
        }
        let first = self.read();
        match (normed, f.branch) {
            (false, _) => first + slopes,
            (true, _) if !self.needs[0] && !self.needs[1] => first,
            // What the first kernel writes the second reads, with what the norm saw.
            (true, _) if sharing.keeps_dz => first + self.map + 2 * self.map + self.slopes(0),
            (true, Some(_)) => first + self.out + self.out + self.norms().count() * self.map + slopes,
            (true, None) => 2 * first + slopes,
        }
    }

    /// The second kernel of a pool whose windows have slopes of their own.
    fn second_by_windows(&self, normed: bool) -> usize {
        if !self.needs[0] {
            return 0;
        }
        self.out + self.places + if normed { self.map } else { 0 } + self.slopes(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Role;
    use crate::precision::Precision;
    use crate::scalars::ScalarLayout;
    use ftprop_nn::{Activation, Defaults, Graph, LayerLoss, Learning, OptimizerSpec, Shape, presets};

    /// A preset's plan, and its passes' work on an H200.
    fn work(
        name: &str,
        (side, classes): (usize, usize),
        batch: usize,
        precision: Precision,
    ) -> (FusionPlan, Vec<PassWork>) {
        let input = Shape { height: side, width: side, channels: 3 };
        let layers = presets::layers(name, input, &[]).unwrap();
        let graph =
            Graph::resolve(&layers, &Defaults::new(Activation::Sign, LayerLoss::soft_hinge()), input, classes).unwrap();
        let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3).unwrap()).unwrap();
        let (plan, scalars) = (FusionPlan::new(&graph, Role::Pupil(&[])), ScalarLayout::new(&graph, &learning));
        let (rows_for, cooperative_blocks) = (batch, 132);
        let options =
            CompileOptions { precision, batch, rows_for, alone: true, sync_norm: false, cooperative_blocks, scalars };
        let all = of_plan(&plan, &options);
        (plan, all)
    }

    #[test]
    fn a_convolution_moves_its_tensors_once_and_multiplies_for_each_output() {
        let (plan, all) = work("convnet4", (32, 10), 64, Precision::Tf32);
        // 3 channels stored as 4, 32 filters of 5×5, 34×34 outputs.
        let (x, w, y) = (64 * 32 * 32 * 4 * 4, 32 * 75 * 4, 64 * 34 * 34 * 32 * 4);
        let stored_filters = w;
        assert_eq!(all[0].forward, Work { bytes: x + stored_filters + y, operations: 2 * 64 * 34 * 34 * 32 * 75 });
        // Nothing goes down to the pictures.
        assert_eq!(all[0].back, Work::default());
        assert_eq!(all[0].gradients, Work { bytes: x + y + w, operations: all[0].forward.operations });
        // Bias, pool and activation: the places are bytes, and the largest values of windows are kept beside.
        let out = 64 * 17 * 17 * 32;
        assert_eq!(all[1].forward, Work { bytes: y + 4 * out + out + 4 * out, operations: 0 });
        // One kernel goes back by windows.
        assert_eq!(all[1].back, Work { bytes: 2 * 4 * out + out + y, operations: 0 });
        assert_eq!(plan.passes.len(), all.len());
    }

    #[test]
    fn a_norm_over_a_large_map_reads_it_twice_each_way() {
        let (plan, all) = work("resnet18", (224, 1000), 256, Precision::Bf16);
        // The first norm of the first block, whose 56×56 maps are too large for blocks that wait for each other.
        let map = 256 * 56 * 56 * 64 * 2;
        let first = 3;
        assert!(matches!(&plan.passes[first], FusedPass::Epilogue(f) if f.pool.is_none() && f.residual.is_none()));
        assert_eq!(all[first].forward.bytes, 3 * map);
        assert_eq!(all[first].back.bytes, 2 * 2 * map + map);
        // The sum behind it: statistics, both summands and the output; back the slopes are kept for the second pass.
        assert!(matches!(&plan.passes[first + 2], FusedPass::Epilogue(f) if f.residual.is_some()));
        assert_eq!(all[first + 2].forward.bytes, 4 * map);
        assert_eq!(all[first + 2].back.bytes, 3 * map + map + 2 * map + map);
    }

    #[test]
    fn a_norm_over_a_small_map_reads_it_once_each_way() {
        let (plan, all) = work("convnet8", (32, 10), 64, Precision::Tf32);
        let at = plan
            .passes
            .iter()
            .position(|pass| matches!(pass, FusedPass::Epilogue(f) if matches!(f.affine, Affine::Norm(_))))
            .unwrap();
        let map = 64 * 16 * 16 * 64 * 4;
        assert_eq!(all[at].forward.bytes, 2 * map);
        assert_eq!(all[at].back.bytes, 3 * map);
    }

    #[test]
    fn an_activation_beside_a_sum_is_read_on_the_way_back_and_its_summand_is_not() {
        let (plan, all) = work("bireal18", (32, 10), 256, Precision::Bf16);
        let map = 256 * 32 * 32 * 64 * 2;
        let at = plan
            .passes
            .iter()
            .position(|pass| matches!(pass, FusedPass::Epilogue(f) if f.residual.is_some() && f.branch.is_some()));
        // Statistics, the norm's input, the sum's other side, the output and its activation.
        assert_eq!(all[at.unwrap()].forward.bytes, 5 * map);
        // Back: the input, the slopes that come around and through the activation, the output; then the slopes by the sum are kept,
        // and read with the input for those below.
        assert_eq!(all[at.unwrap()].back.bytes, 4 * map + map + 2 * map + map);
    }
}
