//! Whole kernels, through the functions that a program calls.

use crate::driver::{Failure, Gpu, Work};
use crate::lower::lower;

/// A GPU with one kernel, `f`.
struct Bench {
    gpu: Gpu,
    program: usize,
}

impl Bench {
    fn new(parameters: &str, registers: &str, body: &str) -> Self {
        let text = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry f({parameters})\n{{ .reg .pred %p<20>; \
             .reg .b32 %r<40>; .reg .f32 %f<40>; .reg .b64 %rd<20>; {registers}\n{body} ret; }}\0"
        );
        let gpu = Gpu::new();
        let program = gpu.add_program(lower(&text).unwrap_or_else(|why| panic!("{why}")));
        Bench { gpu, program }
    }

    fn work(&self, blocks: u32, threads: u32, arguments: &[u64]) -> Work {
        let handle = self.gpu.find_kernel(self.program, "f").unwrap();
        let kernel = self.gpu.kernel(handle).unwrap();
        Work::Kernel {
            kernel,
            blocks: [blocks, 1, 1],
            threads: [threads, 1, 1],
            shared: 0,
            arguments: arguments.to_vec(),
        }
    }

    fn run(&self, blocks: u32, threads: u32, arguments: &[u64]) -> Result<(), Failure> {
        self.gpu.put(0, self.work(blocks, threads, arguments))
    }

    fn memory(&self, words: &[u32]) -> u64 {
        let start = self.gpu.memory.allocate(4 * words.len()).unwrap();
        // SAFETY: so many were just allocated.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), start as *mut u32, words.len()) };
        start
    }

    fn read(&self, start: u64, words: usize) -> Vec<u32> {
        assert!(self.gpu.memory.places().hold(start, 4 * words as u64));
        // SAFETY: they are there, as was just seen.
        (0..words).map(|at| unsafe { (start as *const u32).add(at).read() }).collect()
    }
}

/// The global index in %r1, the address of that word of the first argument in %rd1.
const INDEX: &str = "ld.param.u64 %rd0, [a]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %ctaid.x; \
                     mad.lo.s32 %r1, %r3, %r4, %r2; mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %rd0, %rd1;";

#[test]
fn every_thread_of_every_block_knows_itself() {
    let bench = Bench::new(".param .u64 a", "", &format!("{INDEX} st.global.u32 [%rd1], %r1;"));
    let out = bench.memory(&[0; 7 * 45]);
    bench.run(7, 45, &[out]).unwrap();
    assert_eq!(bench.read(out, 7 * 45), (0..7 * 45).collect::<Vec<_>>());
}

/// Lanes part, loop as often as each has to, and are together again where they sum up.
#[test]
fn lanes_part_and_meet_again() {
    let body = format!(
        "{INDEX} mov.u32 %r5, 0; mov.u32 %r6, 0;\n\
         $L1: setp.ge.u32 %p1, %r6, %r2; @%p1 bra $L2; add.s32 %r5, %r5, %r6; add.s32 %r6, %r6, 1; bra $L1;\n\
         $L2: mov.u32 %r9, 31; mov.u32 %r10, -1; mov.u32 %r7, 16;\n\
         $L3: shfl.sync.bfly.b32 %r8|%p2, %r5, %r7, %r9, %r10; add.s32 %r5, %r5, %r8; shr.u32 %r7, %r7, 1; \
         setp.ne.s32 %p3, %r7, 0; @%p3 bra $L3; st.global.u32 [%rd1], %r5;"
    );
    let bench = Bench::new(".param .u64 a", "", &body);
    let out = bench.memory(&[0; 32]);
    bench.run(1, 32, &[out]).unwrap();
    let sum = (0..32u32).map(|n| n * n.saturating_sub(1) / 2).sum::<u32>();
    assert_eq!(bench.read(out, 32), [sum; 32]);
}

