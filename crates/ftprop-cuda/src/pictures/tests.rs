//! The kernel's arithmetic is the CPU's, to the bit: a C++ compiler stands in for a GPU's, told not to fuse products and
//! sums.

use crate::precision::Precision;
use ftprop_data::{Augment, Jitter, Loader, LoaderConfig, Normalize, Shape, Split};
use ftprop_tensor::random::{Purpose, Stream};
use std::fmt::Write;
use std::process::Command;

const PRELUDE: &str = "#include <cmath>\n#include <cstddef>\n#include <cstdint>\n#include <cstdio>\n#include <cstring>\n\
    #define DEVICE static inline\n#define PICTURE_ENTRY_BYTES 24\n\
    #define ROUND_FADD(a, b) ((a) + (b))\n#define ROUND_FMUL(a, b) ((a) * (b))\n\
    #define ROUND_DADD(a, b) ((a) + (b))\n#define ROUND_DMUL(a, b) ((a) * (b))\n\
    typedef unsigned char u8;\ntypedef uint32_t u32;\ntypedef unsigned long long u64;\n\
    static u64 mix(u64 x) {\n  u64 z = x + 0x9E3779B97F4A7C15ull;\n  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;\n\
    \x20 z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;\n  return z ^ (z >> 31);\n}\n\
    static float uniform(u64 key, u64 i) { return (float)(mix(key + i) >> 40) * (1.0f / 16777216.0f); }\n\
    static u64 fork(u64 key, u64 i) { return mix(mix(key + i)); }\n";

/// Shows one picture as the kernel does, and says the bits of every value.
const MAIN: &str = "static void show(const u8* pixels, int height, int width, u64 own, int window_h, int window_w,\n\
    \x20                const float* normalize) {\n\
    \x20 Axis rows = {0, 0, window_h, 0}, columns = {0, 0, window_w, 0};\n\
    \x20 draw_patch(own, (double)LEAST, (double)MOST, height, width, rows, columns);\n\
    \x20 Colours colours = draw_colours(own, BRIGHTNESS, CONTRAST, SATURATION);\n\
    \x20 int row_taps = taps_of(rows), column_taps = taps_of(columns);\n\
    \x20 static float row_weights[4096], column_weights[4096];\n\
    \x20 for (int y = 0; y < window_h; y++) for (int x = 0; x < window_w; x++) {\n\
    \x20   int column = mix(own + 2) >> 63 ? window_w - 1 - x : x, bytes[3];\n\
    \x20   float values[3];\n\
    \x20   int first_row = rows.origin + weigh(rows, row_taps, y, row_weights);\n\
    \x20   int first_column = columns.origin + weigh(columns, column_taps, column, column_weights);\n\
    \x20   resample(pixels, width, first_row, row_weights, row_taps, first_column, column_weights, column_taps, bytes);\n\
    \x20   colour(colours, bytes, normalize, values);\n\
    \x20   for (float v : values) { u32 u; memcpy(&u, &v, 4); printf(\"%u\\n\", u); }\n\
    \x20 }\n}\n";

#[test]
fn parts_sizes_and_colours_have_the_cpus_bits() {
    let (random, window) = (Stream::numbered(9), Shape::new(9, 7, 3));
    let sizes: Vec<(usize, usize)> =
        (0..40u64).map(|i| (9 + random.below(i, 30) as usize, 7 + random.below(100 + i, 40) as usize)).collect();
    let total: usize = sizes.iter().map(|(height, width)| height * width * 3).sum();
    let bytes: Vec<u8> = (0..total as u64).map(|i| random.below(1000 + i, 256) as u8).collect();
    let split = Split::from_pictures(&sizes, bytes.clone(), vec![0; sizes.len()], window).unwrap();
    let normalize = Normalize::imagenet();
    let jitter = Jitter { brightness: 0.4, contrast: 0.3, saturation: 0.9 };
    let augment = Augment { area: Some([0.08, 1.0]), flip: true, jitter, ..Augment::default() };
    let (seed, epoch) = (5, 3);
    let config = LoaderConfig { augment, shuffle: false, ..LoaderConfig::training(40, seed, normalize.clone()) };
    let loader = Loader::new(&split, config).unwrap();
    let mut batches = loader.epoch(epoch, 0);
    let expected = batches.next_batch().unwrap().unwrap().images.to_vec();

    let kernels = include_str!("../../kernels/pictures.cuh");
    let mut text = format!(
        "{PRELUDE}{kernels}#define LEAST 0.08f\n#define MOST 1.0f\n#define BRIGHTNESS 0.4f\n#define CONTRAST 0.3f\n\
         #define SATURATION 0.9f\n{MAIN}static const u8 PIXELS[] = {{"
    );
    bytes.iter().for_each(|byte| write!(text, "{byte},").unwrap());
    let numbers: Vec<String> = [normalize.full]
        .iter()
        .chain(&normalize.mean)
        .chain(&normalize.std)
        .map(|value| format!("{value:e}f"))
        .collect();
    write!(text, "}};\nint main() {{\n  const float normalize[] = {{{}}};\n", numbers.join(", ")).unwrap();
    let key = Stream::new(seed, Purpose::Augment, epoch).key();
    let mut offset = 0;
    for (number, (height, width)) in sizes.iter().enumerate() {
        let own = format!("fork({key}ull, {number})");
        writeln!(text, "  show(PIXELS + {offset}, {height}, {width}, {own}, 9, 7, normalize);").unwrap();
        offset += height * width * 3;
    }
    text += "}\n";
    let folder = std::env::temp_dir().join(format!("ftprop-pictures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("pictures.cpp"), folder.join("pictures"));
    std::fs::write(&source, &text).unwrap();
    let compiler = Command::new("c++").args(["-O1", "-ffp-contract=off", "-o"]).arg(&program).arg(&source).output();
    let Ok(compiled) = compiler else {
        println!("skipped: no C++ compiler");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let got: Vec<f32> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| f32::from_bits(line.parse().unwrap())).collect();
    assert_eq!(got.len(), expected.len());
    let different = got.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    assert_eq!(different, 0, "of {}", got.len());
}

#[test]
fn the_kernel_compiles_without_a_gpu() {
    if let Err(why) = crate::library::Library::Nvrtc.load() {
        println!("skipped: {why}");
        return;
    }
    for (precision, arch) in [(Precision::F32, (8, 0)), (Precision::Tf32, (9, 0)), (Precision::Bf16, (9, 0))] {
        let image = super::source(precision).compile(arch).unwrap_or_else(|error| panic!("{error}"));
        assert!(image.starts_with(b"\x7fELF"));
    }
}
