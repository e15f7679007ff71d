//! Row-wise, element-wise and rearranging functions against f64.

mod cpu_support;

use cpu_support::*;
use half::bf16;
use ttc_kernels::cpu::*;

const PAIRS: [(Math, Math); 4] =
    [(Math::F32, Math::F32), (Math::Bf16, Math::F32), (Math::F32, Math::Bf16), (Math::Bf16, Math::Bf16)];

const SHAPES: [(usize, usize); 6] = [(1, 1), (1, 5), (3, 16), (7, 33), (50, 128), (401, 47)];

#[test]
fn layer_norm_matches_f64() {
    for (rows, cols) in [(1, 2), (3, 16), (7, 33), (50, 128), (401, 47)] {
        for (ty, out) in PAIRS {
            let x = Mat::random(1, rows, cols, ty, false);
            let (gamma, beta) = (numbers(2, cols), numbers(3, cols));
            for affine in [false, true] {
                let (gamma, beta) = (affine.then_some(&gamma[..]), affine.then_some(&beta[..]));
                let mut expected = vec![];
                for r in 0..rows {
                    let row: Vec<f64> = (0..cols).map(|c| x.at(r, c)).collect();
                    for (c, v) in normalised(&row, f64::from(1e-6f32)).into_iter().enumerate() {
                        let scaled = v * gamma.map_or(1.0, |g| f64::from(g[c]));
                        expected.push(scaled + beta.map_or(0.0, |b| f64::from(b[c])));
                    }
                }
                check(
                    &format!("layer_norm {rows}x{cols} {ty:?} {out:?}"),
                    limit(Math::F32, out, false),
                    0,
                    &Mat::empty(rows, cols, out),
                    &expected,
                    &|ctx, out| {
                        layer_norm(ctx, LayerNorm { rows, cols, x: x.src(), gamma, beta, eps: 1e-6, out });
                    },
                );
            }
        }
    }
}

/// A large mean leaves the variance its digits: it is taken around the mean.
#[test]
fn layer_norm_of_a_distant_mean() {
    let (rows, cols) = (3, 257);
    let values: Vec<f32> = numbers(1, rows * cols).into_iter().map(|v| 1000.0 + v).collect();
    let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
    let expected: Vec<f64> = wide.chunks(cols).flat_map(|row| normalised(row, f64::from(1e-6f32))).collect();
    // The mean itself is only known to 1000 * 2^-24, 1e-4 of the deviation.
    check("distant mean", 2e-4, 0, &Mat::empty(rows, cols, Math::F32), &expected, &|ctx, out| {
        let x = Src::f32(&values, cols);
        layer_norm(ctx, LayerNorm { rows, cols, x, gamma: None, beta: None, eps: 1e-6, out });
    });
}

#[test]
fn element_wise_functions_match_f64() {
    for (rows, cols) in SHAPES {
        for (ty, out) in PAIRS {
            let (a, b) =
                (Mat::random(1, rows, cols, ty, false), Mat::random(2, rows, cols, Math::Bf16, true));
            let what = |name: &str| format!("{name} {rows}x{cols} {ty:?} {out:?}");
            let (empty, limit) = (Mat::empty(rows, cols, out), limit(Math::F32, out, false));
            let sums: Vec<f64> = a.values().iter().zip(b.values()).map(|(a, b)| a + b).collect();
            check(&what("add"), limit, 0, &empty, &sums, &|ctx, out| {
                add(ctx, rows, cols, a.src(), b.src(), out);
            });
            let by = |how: Act| a.values().into_iter().map(|v| act(how, v)).collect::<Vec<f64>>();
            check(&what("relu"), limit, 0, &empty, &by(Act::Relu), &|ctx, out| {
                relu(ctx, rows, cols, a.src(), out);
            });
            check(&what("gelu"), limit, 0, &empty, &by(Act::Gelu), &|ctx, out| {
                gelu(ctx, rows, cols, a.src(), out);
            });
            check(&what("copy"), limit, 0, &empty, &by(Act::None), &|ctx, out| {
                activate(ctx, rows, cols, Act::None, a.src(), out);
            });
        }
    }
}

/// Absolute, over the whole range: the relative error of a GELU far below zero has no meaning for what follows.
#[test]
fn gelu_is_accurate_everywhere() {
    let n = 20_001;
    let x: Vec<f32> = (0..n).map(|i| (i as f32 - 10_000.0) * 1e-3).collect();
    for isa in Isa::available() {
        let mut y = vec![0f32; n];
        gelu(&mut Ctx::new(isa, 1, &mut []), 1, n, Src::f32(&x, n), Dst::f32(&mut y, n));
        for (x, y) in x.iter().zip(&y) {
            let error = (f64::from(*y) - act(Act::Gelu, f64::from(*x))).abs();
            assert!(error <= 1e-7 + 3e-7 * f64::from(x.abs()), "{isa}: gelu({x}) is off by {error:e}");
        }
    }
}