#[test]
fn what_is_not_there_is_not_touched() {
    let bench = Bench::new(".param .u64 a", "", &format!("{INDEX} st.global.u32 [%rd1], %r1;"));
    let out = bench.memory(&[0; 63]);
    assert_eq!(bench.run(1, 64, &[out]), Err(Failure::IllegalAddress));
    // The GPU is lost from then on.
    assert_eq!(bench.run(1, 32, &[out]), Err(Failure::IllegalAddress));
}

/// Half of the warps writes what the other half reads.
fn by_way_of_shared(barrier: &str) -> Result<Vec<u32>, Failure> {
    let body = format!(
        "{INDEX} mov.u32 %r5, s; shl.b32 %r6, %r2, 2; add.s32 %r7, %r5, %r6; st.shared.u32 [%r7], %r2; {barrier} \
         xor.b32 %r6, %r6, 252; add.s32 %r7, %r5, %r6; ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd1], %r8;"
    );
    let bench = Bench::new(".param .u64 a", ".shared .align 4 .b8 s[256];", &body);
    let out = bench.memory(&[0; 64]);
    bench.run(1, 64, &[out])?;
    Ok(bench.read(out, 64))
}

#[test]
fn shared_memory_needs_its_barrier() {
    assert_eq!(by_way_of_shared("bar.sync 0;").unwrap(), (0..64).rev().collect::<Vec<_>>());
    assert_eq!(by_way_of_shared(""), Err(Failure::IllegalAddress));
}

/// A copy that nobody waited for has not come.
#[test]
fn copies_aside_arrive_when_they_are_waited_for() {
    let run = |wait: &str| {
        let body = format!(
            "{INDEX} mov.u32 %r5, s; shl.b32 %r6, %r2, 2; add.s32 %r7, %r5, %r6; ld.param.u64 %rd2, [b]; \
             mul.wide.u32 %rd3, %r2, 4; add.s64 %rd2, %rd2, %rd3; setp.lt.u32 %p1, %r2, 16; \
             selp.b32 %r9, 4, 0, %p1; cp.async.ca.shared.global [%r7], [%rd2], 4, %r9; cp.async.commit_group; {wait} \
             ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd1], %r8;"
        );
        let bench = Bench::new(".param .u64 a, .param .u64 b", ".shared .align 4 .b8 s[128];", &body);
        let (out, from) = (bench.memory(&[7; 32]), bench.memory(&(100..132).collect::<Vec<_>>()));
        bench.run(1, 32, &[out, from]).unwrap();
        bench.read(out, 32)
    };
    let waited = run("cp.async.wait_group 0;");
    assert_eq!(waited, (100..116).chain([0; 16]).collect::<Vec<_>>());
    assert_eq!(run(""), [u32::MAX; 32]);
}

/// Blocks that wait until all have come, in whatever order they begin.
#[test]
fn blocks_can_wait_for_each_other() {
    let body = format!(
        "{INDEX} setp.ne.s32 %p1, %r2, 0; @%p1 bra $L2; atom.global.add.u32 %r5, [%rd0], 1; mov.u32 %r6, %nctaid.x;\n\
         $L1: ld.acquire.gpu.global.u32 %r7, [%rd0]; setp.lt.u32 %p2, %r7, %r6; @%p2 bra $L1;\n\
         $L2: bar.sync 0; add.s32 %r8, %r1, 1; mul.wide.u32 %rd3, %r8, 4; add.s64 %rd3, %rd0, %rd3; \
         ld.global.u32 %r9, [%rd0]; st.global.u32 [%rd3], %r9;"
    );
    let bench = Bench::new(".param .u64 a", "", &body);
    let out = bench.memory(&[0; 1 + 40 * 64]);
    bench.run(40, 64, &[out]).unwrap();
    assert_eq!(bench.read(out, 1 + 40 * 64), [40; 1 + 40 * 64]);
}

