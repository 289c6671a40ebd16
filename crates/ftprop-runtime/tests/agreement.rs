//! Packed models against the slow reference, and every way of running them against every other.

mod support;

use ftprop_runtime::pack::{FlattenOrder, FloatNetwork, PackOptions, WeightFormat, WeightLayout, pack};
use ftprop_runtime::{Activation, Element, Engine, EngineOptions, Kernels, Result, Window};
use support::Numbers;
use support::networks::{self, Builder};
use support::reference;

const SIGN: Activation = Activation::Sign;
const HARD: [Activation; 4] = [SIGN, Activation::Step, Activation::QRelu(3), Activation::QRelu(5)];

/// Threads, and images together.
const WAYS: [(usize, usize); 4] = [(1, 1), (1, 16), (2, 2), (5, 1)];

/// Packs, writes, loads and runs `images` images in every way, demands equal bits of all, and logits that differ from
/// the reference's by no more than rounding in single precision. A single hidden bit that differed would show: no
/// weight on the grid but zero is as small as that.
fn agrees(network: &FloatNetwork, weights: WeightFormat, images: usize, tolerance: f64) -> Result<()> {
    let file = pack(network, &PackOptions { weights })?.to_bytes()?;
    let mut numbers = Numbers(77);
    let mut first: Option<(Vec<u8>, Vec<f32>)> = None;
    for kernels in Kernels::all_available() {
        for (tables, ways) in [(None, &WAYS[..]), (Some(true), &WAYS[1..2]), (Some(false), &WAYS[1..2])] {
            for &(threads, together) in ways {
                let kernels = Some(kernels);
                let options =
                    EngineOptions { threads, kernels, tables, images_together: together, ..EngineOptions::default() };
                let mut engine = Engine::load(&file, &options)?;
                let (batch, expected) = first.get_or_insert_with(|| {
                    let batch = numbers.image(images * engine.image_len());
                    (batch, Vec::new())
                });
                let mut logits = vec![f32::NAN; images * engine.classes()];
                engine.classify(batch, &mut logits)?;
                if expected.is_empty() {
                    expected.clone_from(&logits);
                }
                assert!(
                    logits.iter().zip(&*expected).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{}: {kernels:?}, tables {tables:?}, {threads} threads, {together} together differ",
                    network.name
                );
                // A second call must find the engine as the first did.
                engine.classify(batch, &mut logits)?;
                assert_eq!(&logits, expected);
            }
        }
    }
    let Some((batch, logits)) = first else { return Ok(()) };
    let image_len = batch.len() / images;
    let classes = logits.len() / images;
    for (image, logits) in batch.chunks_exact(image_len).zip(logits.chunks_exact(classes)) {
        let expected = reference::logits(network, image);
        let largest = expected.iter().fold(1.0, |most: f64, z| most.max(z.abs()));
        for (&found, expected) in logits.iter().zip(&expected) {
            let gap = (found as f64 - expected).abs() / largest;
            assert!(gap <= tolerance, "{}: logit {found} for {expected}", network.name);
        }
    }
    Ok(())
}

#[test]
fn convnet4_and_convnet8() -> Result<()> {
    for act in [SIGN, Activation::QRelu(3)] {
        agrees(&networks::convnet4(act, 1, 4), WeightFormat::Int8, 3, 1e-5)?;
        agrees(&networks::convnet8(act, 2, 4), WeightFormat::Int8, 3, 1e-5)?;
    }
    Ok(())
}

#[test]
fn alexnet_and_resnet18() -> Result<()> {
    agrees(&networks::alexnet(SIGN, 3, 16, 95), WeightFormat::Int8, 1, 1e-5)?;
    agrees(&networks::alexnet(Activation::QRelu(3), 3, 16, 95), WeightFormat::Int8, 1, 1e-5)?;
    agrees(&networks::resnet18(SIGN, 4, 8, 47), WeightFormat::Int8, 2, 1e-4)?;
    agrees(&networks::resnet18(Activation::QRelu(5), 5, 8, 47), WeightFormat::Int8, 2, 1e-4)
}

#[test]
fn mlp_with_every_activation() -> Result<()> {
    for act in HARD.into_iter().chain([Activation::Relu, Activation::SaturatedRelu]) {
        agrees(&networks::mlp(act, 6, &[33, 18]), WeightFormat::Int8, 3, 2e-4)?;
    }
    Ok(())
}