/// Rounding to bf16 is to nearest even on every instruction set; infinities, NaN and overflow survive.
#[test]
fn conversion_to_bf16_rounds_like_half() {
    let mut x: Vec<f32> = numbers(1, 1000).into_iter().map(|v| v * 1e3).collect();
    x.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1.003_906_2, 1.011_718_8]);
    x.extend([f32::NAN, -f32::NAN]);
    let n = x.len();
    for isa in Isa::available() {
        let mut y = vec![bf16::ZERO; n];
        activate(&mut Ctx::new(isa, 1, &mut []), 1, n, Act::None, Src::f32(&x, n), Dst::bf16(&mut y, n));
        for (x, y) in x.iter().zip(&y) {
            let expected = bf16::from_f32(*x);
            assert!(*y == expected || (y.is_nan() && x.is_nan()), "{isa}: {x} became {y}");
        }
    }
}

#[test]
fn points_and_confidence_match_f64() {
    for n in [1, 5, 700] {
        for (ty, out) in PAIRS {
            let x = Mat::random(1, n, 4, ty, false);
            let mut expected = vec![];
            for r in 0..n {
                let v = [0, 1, 2].map(|c| x.at(r, c));
                let d = v.iter().map(|v| v * v).sum::<f64>().sqrt();
                expected.extend(v.map(|v| v / d.max(1e-8) * d.exp_m1()));
            }
            let limit = limit(Math::F32, out, false);
            check(&format!("points {n} {ty:?}"), limit, 0, &Mat::empty(n, 3, out), &expected, &|ctx, out| {
                points(ctx, n, x.src(), out);
            });
            for floor in [0.0f32, 1.0] {
                let expected: Vec<f64> = (0..n).map(|r| f64::from(floor) + x.at(r, 3).exp()).collect();
                let what = format!("confidence {n} {ty:?} from {floor}");
                check(&what, limit, 0, &Mat::empty(n, 1, out), &expected, &|ctx, out| {
                    confidence(ctx, n, 3, floor, x.src(), out);
                });
            }
        }
    }
    // The point at the origin.
    let mut out = [f32::NAN; 3];
    points(&mut Ctx::new(Isa::best(), 1, &mut []), 1, Src::f32(&[0.0; 3], 3), Dst::f32(&mut out, 3));
    assert_eq!(out, [0.0; 3]);
}

#[test]
fn descriptors_match_f64() {
    for (n, start, len) in [(1, 0, 1), (7, 4, 24), (300, 1, 3)] {
        for (ty, out) in PAIRS {
            let x = Mat::random(1, n, start + len + 1, ty, false);
            let mut expected = vec![];
            for r in 0..n {
                let norm = (0..len).map(|c| x.at(r, start + c).powi(2)).sum::<f64>().sqrt();
                expected.extend((0..len).map(|c| x.at(r, start + c) / norm));
            }
            let (what, limit) = (format!("descriptors {n}x{len}"), limit(Math::F32, out, false));
            check(&what, limit, 0, &Mat::empty(n, len, out), &expected, &|ctx, out| {
                descriptors(ctx, n, start, len, x.src(), out);
            });
        }
    }
}

#[test]
fn pixel_shuffle_moves_every_value() {
    for (batch, h, w, c, by) in [(1, 1, 1, 1, 1), (2, 3, 5, 3, 2), (1, 2, 3, 5, 4)] {
        for (ty, out) in [(Math::F32, Math::F32), (Math::Bf16, Math::Bf16)] {
            let x = Mat::random(1, batch * h * w, c * by * by, ty, true);
            let mut expected = vec![];
            for pixel in 0..batch * h * by * w * by {
                let (line, col) = (pixel / (w * by), pixel % (w * by));
                for ch in 0..c {
                    let channel = ch * by * by + line % by * by + col % by;
                    expected.push(x.at(line / by * w + col / by, channel));
                }
            }
            let what = format!("pixel_shuffle {batch}x{h}x{w}x{c} by {by}");
            let empty = Mat::empty(batch * h * by * w * by, c, out);
            check(&what, 0.0, 0, &empty, &expected, &|ctx, out| {
                pixel_shuffle(ctx, PixelShuffle { batch, h, w, c, by, x: x.src(), out });
            });
        }
    }
}