#[test]
fn lanes_that_wait_for_nobody_are_told() {
    let body = format!(
        "{INDEX} setp.lt.u32 %p1, %r2, 8; @%p1 bra $L2; bar.sync 0;\n\
         $L2: mov.u32 %r9, 31; mov.u32 %r10, -1; shfl.sync.idx.b32 %r8, %r2, 0, %r9, %r10; st.global.u32 [%rd1], %r8;"
    );
    // Eight lanes wait in the shuffle for those that wait at the barrier.
    let bench = Bench::new(".param .u64 a", "", &body);
    let out = bench.memory(&[0; 32]);
    assert_eq!(bench.run(1, 32, &[out]), Err(Failure::IllegalAddress));
}

/// 16×8 products, operands spread over lanes as the instructions want them.
#[test]
fn products_of_matrices_are_those_of_their_numbers() {
    let value = |seed: u32, at: u32| ((at.wrapping_mul(2654435761).wrapping_add(seed) >> 13) % 31) as i32 - 15;
    for (kind, depth) in [("bf16", 16u32), ("tf32", 8), ("s8", 32)] {
        let (a, b) = (|row: u32, k: u32| value(1, row * 64 + k), |k: u32, column: u32| value(2, k * 8 + column));
        let bits = |v: i32| match kind {
            "bf16" => (v as f32).to_bits() >> 16,
            "tf32" => (v as f32).to_bits(),
            _ => v as u8 as u32,
        };
        // How many numbers are in a register, and where a lane's are: rows of a, then columns of b.
        let in_one = 32
            / if kind == "tf32" {
                32
            } else if kind == "bf16" {
                16
            } else {
                8
            };
        let packed = |of: &dyn Fn(u32) -> i32| (0..in_one).map(|k| bits(of(k)) << (32 / in_one * k)).sum::<u32>();
        let mut words = Vec::new();
        for lane in 0..32u32 {
            let (group, within) = (lane / 4, lane % 4 * in_one);
            for (rows, columns) in [(0, 0), (8, 0), (0, depth / 2), (8, depth / 2)] {
                words.push(packed(&|k| a(group + rows, within + columns + k)));
            }
            for first in [0, depth / 2] {
                words.push(packed(&|k| b(within + first + k, group)));
            }
        }
        let (shape, kinds, zero) = match kind {
            "bf16" => ("m16n8k16", "f32.bf16.bf16.f32", "0f3F800000"),
            "tf32" => ("m16n8k8", "f32.tf32.tf32.f32", "0f3F800000"),
            _ => ("m16n8k32", "s32.s8.s8.s32", "1"),
        };
        let load = |at: u32| format!("ld.global.u32 %r{}, [%rd3+{}];", 20 + at, 4 * at);
        let body = format!(
            "{INDEX} ld.param.u64 %rd2, [b]; mul.wide.u32 %rd3, %r2, 24; add.s64 %rd3, %rd2, %rd3; {} mov.b32 %r30, {zero}; \
             mma.sync.aligned.{shape}.row.col.{kinds} {{%r31,%r32,%r33,%r34}}, {{%r20,%r21,%r22,%r23}}, {{%r24,%r25}}, \
             {{%r30,%r30,%r30,%r30}}; mul.wide.u32 %rd4, %r2, 16; add.s64 %rd4, %rd0, %rd4; \
             st.global.v4.u32 [%rd4], {{%r31,%r32,%r33,%r34}};",
            (0..6).map(load).collect::<String>()
        );
        let bench = Bench::new(".param .u64 a, .param .u64 b", "", &body);
        let (out, from) = (bench.memory(&[0; 128]), bench.memory(&words));
        bench.run(1, 32, &[out, from]).unwrap();
        for (at, found) in bench.read(out, 128).into_iter().enumerate() {
            let (lane, k) = (at as u32 / 4, at as u32 % 4);
            let (row, column) = (lane / 4 + k / 2 * 8, lane % 4 * 2 + k % 2);
            let sum = 1 + (0..depth).map(|k| a(row, k) * b(k, column)).sum::<i32>();
            let found = if kind == "s8" { found as i32 } else { f32::from_bits(found) as i32 };
            assert_eq!(found, sum, "{kind} row {row} column {column}");
        }
    }
}

