//! Every kernel against the `eval` of its op: over odd shapes, both precisions, every instruction set, one and many threads.

use half::bf16;
use ttc_ir::plan::{Layout, Order, Pack};
use ttc_ir::tensor::{DType, Tensor};
use ttc_ir::weight::rope_table;
use ttc_ir::{Math, Op};
use ttc_kernels::cpu::{Aligned, Ctx, Data, DataMut, Isa};
use ttc_kernels::pack::pack;
use ttc_kernels::{Call, Site, Value, ValueMut, Wanted, select, to_tensor};

/// `n` numbers in -1..1, different for each seed.
fn numbers(seed: usize, n: usize) -> Vec<f32> {
    let at = |i: usize| ((i + 1) * 2_654_435_761 + seed * 40_503) as u32;
    let mix = |z: u32| (z ^ (z >> 15)).wrapping_mul(0x2C1B_3C6D);
    (0..n).map(|i| (mix(mix(at(i))) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn round(values: &mut [f32]) {
    values.iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32());
}

/// Row-major index of each element in the order in which it is stored.
fn stored(shape: &[usize], order: Order) -> Vec<usize> {
    let n: usize = shape.iter().product();
    match (order, shape) {
        (Order::ChannelsLast, &[b, c, h, w]) => (0..n)
            .map(|i| {
                let (ch, x, y, image) = (i % c, i / c % w, i / (c * w) % h, i / (c * w * h));
                assert!(image < b);
                ((image * c + ch) * h + y) * w + x
            })
            .collect(),
        _ => (0..n).collect(),
    }
}

/// Values in memory as a plan stores them.
fn store(values: &[f32], shape: &[usize], layout: Layout) -> Aligned {
    let order = stored(shape, layout.order);
    let mut memory = Aligned::zeroed(values.len() * layout.dtype.bytes());
    match layout.dtype {
        DType::F32 => memory.as_mut_slice::<f32>().iter_mut().zip(order).for_each(|(m, i)| *m = values[i]),
        DType::BF16 => {
            memory
                .as_mut_slice::<bf16>()
                .iter_mut()
                .zip(order)
                .for_each(|(m, i)| *m = bf16::from_f32(values[i]));
        }
    }
    memory
}

fn data(memory: &Aligned, dtype: DType) -> Data<'_> {
    match dtype {
        DType::F32 => Data::F32(memory.as_slice()),
        DType::BF16 => Data::Bf16(memory.as_slice()),
    }
}

/// How a case is run.
#[derive(Clone, Copy, Debug)]
struct How {
    isa: Isa,
    math: Math,
    threads: usize,
    out: DType,
}

/// Runs the kernel that `select` picks, which must be `kernel`; returns its output and what `eval` says.
fn compute(kernel: &str, op: &Op, ins: &[&[usize]], orders: &[Order], how: How) -> (Tensor, Tensor) {
    let out_shape = op.infer(ins).unwrap_or_else(|e| panic!("{op}: {e}"));
    let site = Site { op, ins, out: &out_shape, orders, math: how.math };
    let (chosen, choice) = select(&site);
    assert_eq!(chosen.name(), kernel, "{op}");
    let mut tensors: Vec<Tensor> =
        ins.iter().enumerate().map(|(i, s)| Tensor::new(*s, numbers(i, s.iter().product()))).collect();
    let mut layouts = vec![];
    for (i, tensor) in tensors.iter_mut().enumerate() {
        let dtype = if choice.exact[i] { DType::F32 } else { how.math.operand() };
        layouts.push(Layout { order: orders[i], dtype });
        if dtype == DType::BF16 {
            round(&mut tensor.data);
        }
    }
    let mut weights: Vec<Tensor> = op
        .weights(ins)
        .into_iter()
        .enumerate()
        .map(|(i, (_, shape))| {
            let n: usize = shape.iter().product();
            let scale = if shape.len() > 1 { (3.0 * shape[0] as f32 / n as f32).sqrt() } else { 0.5 };
            let values = numbers(100 + i, n).into_iter().map(|v| v * scale).collect();
            Tensor::new(shape, values)
        })
        .collect();
    let consts: Vec<(Aligned, DType)> = choice
        .consts
        .iter()
        .map(|wanted| match *wanted {
            Wanted::Weight { index, pack: layout, dtype } => {
                if dtype == DType::BF16 {
                    round(&mut weights[index].data);
                }
                let bytes = pack(layout, dtype, &weights[index].shape, &weights[index].data);
                assert!(layout != Pack::RowMajor || dtype == DType::F32);
                let mut memory = Aligned::zeroed(bytes.len());
                memory.as_mut_slice::<u8>().copy_from_slice(&bytes);
                (memory, dtype)
            }
            Wanted::RopeTable { base, positions, d } => {
                let table = rope_table(base, positions, d);
                let shape = [2, positions, d];
                (store(&table, &shape, Layout { order: Order::RowMajor, dtype: DType::F32 }), DType::F32)
            }
        })
        .collect();
    let memories: Vec<Aligned> =
        tensors.iter().zip(&layouts).map(|(t, l)| store(&t.data, &t.shape, *l)).collect();
    let layout = Layout { order: choice.order, dtype: how.out };
    // What is there before must not matter.
    let mut out = store(&vec![f32::NAN; out_shape.iter().product()], &out_shape, layout);
    let mut scratch = Aligned::zeroed(Ctx::scratch_len(how.threads, chosen.scratch_bytes(&site)));
    scratch.as_mut_slice::<u8>().fill(0xFF);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(how.threads).build().unwrap();
    pool.install(|| {
        let mut ctx = Ctx::new(how.isa, how.threads, scratch.as_mut_slice());
        let values = ins.iter().zip(&memories).zip(&layouts);
        let call = Call {
            op,
            ins: values
                .map(|((shape, m), &layout)| Value { shape, layout, data: data(m, layout.dtype) })
                .collect(),
            consts: consts.iter().map(|(m, dtype)| data(m, *dtype)).collect(),
            out: ValueMut {
                shape: &out_shape,
                layout,
                data: match how.out {
                    DType::F32 => DataMut::F32(out.as_mut_slice()),
                    DType::BF16 => DataMut::Bf16(out.as_mut_slice()),
                },
            },
            math: how.math,
        };
        chosen.run(call, &mut ctx);
    });
    let computed = to_tensor(&Value { shape: &out_shape, layout, data: data(&out, how.out) });
    let expected = op.eval(&tensors.iter().collect::<Vec<_>>(), &weights.iter().collect::<Vec<_>>());
    (computed, expected)
}

fn relative_l2(a: &Tensor, b: &Tensor) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 = a.data.iter().zip(&b.data).map(|(&a, &b)| square(f64::from(a) - f64::from(b))).sum();
    let norm: f64 = b.data.iter().map(|&b| square(f64::from(b))).sum();
    (error / norm.max(1e-30)).sqrt()
}