#[test]
fn float_weights_and_real_activations() -> Result<()> {
    agrees(&networks::convnet4(SIGN, 7, 8), WeightFormat::F32, 2, 1e-4)?;
    agrees(&networks::convnet8(Activation::QRelu(3), 8, 8), WeightFormat::F32, 2, 1e-4)?;
    agrees(&networks::convnet8(Activation::Relu, 9, 8), WeightFormat::Int8, 2, 2e-3)?;
    agrees(&networks::convnet4(Activation::SaturatedRelu, 10, 8), WeightFormat::F32, 2, 1e-4)?;
    agrees(&networks::resnet18(Activation::Relu, 11, 16, 40), WeightFormat::F32, 1, 1e-4)
}

#[test]
fn each_channel_has_its_own_mean_and_deviation() -> Result<()> {
    let window = Window::square(3, 1, 2);
    let net = Builder::new(13, 7, 5, 4).conv_with(6, window, 2, WeightLayout::Oihw, true).act(Activation::Relu);
    let mut net = net.flatten(FlattenOrder::ChannelsFirst).connected(4, true).build("normalised");
    net.preprocessing.std = vec![0.2, 0.3, 0.5, 0.1];
    net.preprocessing.mean = vec![0.1, 0.9, 0.4, -0.3];
    agrees(&net, WeightFormat::Int8, 3, 2e-4)?;
    agrees(&net, WeightFormat::F32, 3, 1e-5)
}

#[test]
fn four_bits() -> Result<()> {
    for act in [SIGN, Activation::QRelu(3)] {
        let mut net = Builder::new(12, 9, 11, 2);
        net.grid = 7;
        let net = net.conv(5, 3, 1, 1, true).act(act).conv(7, 3, 2, 1, false).norm(1e-4).act(act);
        let net = net.flatten(FlattenOrder::ChannelsFirst).connected(4, true);
        agrees(&net.build("four bits"), WeightFormat::Int4, 3, 1e-5)?;
    }
    Ok(())
}

/// Pools before and after the norm, overlapping and padded, with negative and zero gammas; borders of every width;
/// strides; channel numbers that fill no block.
#[test]
fn pools_norms_and_borders() -> Result<()> {
    for (seed, act) in [SIGN, Activation::QRelu(3)].into_iter().enumerate() {
        for (kernel, stride, pad) in [(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 3, 0), (2, 1, 0), (5, 2, 2)] {
            for before in [true, false] {
                let net = Builder::new(100 + seed as u64, 12, 10, 3).conv(9, 3, 1, 1, true).act(act);
                let net = net.conv(21, 3, 1, 2, false);
                let net = match before {
                    true => net.max_pool(kernel, stride, pad).norm(1e-3),
                    false => net.norm(1e-3).max_pool(kernel, stride, pad),
                };
                let net = net.act(act).conv(6, 2, 2, 1, true).act(act).max_pool(kernel.min(3), stride, pad.min(1));
                let net = net.flatten(FlattenOrder::ChannelsLast).connected(5, false);
                agrees(&net.build("pools"), WeightFormat::Int8, 2, 1e-5)?;
            }
        }
    }
    Ok(())
}

#[test]
fn odd_windows_groups_and_layouts() -> Result<()> {
    for (seed, act) in HARD.into_iter().enumerate() {
        let window = |kernel, stride, pad| Window { kernel, stride, pad };
        let net = Builder::new(200 + seed as u64, 11, 17, 4)
            .conv_with(6, window([3, 1], [1, 2], [1, 0]), 2, WeightLayout::Ohwi, true)
            .act(act)
            .conv_with(15, window([2, 5], [1, 1], [0, 4]), 3, WeightLayout::Oihw, false)
            .norm(1e-2)
            .act(act)
            .conv_with(10, window([1, 3], [2, 1], [3, 1]), 5, WeightLayout::Ohwi, true)
            .act(act)
            .conv_with(70, window([3, 3], [2, 3], [0, 0]), 1, WeightLayout::Ohwi, true)
            .act(act)
            .flatten(FlattenOrder::ChannelsFirst)
            .connected(3, true);
        agrees(&net.build("odd"), WeightFormat::Int8, 2, 1e-5)?;
    }
    Ok(())
}