/// What another stream does is part of a captured step if it was waited for, and refused if not.
#[test]
fn captured_steps_keep_their_order_and_want_to_be_joined() {
    let body = format!(
        "{INDEX} ld.param.u32 %r5, [b]; ld.global.u32 %r6, [%rd0]; mad.lo.s32 %r6, %r6, 3, %r5; \
                        st.global.u32 [%rd0], %r6;"
    );
    let bench = Bench::new(".param .u64 a, .param .u32 b", "", &body);
    let (gpu, first, second) = (&bench.gpu, bench.gpu.new_stream(), bench.gpu.new_stream());
    let (forked, joined) = (gpu.new_event(), gpu.new_event());
    let [x, y] = [0, 0].map(|zero| bench.memory(&[zero]));
    let capture = |join: bool| {
        gpu.begin_capture(first)?;
        gpu.put(first, bench.work(1, 1, &[x, 1]))?;
        gpu.record(forked, first)?;
        gpu.wait_event(second, forked)?;
        gpu.put(second, bench.work(1, 1, &[y, 2]))?;
        gpu.put(second, bench.work(1, 1, &[y, 4]))?;
        gpu.put(first, bench.work(1, 1, &[x, 5]))?;
        gpu.record(joined, second)?;
        if join {
            gpu.wait_event(first, joined)?;
        }
        gpu.put(first, Work::Copy { to: x, from: x, bytes: 4 })?;
        gpu.end_capture(first)
    };
    assert_eq!(capture(false), Err(Failure::CaptureUnjoined));
    let graph = capture(true).unwrap();
    assert_eq!(bench.read(x, 1), [0], "nothing is done while it is captured");
    gpu.launch_graph(graph).unwrap();
    assert_eq!((bench.read(x, 1), bench.read(y, 1)), (vec![8], vec![10]));
}

#[test]
fn what_is_not_known_is_named() {
    let text = ".visible .entry f() { .reg .b32 %r<3>; dp4a.u32.u32 %r0, %r1, %r2, %r1; ret; }";
    let why = lower(text).err().unwrap().to_string();
    assert!(why.contains("f: dp4a.u32.u32") && why.contains("not known here"), "{why}");
}

/// A launch that the real one would refuse is refused.
#[test]
fn launches_have_limits() {
    let bench = Bench::new(".param .u64 a", "", INDEX);
    let handle = bench.gpu.find_kernel(bench.program, "f").unwrap();
    let check = |blocks, threads, shared, together| {
        bench.gpu.check_launch(handle, [blocks, 1, 1], [threads, 1, 1], shared, together)
    };
    assert_eq!(check(1, 1024, 0, false), Ok(()));
    assert_eq!(check(1, 1025, 0, false), Err(Failure::InvalidValue));
    assert_eq!(check(0, 32, 0, false), Err(Failure::InvalidValue));
    assert_eq!(check(1, 32, 100 << 10, false), Err(Failure::InvalidValue));
    bench.gpu.allow_shared(handle, 100 << 10).unwrap();
    assert_eq!(check(1, 32, 100 << 10, false), Ok(()));
    assert_eq!(check(264, 32, 100 << 10, true), Ok(()));
    assert_eq!(check(265, 32, 100 << 10, true), Err(Failure::TooLargeToCooperate));
}