/// Checks one case on everything: f32 to a few roundings, bf16 to what rounding intermediate values (normalised rows, hidden rows,
/// attention weights: 2^-9 each) leaves; the same bits for any number of threads.
#[track_caller]
fn check(kernel: &str, op: &str, shapes: &[&[usize]], order: Order) {
    let op = Op::parse(op).unwrap_or_else(|e| panic!("{op}: {e}"));
    let orders = vec![order; shapes.len()];
    for isa in Isa::available() {
        for (math, out, limit) in
            [(Math::F32, DType::F32, 3e-6), (Math::Bf16, DType::F32, 6e-3), (Math::Bf16, DType::BF16, 8e-3)]
        {
            let how = How { isa, math, threads: 1, out };
            let (computed, expected) = compute(kernel, &op, shapes, &orders, how);
            let error = relative_l2(&computed, &expected);
            assert!(error <= limit, "{op} {shapes:?} {how:?}: {error}");
            for threads in [2, 5] {
                let (other, _) = compute(kernel, &op, shapes, &orders, How { threads, ..how });
                assert!(other == computed, "{op} {shapes:?} {isa} {math}: {threads} threads differ");
            }
        }
    }
}

const ROWS: Order = Order::RowMajor;
const MAPS: Order = Order::ChannelsLast;

#[test]
fn gemm() {
    for (m, k, n) in [(1, 1, 1), (1, 3, 5), (2, 64, 33), (13, 7, 32), (49, 96, 31), (97, 130, 65)] {
        let (x, y) = (vec![1, m, k], vec![1, m, n]);
        check("gemm", &format!("Linear(out: {n})"), &[&x], ROWS);
        check("gemm", &format!("Linear(out: {n}, act: Gelu, residuals: 1)"), &[&x, &y], ROWS);
        check("gemm", &format!("Linear(out: {n}, act: Relu, residuals: 2)"), &[&x, &y, &y], ROWS);
        if k > 1 {
            check("gemm", &format!("Linear(out: {n}, norm: Some(1e-6))"), &[&x], ROWS);
        }
    }
    check("gemm", "Conv2d(out: 9, kernel: 1)", &[&[2, 5, 3, 7]], MAPS);
    check("gemm", "Conv2d(out: 9, kernel: 1, bias: false)", &[&[2, 5, 3, 7]], MAPS);
}

#[test]
fn mlp() {
    for (m, k, hidden, n) in [(1, 2, 1, 1), (5, 8, 37, 8), (50, 33, 70, 20)] {
        let (x, y) = (vec![1, m, k], vec![1, m, n]);
        check("mlp", &format!("Mlp(hidden: {hidden}, out: {n})"), &[&x], ROWS);
        check(
            "mlp",
            &format!("Mlp(hidden: {hidden}, out: {n}, norm: Some(1e-6), residuals: 1)"),
            &[&x, &y],
            ROWS,
        );
    }
}