/// Layers in orders that no preset has: norms on levels, on sums and on the image, pools on reals, activations that
/// follow each other, and a hard activation at the end.
#[test]
fn unusual_orders() -> Result<()> {
    let sign = SIGN;
    let nets = [
        Builder::new(1, 6, 6, 2).norm(1e-3).conv(8, 3, 1, 1, true).act(sign).norm(1e-3).conv(4, 3, 1, 0, true),
        Builder::new(2, 6, 6, 2).max_pool(2, 1, 1).conv(8, 3, 1, 1, true).norm(1e-3).norm(1e-2).act(sign),
        Builder::new(3, 6, 6, 2).conv(8, 3, 1, 1, true).max_pool(2, 1, 0).norm(1e-3).max_pool(2, 1, 0).act(sign),
        Builder::new(4, 6, 6, 2).conv(8, 3, 1, 1, true).max_pool(2, 2, 0).norm(1e-3).act(Activation::Relu),
        Builder::new(5, 6, 6, 2).conv(8, 3, 1, 1, true).conv(6, 3, 1, 1, true).act(Activation::QRelu(2)),
        Builder::new(6, 6, 6, 2)
            .conv(8, 3, 1, 1, true)
            .act(Activation::Relu)
            .average_pool(Window::square(3, 2, 1))
            .act(sign),
        Builder::new(7, 6, 6, 2)
            .conv(8, 3, 1, 1, true)
            .act(sign)
            .residual(|main| main.conv(8, 3, 1, 1, true), |shortcut| shortcut)
            .norm(1e-3)
            .max_pool(2, 2, 0)
            .act(sign),
    ];
    for net in nets {
        let net = net.flatten(FlattenOrder::ChannelsFirst).connected(4, true).act(Activation::QRelu(4));
        agrees(&net.build("unusual"), WeightFormat::Int8, 3, 2e-5)?;
    }
    Ok(())
}

#[test]
fn zero_is_on_the_low_side() -> Result<()> {
    // Each hidden unit sees w · (+1) + w · (−1) = 0 for half of the inputs.
    use ftprop_runtime::pack::{Connected, FloatLayer};
    let mut net = Builder::new(1, 1, 2, 1).build("ties");
    net.preprocessing.mean = vec![0.5];
    net.classes = vec!["low".into(), "high".into()];
    let layer = |outputs, weights: &[f32]| {
        FloatLayer::FullyConnected(Connected { outputs, weights: weights.to_vec(), bias: None })
    };
    net.layers = vec![
        FloatLayer::Flatten(FlattenOrder::ChannelsLast),
        layer(2, &[1.0, 0.0, 0.0, 1.0]),
        FloatLayer::Activation(SIGN),
        layer(2, &[1.0, 1.0, -1.0, -1.0]),
        FloatLayer::Activation(Activation::Step),
        layer(2, &[1.0, 0.0, 0.0, 1.0]),
    ];
    let file = pack(&net, &PackOptions::default())?.to_bytes()?;
    let mut engine = Engine::load(&file, &EngineOptions::default())?;
    let mut logits = [9.0; 8];
    engine.classify(&[255, 255, 255, 0, 0, 255, 0, 0], &mut logits)?;
    assert_eq!(logits, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    Ok(())
}

/// A table of bytes as reals is what it is as a picture: to rounding, and the same in every way of running it.
#[test]
fn rows_of_reals_agree_with_the_reference() -> Result<()> {
    for (act, weights) in [(SIGN, WeightFormat::Int8), (Activation::QRelu(3), WeightFormat::F32)] {
        let network =
            Builder::new(9, 1, 1, 13).connected(40, true).norm(1e-3).act(act).connected(4, true).build("table");
        let mut table = network.clone();
        table.preprocessing.element = Element::Real;
        let about = &mut table.preprocessing;
        about.mean.iter_mut().chain(&mut about.std).for_each(|number| *number *= 255.0);
        let file = pack(&table, &PackOptions { weights })?.to_bytes()?;
        let bytes = Numbers(5).image(50 * 13);
        let rows: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte)).collect();
        let mut all = Vec::new();
        for (threads, images_together) in WAYS {
            let options = EngineOptions { threads, images_together, ..EngineOptions::default() };
            let mut engine = Engine::load(&file, &options)?;
            let mut logits = vec![0.0; 50 * 4];
            engine.classify_reals(&rows, &mut logits)?;
            let mut single = [0.0; 4];
            engine.classify_reals(&rows[..13], &mut single)?;
            assert_eq!(single, logits[..4]);
            all.push(logits);
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        let mut wrong = 0;
        for (row, logits) in bytes.chunks_exact(13).zip(all[0].chunks_exact(4)) {
            let expected = reference::logits(&network, row);
            let far = |(found, expected): (&f32, &f64)| (f64::from(*found) - expected).abs() > 0.03;
            wrong += usize::from(logits.iter().zip(&expected).any(far));
        }
        // A sum that lies on a threshold to within rounding may fall on the other side.
        assert!(wrong <= 1, "{wrong} of 50 rows");
    }
    Ok(())
}