/// Four warps multiply matrices in shared memory, whose rows begin anywhere, and whose numbers follow each other in depth or
/// across; another warp that writes what may still be read is told of.
#[test]
fn four_warps_multiply_what_lies_in_shared_memory() {
    let run = |wide: bool, early: bool| {
        // Numbers 0 to 15 deep of 64 rows and 16 columns, as bf16: row + 2 depth and column - depth, small whole numbers.
        // A row or a depth takes 16 bytes; pieces of eight numbers lie 2048 bytes apart, the second matrix at 16384.
        let place = "and.b32 %r11, %r5, 7; shr.u32 %r12, %r5, 3; mul.lo.s32 %r12, %r12, 2048; \
                     mad.lo.s32 %r12, %r6, 16, %r12; mad.lo.s32 %r12, %r11, 2, %r12;";
        let put = |at: u32, rows: u32, value: &str| {
            let order =
                if wide { "mov.u32 %r5, %r7; mov.u32 %r6, %r8;" } else { "mov.u32 %r5, %r8; mov.u32 %r6, %r7;" };
            format!(
                "mov.u32 %r9, %r2; $A{at}: shr.u32 %r7, %r9, 4; and.b32 %r8, %r9, 15; {order} {place} {value} \
                 cvt.rn.f32.s32 %f1, %r10; mov.f32 %f2, 0f00000000; cvt.rn.bf16x2.f32 %r13, %f2, %f1; \
                 cvt.u16.u32 %h1, %r13; st.shared.b16 [%r12+{at}], %h1; add.s32 %r9, %r9, 128; \
                 setp.lt.s32 %p1, %r9, {}; @%p1 bra $A{at};",
                16 * rows
            )
        };
        // The descriptors: start, 2048 bytes between pieces, 128 between eights.
        let (along, down) = if wide { (128u64, 2048u64) } else { (2048, 128) };
        let matrix = |at: u64| (at >> 4) | (along >> 4) << 16 | (down >> 4) << 32;
        let done = "wgmma.wait_group.sync.aligned 0;";
        let (before, after) = if early { ("", done) } else { (done, "") };
        let order = u32::from(wide);
        let body = format!(
            "{INDEX} {} {} bar.sync 0; mov.u64 %rd5, {}; mov.u64 %rd6, {};\n\
             mov.f32 %f10, 0f3F800000; mov.f32 %f11, %f10; mov.f32 %f12, %f10; mov.f32 %f13, %f10;\n\
             mov.f32 %f14, %f10; mov.f32 %f15, %f10; mov.f32 %f16, %f10; mov.f32 %f17, %f10;\n\
             wgmma.fence.sync.aligned;\n\
             wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {{%f10,%f11,%f12,%f13,%f14,%f15,%f16,%f17}}, \
             %rd5, %rd6, 1, 1, 1, {order}, {order};\n\
             wgmma.commit_group.sync.aligned; {before} bar.sync 0;\n\
             setp.eq.s32 %p2, %r2, 40; @%p2 st.shared.b32 [64], %r2; {after}\n\
             shl.b32 %r14, %r2, 5; cvt.u64.u32 %rd7, %r14; add.s64 %rd7, %rd0, %rd7;\n\
             st.global.v4.f32 [%rd7], {{%f10,%f11,%f12,%f13}}; st.global.v4.f32 [%rd7+16], {{%f14,%f15,%f16,%f17}};",
            put(0, 64, "mad.lo.s32 %r10, %r8, 2, %r7;"),
            put(16384, 16, "sub.s32 %r10, %r7, %r8;"),
            matrix(0),
            matrix(16384),
        );
        let bench = Bench::new(".param .u64 a", ".reg .b16 %h<4>; .shared .align 128 .b8 s[32768];", &body);
        let out = bench.memory(&[0; 128 * 8]);
        bench.run(1, 128, &[out]).map(|()| bench.read(out, 128 * 8))
    };
    for wide in [false, true] {
        let found = run(wide, false).unwrap();
        for (thread, sums) in found.chunks_exact(8).enumerate() {
            for (k, sum) in sums.iter().enumerate() {
                let row = (thread / 32 * 16 + thread % 32 / 4 + k % 4 / 2 * 8) as i32;
                let column = (k / 4 * 8 + thread % 4 * 2 + k % 2) as i32;
                let expected: i32 = 1 + (0..16).map(|depth| (row + 2 * depth) * (column - depth)).sum::<i32>();
                assert_eq!(f32::from_bits(*sum), expected as f32, "row {row}, column {column}, {wide}");
            }
        }
    }
    assert_eq!(run(false, true), Err(Failure::IllegalAddress));
}
