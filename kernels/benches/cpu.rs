//! The kernels at the shapes of the full model at 512x512. Throughput counts floating-point operations, so it reads in GFLOP/s
//! (criterion prints "Gelem/s").

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::bf16;
use std::time::Duration;
use ttc_kernels::cpu::{
    Act, Aligned, Attention, Conv3x3, ConvShape, Ctx, Dst, Gemm, Heads, Isa, Math, Mlp, Packed, Pointwise,
    Src, attention, attention_scratch_bytes, conv3x3, conv3x3_k, conv3x3_scratch_bytes, gemm,
    gemm_scratch_bytes, mlp, mlp_scratch_bytes, packed_len_bf16, packed_len_f32,
};

/// Memory of one operand, smooth values.
struct Operand(Aligned, Math);

impl Operand {
    fn new(n: usize, math: Math) -> Operand {
        let value = |i: usize| ((i % 1013) as f32 * 0.37).sin();
        let mut memory = Aligned::zeroed(n * if math == Math::F32 { 4 } else { 2 });
        match math {
            Math::F32 => memory.as_mut_slice::<f32>().iter_mut().enumerate().for_each(|(i, v)| *v = value(i)),
            Math::Bf16 => memory
                .as_mut_slice::<bf16>()
                .iter_mut()
                .enumerate()
                .for_each(|(i, v)| *v = bf16::from_f32(value(i))),
        }
        Operand(memory, math)
    }

    fn weights(n: usize, k: usize, math: Math) -> Operand {
        let len = if math == Math::F32 { packed_len_f32(n, k) } else { packed_len_bf16(n, k) };
        Operand::new(len, math)
    }

    fn src(&self, stride: usize) -> Src<'_> {
        match self.1 {
            Math::F32 => Src::f32(self.0.as_slice(), stride),
            Math::Bf16 => Src::bf16(self.0.as_slice(), stride),
        }
    }

    fn packed(&self) -> Packed<'_> {
        match self.1 {
            Math::F32 => Packed::F32(self.0.as_slice()),
            Math::Bf16 => Packed::Bf16(self.0.as_slice()),
        }
    }

    fn dst(&mut self, stride: usize) -> Dst<'_> {
        match self.1 {
            Math::F32 => Dst::f32(self.0.as_mut_slice(), stride),
            Math::Bf16 => Dst::bf16(self.0.as_mut_slice(), stride),
        }
    }
}

fn measure(
    c: &mut Criterion,
    name: &str,
    flops: usize,
    scratch: usize,
    run: &mut (dyn FnMut(&mut Ctx) + Send),
) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    let mut memory = Aligned::zeroed(Ctx::scratch_len(threads, scratch));
    let mut group = c.benchmark_group("cpu");
    group
        .throughput(Throughput::Elements(flops as u64))
        .sample_size(10)
        .measurement_time(Duration::from_secs(2));
    group.bench_function(name, |b| {
        b.iter(|| {
            let memory = memory.as_mut_slice();
            pool.install(|| run(&mut Ctx::new(Isa::best(), threads, memory)));
        });
    });
    group.finish();
}

