//! Products over rows against f64: matrix product, perceptron, transposed convolution, patch embedding; and packing.

mod cpu_support;

use cpu_support::*;
use half::bf16;
use ttc_kernels::cpu::*;

/// What a product does besides multiplying.
#[derive(Clone, Copy, Debug)]
struct With {
    norm: Option<f32>,
    pre_relu: bool,
    bias: bool,
    act: Act,
    residuals: usize,
}

const PLAIN: With = With { norm: None, pre_relu: false, bias: false, act: Act::None, residuals: 0 };
const ALL: [With; 6] = [
    PLAIN,
    With { bias: true, act: Act::Gelu, ..PLAIN },
    With { pre_relu: true, residuals: 1, ..PLAIN },
    With { norm: Some(1e-6), bias: true, ..PLAIN },
    With { act: Act::Relu, residuals: 2, ..PLAIN },
    With { norm: Some(1e-6), pre_relu: true, bias: true, act: Act::Gelu, residuals: 2 },
];

fn rows(a: &Mat, norm: Option<f32>, pre_relu: bool) -> Vec<f64> {
    let one = |r: usize| {
        let mut x: Vec<f64> = (0..a.cols).map(|c| a.at(r, c)).collect();
        if let Some(eps) = norm {
            x = normalised(&x, f64::from(eps));
        }
        x.into_iter().map(move |v| if pre_relu { v.max(0.0) } else { v })
    };
    (0..a.rows).flat_map(one).collect()
}

fn finished(mut x: Vec<f64>, how: Act, residual: &[&Mat]) -> Vec<f64> {
    for (i, v) in x.iter_mut().enumerate() {
        *v = act(how, *v) + residual.iter().map(|r| r.at(i / r.cols, i % r.cols)).sum::<f64>();
    }
    x
}

fn one_gemm(shape: (usize, usize, usize), types: (Math, Math, Math), with: With) {
    let deep = with.norm.is_some() || with.act == Act::Gelu;
    gemm_within(limit(types.1, types.2, deep), shape, types, with);
}

fn gemm_within(
    limit: f64,
    (m, k, n): (usize, usize, usize),
    (ty, math, out): (Math, Math, Math),
    with: With,
) {
    let a = Mat::random(1, m, k, ty, math == Math::Bf16);
    let w = numbers_for(math, 2, n * k);
    let (b, bias) = (linear(&w, n, k, math), numbers(3, n));
    let bias = with.bias.then_some(&bias[..]);
    let extra = [Mat::random(4, m, n, Math::F32, false), Mat::random(5, m, n, Math::Bf16, true)];
    let used: Vec<&Mat> = extra.iter().take(with.residuals).collect();
    let x = rows(&a, with.norm, with.pre_relu);
    let expected = finished(product(&x, &w, bias, (m, k, n)), with.act, &used);
    let what = format!("gemm {m}x{k}x{n}, {ty:?} by {math:?} to {out:?}, {with:?}");
    check(&what, limit, gemm_scratch_bytes(k, math), &Mat::empty(m, n, out), &expected, &|ctx, out| {
        let residual = [used.first().map(|r| r.src()), used.get(1).map(|r| r.src())];
        let With { norm, pre_relu, act, .. } = with;
        gemm(ctx, Gemm { m, n, k, a: a.src(), norm, pre_relu, b: b.packed(), bias, act, residual, out });
    });
}

#[test]
fn gemm_matches_f64() {
    for shape in [(1, 3, 5), (2, 17, 32), (13, 31, 33), (25, 64, 96), (97, 130, 65), (5, 48, 300)] {
        for types in TYPES {
            for with in ALL {
                one_gemm(shape, types, with);
            }
        }
    }
    // One of each dimension; a norm of a single column is all zeros.
    for shape in [(1, 1, 1), (600, 2, 1), (3, 1, 70)] {
        for types in TYPES {
            one_gemm(shape, types, PLAIN);
        }
    }
}

/// The roundings of a sum in order grow with the square root of its length: 64 times 2^-24 in the mean, of a norm
/// that grows as fast, so somewhat more than for short sums.
#[test]
fn gemm_over_a_long_dimension() {
    for types in TYPES {
        gemm_within(limit(types.1, types.2, true), (14, 4097, 40), types, PLAIN);
    }
}