#[test]
fn attention() {
    for (b, nq, nk, heads, d) in [(1, 1, 1, 1, 16), (2, 5, 9, 2, 32), (1, 70, 33, 3, 64), (1, 3, 100, 1, 128)]
    {
        let c = heads * d;
        let op = format!("Attention(heads: {heads}, d: {d}, at: (0, {c}, {}))", 2 * c);
        check("attention", &op, &[&[b, nq, c], &[b, nk, 3 * c], &[b, nk, 3 * c]], ROWS);
    }
    for (grid_q, grid_k, d) in [((2, 3), (2, 3), 64), ((3, 5), (4, 2), 32), ((1, 7), (7, 1), 16)] {
        let (nq, nk) = (grid_q.0 * grid_q.1, grid_k.0 * grid_k.1);
        let op = format!(
            "Attention(heads: 2, d: {d}, at: (0, 0, {}), rope: Some(base: 100, q: {grid_q:?}, k: {grid_k:?}))",
            2 * d
        );
        check("attention", &op, &[&[2, nq, 2 * d], &[2, nk, 4 * d], &[2, nk, 4 * d]], ROWS);
    }
}

#[test]
fn conv3x3() {
    for (b, c, h, w, n) in [(1, 1, 1, 1, 1), (1, 3, 5, 7, 4), (2, 8, 4, 13, 33), (1, 34, 9, 3, 16)] {
        let x = vec![b, c, h, w];
        let y = vec![b, n, h, w];
        check("conv3x3", &format!("Conv2d(out: {n}, kernel: 3, pad: 1)"), &[&x], MAPS);
        check(
            "conv3x3",
            &format!("Conv2d(out: {n}, kernel: 3, pad: 1, bias: false, pre_relu: true, act: Relu)"),
            &[&x],
            MAPS,
        );
        check("conv3x3", &format!("Conv2d(out: {n}, kernel: 3, pad: 1, residuals: 2)"), &[&x, &y, &y], MAPS);
        check("conv3x3", &format!("Conv2d(out: {n}, kernel: 3, stride: 2, pad: 1)"), &[&x], MAPS);
        check("conv3x3", &format!("Conv2d(out: {n}, kernel: 3, pad: 1, upsample: true)"), &[&x], MAPS);
        check(
            "conv3x3",
            &format!("Conv2d(out: {n}, kernel: 3, pad: 1, upsample: true, act: Relu, pointwise: Some(4))"),
            &[&x],
            MAPS,
        );
    }
}

#[test]
fn patches_and_transposed_convolutions() {
    for (b, h, w, n) in [(1, 16, 16, 5), (2, 32, 48, 33)] {
        check("patch_embed", &format!("Conv2d(out: {n}, kernel: 16, stride: 16)"), &[&[b, 3, h, w]], ROWS);
    }
    for (c, n, s, h, w) in [(1, 1, 2, 1, 1), (5, 7, 4, 3, 2), (40, 34, 2, 5, 9)] {
        check("conv_transpose", &format!("ConvTranspose2d(out: {n}, kernel: {s})"), &[&[2, c, h, w]], MAPS);
    }
}

#[test]
fn moves_and_element_wise_ops() {
    for (b, c, h, w) in [(1, 1, 1, 1), (2, 5, 3, 7), (1, 64, 9, 4)] {
        let x = vec![b, c, h, w];
        check("upsample2", "Upsample(by: 2)", &[&x], MAPS);
        check("eltwise", "Add", &[&x, &x], MAPS);
        check("eltwise", "Relu", &[&x], MAPS);
        check("eltwise", "Gelu", &[&x], ROWS);
        check("copy", &format!("Crop(h: {}, w: {})", h.div_ceil(2), w.div_ceil(2)), &[&x], MAPS);
        for axis in 0..4 {
            check("copy", &format!("Concat(axis: {axis})"), &[&x, &x], MAPS);
            check("copy", &format!("Concat(axis: {axis})"), &[&x, &x], ROWS);
        }
    }
    check("pixel_shuffle", "PixelShuffle(by: 2)", &[&[2, 12, 3, 5]], MAPS);
    check("pixel_shuffle", "PixelShuffle(by: 16)", &[&[1, 1024, 2, 3]], MAPS);
}

#[test]
fn norms_and_heads() {
    for (m, c) in [(1, 2), (7, 33), (50, 128)] {
        check("layer_norm", "LayerNorm(eps: 1e-6)", &[&[1, m, c]], ROWS);
    }
    for shape in [[1, 4, 1, 1], [2, 29, 5, 7]] {
        check("points", "Points", &[&shape], MAPS);
        check("confidence", "Confidence(channel: 3, floor: 1)", &[&shape], MAPS);
        check("descriptors", "Descriptors(start: 1, len: 3)", &[&shape], MAPS);
    }
}

#[test]
fn what_no_kernel_takes_runs_by_its_definition() {
    check("reference", "Softmax", &[&[2, 3, 5]], ROWS);
    check("reference", "Upsample(by: 3)", &[&[1, 2, 3, 4]], MAPS);
    check("reference", "Conv2d(out: 3, kernel: 5, pad: 2)", &[&[1, 2, 6, 4]], MAPS);
    check("reference", "Linear(out: 3)", &[&[1, 2, 3, 4]], MAPS);
}