fn gemms(c: &mut Criterion) {
    for math in [Math::Bf16, Math::F32] {
        for (m, k, n) in [(2048, 1024, 3072), (2048, 1024, 1024)] {
            let (a, b, bias) = (Operand::new(m * k, math), Operand::weights(n, k, math), vec![0.1; n]);
            let mut out = Operand::new(m * n, math);
            measure(
                c,
                &format!("gemm {m}x{k}x{n} {math:?}"),
                2 * m * k * n,
                gemm_scratch_bytes(k, math),
                &mut |ctx| {
                    let (a, b, out) = (a.src(k), b.packed(), out.dst(n));
                    let plain = Gemm {
                        m,
                        n,
                        k,
                        a,
                        norm: None,
                        pre_relu: false,
                        b,
                        bias: Some(&bias),
                        act: Act::None,
                        residual: [None; 2],
                        out,
                    };
                    gemm(ctx, plain);
                },
            );
        }
        let (m, k, hidden) = (2048, 1024, 4096);
        let (a, w1, w2) = (
            Operand::new(m * k, Math::F32),
            Operand::weights(hidden, k, math),
            Operand::weights(k, hidden, math),
        );
        let (bias1, bias2, mut out) = (vec![0.1; hidden], vec![0.1; k], Operand::new(m * k, Math::F32));
        measure(
            c,
            &format!("mlp {m}x{k}x{hidden} {math:?}"),
            4 * m * k * hidden,
            mlp_scratch_bytes(k, hidden, math),
            &mut |ctx| {
                let (x, w1, w2, out) = (a.src(k), w1.packed(), w2.packed(), out.dst(k));
                let (bias1, bias2, residual) = (Some(&bias1[..]), Some(&bias2[..]), [Some(x), None]);
                mlp(
                    ctx,
                    Mlp { m, k, hidden, n: k, a: x, norm: Some(1e-6), w1, bias1, w2, bias2, residual, out },
                );
            },
        );
    }
}

fn attentions(c: &mut Criterion) {
    let (batch, n, heads, d) = (2, 1024, 16, 64);
    let width = heads * d;
    for math in [Math::Bf16, Math::F32] {
        let (qkv, mut out) =
            (Operand::new(batch * n * 3 * width, math), Operand::new(batch * n * width, math));
        let flops = 4 * batch * heads * n * n * d;
        measure(
            c,
            &format!("attention {batch}x{n}x{heads}x{d} {math:?}"),
            flops,
            attention_scratch_bytes(d, n, math),
            &mut |ctx| {
                let part = |i: usize| Heads {
                    src: qkv.src(3 * width),
                    batch_stride: n * 3 * width,
                    offset: i * width,
                };
                let (q, k, v, out) = (part(0), part(1), part(2), out.dst(width));
                attention(
                    ctx,
                    Attention {
                        batch,
                        heads,
                        d,
                        nq: n,
                        nk: n,
                        q,
                        k,
                        v,
                        q_rope: None,
                        k_rope: None,
                        scale: 0.125,
                        math,
                        out,
                    },
                );
            },
        );
    }
}

fn convolutions(c: &mut Criterion) {
    for math in [Math::Bf16, Math::F32] {
        for (side, cin, cout, upsample2, few) in
            [(128, 256, 256, false, 0), (128, 256, 128, true, 0), (256, 128, 128, true, 4)]
        {
            let shape = ConvShape { batch: 1, h: side, w: side, cin, cout, stride: 1, upsample2 };
            let (ho, wo) = shape.out();
            let channels = if few > 0 { few } else { cout };
            let (x, b) =
                (Operand::new(side * side * cin, math), Operand::weights(cout, conv3x3_k(cin), math));
            let (bias, w, mut out) =
                (vec![0.1; cout], vec![0.1; 4 * cout], Operand::new(ho * wo * channels, Math::F32));
            let name = format!(
                "conv3x3 {cin}->{cout} {ho}x{wo}{} {math:?}",
                if upsample2 { " upsampled" } else { "" }
            );
            measure(
                c,
                &name,
                18 * ho * wo * cin * cout,
                conv3x3_scratch_bytes(&shape, math, few),
                &mut |ctx| {
                    let pointwise = (few > 0).then_some(Pointwise { n: few, w: &w, bias: None });
                    let (x, b, out) = (x.src(cin), b.packed(), out.dst(channels));
                    let call = Conv3x3 {
                        shape,
                        pre_relu: false,
                        x,
                        b,
                        bias: Some(&bias),
                        act: Act::Relu,
                        residual: [None; 2],
                        pointwise,
                        out,
                    };
                    conv3x3(ctx, call);
                },
            );
        }
    }
}

criterion_group!(kernels, gemms, attentions, convolutions);
criterion_main!(kernels);