#[test]
fn empty_products_write_nothing_or_the_bias() {
    for math in [Math::F32, Math::Bf16] {
        one_gemm((0, 3, 5), (math, math, math), PLAIN);
        one_gemm((3, 5, 0), (math, math, math), PLAIN);
        one_gemm((3, 0, 5), (math, math, math), With { bias: true, ..PLAIN });
    }
}

#[test]
fn mlp_matches_f64() {
    for (m, k, hidden, n) in [(1, 3, 5, 1), (7, 16, 33, 20), (50, 33, 70, 20), (121, 40, 160, 40)] {
        for (ty, math, out) in TYPES {
            for (norm, residuals) in [(None, 0), (Some(1e-6), 1), (None, 2)] {
                let a = Mat::random(1, m, k, ty, math == Math::Bf16);
                let (v1, v2) = (numbers_for(math, 2, hidden * k), numbers_for(math, 3, n * hidden));
                let (w1, w2) = (linear(&v1, hidden, k, math), linear(&v2, n, hidden, math));
                let (b1, b2) = (numbers(4, hidden), numbers(5, n));
                let extra = [Mat::random(6, m, n, Math::F32, false), Mat::random(7, m, n, Math::Bf16, true)];
                let used: Vec<&Mat> = extra.iter().take(residuals).collect();
                let x = rows(&a, norm, false);
                let inner = finished(product(&x, &v1, Some(&b1), (m, k, hidden)), Act::Gelu, &[]);
                let expected = finished(product(&inner, &v2, Some(&b2), (m, hidden, n)), Act::None, &used);
                check(
                    &format!("mlp {m}x{k}x{hidden}x{n}, {ty:?} by {math:?} to {out:?}, {norm:?}"),
                    limit(math, out, true),
                    mlp_scratch_bytes(k, hidden, math),
                    &Mat::empty(m, n, out),
                    &expected,
                    &|ctx, out| {
                        let residual = [used.first().map(|r| r.src()), used.get(1).map(|r| r.src())];
                        let (a, w1, w2) = (a.src(), w1.packed(), w2.packed());
                        let (bias1, bias2) = (Some(&b1[..]), Some(&b2[..]));
                        mlp(ctx, Mlp { m, k, hidden, n, a, norm, w1, bias1, w2, bias2, residual, out });
                    },
                );
            }
        }
    }
}

#[test]
fn conv_transpose_matches_f64() {
    for (batch, h, w, cin, cout, s) in [(1, 1, 1, 1, 1, 2), (2, 3, 5, 7, 9, 2), (1, 4, 3, 5, 33, 4)] {
        for (ty, math, out) in TYPES {
            let x = Mat::random(1, batch * h * w, cin, ty, math == Math::Bf16);
            let v = numbers_for(math, 2, cin * cout * s * s);
            let n = conv_transpose_n(cout, s);
            let b = Weights::new(
                math,
                (packed_len_f32(n, cin), packed_len_bf16(n, cin)),
                |o| pack_conv_transpose_f32(&v, cin, cout, s, o),
                |o| pack_conv_transpose_bf16(&v, cin, cout, s, o),
            );
            let bias = numbers(3, cout);
            let mut expected = vec![];
            for pixel in 0..batch * h * s * w * s {
                let (line, col) = (pixel / (w * s), pixel % (w * s));
                let (cell, tap) = (line / s * w + col / s, line % s * s + col % s);
                for o in 0..cout {
                    let weight = |c: usize| f64::from(v[(c * cout + o) * s * s + tap]);
                    let dot: f64 = (0..cin).map(|c| x.at(cell, c) * weight(c)).sum();
                    expected.push(dot + f64::from(bias[o]));
                }
            }
            check(
                &format!("conv_transpose {batch}x{h}x{w}x{cin} to {cout} by {s}, {ty:?} {math:?} {out:?}"),
                limit(math, out, false),
                conv_transpose_scratch_bytes(cin, math),
                &Mat::empty(batch * h * s * w * s, cout, out),
                &expected,
                &|ctx, out| {
                    let (x, b, bias) = (x.src(), b.packed(), Some(&bias[..]));
                    conv_transpose(ctx, ConvTranspose { batch, h, w, cin, cout, s, x, b, bias, out });
                },
            );
        }
    }
}

#[test]
fn patch_embed_matches_f64() {
    for (batch, channels, gh, gw, p, n) in [(1, 1, 1, 1, 1, 1), (2, 3, 3, 5, 4, 33), (1, 3, 5, 11, 3, 5)] {
        let (h, w, k) = (gh * p, gw * p, channels * p * p);
        for (math, out) in [(Math::F32, Math::F32), (Math::Bf16, Math::F32), (Math::Bf16, Math::Bf16)] {
            let (image, v) =
                (round_numbers(1, batch * channels * h * w), numbers_for(math, 2, n * channels * p * p));
            let (b, bias) = (linear(&v, n, k, math), numbers(3, n));
            let mut x = vec![];
            for token in 0..batch * gh * gw {
                let (image_of, y, col) = (token / (gh * gw), token / gw % gh * p, token % gw * p);
                for i in 0..k {
                    let (c, dy, dx) = (i / (p * p), i / p % p, i % p);
                    x.push(f64::from(image[((image_of * channels + c) * h + y + dy) * w + col + dx]));
                }
            }
            check(
                &format!("patch_embed {batch}x{channels}x{h}x{w} by {p} to {n}, {math:?} {out:?}"),
                limit(math, out, false),
                patch_embed_scratch_bytes(channels, p, math),
                &Mat::empty(batch * gh * gw, n, out),
                &product(&x, &v, Some(&bias), (batch * gh * gw, k, n)),
                &|ctx, out| {
                    let (image, b, bias) = (&image[..], b.packed(), Some(&bias[..]));
                    patch_embed(ctx, PatchEmbed { batch, channels, h, w, p, n, image, b, bias, out });
                },
            );
        }
    }
}

/// The documented layouts, element by element, padding included.
#[test]
fn packing_follows_its_layout() {
    for (n, k) in [(1, 1), (5, 3), (32, 4), (70, 7)] {
        let w = numbers(1, n * k);
        let at = |row: usize, col: usize| if row < n && col < k { w[row * k + col] } else { 0.0 };
        let mut narrow = vec![f32::NAN; packed_len_f32(n, k)];
        pack_f32(&w, n, k, &mut narrow);
        for (i, v) in narrow.iter().enumerate() {
            let (panel, col, j) = (i / (k * PANEL), i / PANEL % k, i % PANEL);
            assert_eq!(*v, at(panel * PANEL + j, col), "f32 [{n}, {k}] element {i}");
        }
        let mut pairs = vec![bf16::NAN; packed_len_bf16(n, k)];
        pack_bf16(&w, n, k, &mut pairs);
        let even = k.next_multiple_of(2);
        for (i, v) in pairs.iter().enumerate() {
            let (panel, inside) = (i / (even * PANEL), i % (even * PANEL));
            let (col, j) = (inside / (2 * PANEL) * 2 + inside % 2, inside / 2 % PANEL);
            assert_eq!(*v, bf16::from_f32(at(panel * PANEL + j, col)), "bf16 [{n}, {k}] element {i}");
        }
    }
}

#[test]
#[should_panic(expected = "scratch per thread are needed")]
fn too_little_scratch_is_refused() {
    let (a, mut out) = (Mat::random(1, 4, 64, Math::F32, false), Mat::empty(4, 4, Math::F32));
    let b = linear(&numbers(2, 4 * 64), 4, 64, Math::F32);
    let mut ctx = Ctx::new(Isa::Portable, 1, &mut []);
    let (a, b, residual, out) = (a.src(), b.packed(), [None; 2], out.dst());
    let (norm, bias, act) = (None, None, Act::None);
    gemm(&mut ctx, Gemm { m: 4, n: 4, k: 64, a, norm, pre_relu: false, b, bias, act, residual, out });
}

#[test]
#[should_panic(expected = "gemm a")]
fn a_short_operand_is_refused() {
    let (a, mut out) = (Mat::random(1, 3, 8, Math::F32, false), Mat::empty(4, 4, Math::F32));
    let b = linear(&numbers(2, 32), 4, 8, Math::F32);
    let mut memory = Aligned::zeroed(1 << 20);
    let mut ctx = Ctx::new(Isa::Portable, 1, memory.as_mut_slice());
    let (a, b, residual, out) = (a.src(), b.packed(), [None; 2], out.dst());
    let (norm, bias, act) = (None, None, Act::None);
    gemm(&mut ctx, Gemm { m: 4, n: 4, k: 8, a, norm, pre_relu: false, b, bias, act, residual, out });
}
