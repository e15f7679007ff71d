//! The 3x3 convolution and the bilinear doubling against f64.

mod cpu_support;

use cpu_support::*;
use ttc_kernels::cpu::*;

/// `[batch, h, w, c]` in f64.
struct Map {
    h: usize,
    w: usize,
    c: usize,
    data: Vec<f64>,
}

impl Map {
    fn at(&self, image: usize, y: usize, x: usize, c: usize) -> f64 {
        self.data[((image * self.h + y) * self.w + x) * self.c + c]
    }

    fn doubled(&self, batch: usize) -> Map {
        let tap = |i: usize, n: usize| {
            let at = if n == 1 { 0.0 } else { i as f64 * (n - 1) as f64 / (2 * n - 1) as f64 };
            let from = (at.floor() as usize).min(n - 1);
            (from, (from + 1).min(n - 1), at - from as f64)
        };
        let mut data = vec![];
        for image in 0..batch {
            for y in 0..2 * self.h {
                for x in 0..2 * self.w {
                    let ((y0, y1, fy), (x0, x1, fx)) = (tap(y, self.h), tap(x, self.w));
                    for c in 0..self.c {
                        let row = |y| self.at(image, y, x0, c) * (1.0 - fx) + self.at(image, y, x1, c) * fx;
                        data.push(row(y0) * (1.0 - fy) + row(y1) * fy);
                    }
                }
            }
        }
        Map { h: 2 * self.h, w: 2 * self.w, c: self.c, data }
    }

    /// w: `[cout, c, 3, 3]`.
    fn convolved(&self, batch: usize, w: &[f32], bias: Option<&[f32]>, cout: usize, stride: usize) -> Map {
        let (ho, wo) = (self.h.div_ceil(stride), self.w.div_ceil(stride));
        let mut data = vec![];
        for i in 0..batch * ho * wo * cout {
            let (o, x, y, image) = (i % cout, i / cout % wo, i / (cout * wo) % ho, i / (cout * wo * ho));
            let mut sum = bias.map_or(0.0, |b| f64::from(b[o]));
            for tap in 0..9 {
                let (y, x) = (y * stride + tap / 3, x * stride + tap % 3);
                if (1..=self.h).contains(&y) && (1..=self.w).contains(&x) {
                    for c in 0..self.c {
                        let weight = f64::from(w[(o * self.c + c) * 9 + tap]);
                        sum += self.at(image, y - 1, x - 1, c) * weight;
                    }
                }
            }
            data.push(sum);
        }
        Map { h: ho, w: wo, c: cout, data }
    }
}

#[derive(Clone, Copy, Debug)]
struct With {
    pre_relu: bool,
    bias: bool,
    act: Act,
    residuals: usize,
    pointwise: usize,
}

const PLAIN: With = With { pre_relu: false, bias: true, act: Act::None, residuals: 0, pointwise: 0 };

/// Weights `[cout, cin, 3, 3]` as they are and packed.
fn weights(math: Math, cin: usize, cout: usize) -> (Vec<f32>, Weights) {
    let v = numbers_for(math, 2, cout * cin * 9);
    let k = conv3x3_k(cin);
    let packed = Weights::new(
        math,
        (packed_len_f32(cout, k), packed_len_bf16(cout, k)),
        |o| pack_conv3x3_f32(&v, cout, cin, o),
        |o| pack_conv3x3_bf16(&v, cout, cin, o),
    );
    (v, packed)
}

fn one(shape: ConvShape, (ty, math, out_ty): (Math, Math, Math), with: With) {
    let ConvShape { batch, h, w, cin, cout, stride, upsample2 } = shape;
    let x = Mat::random(1, batch * h * w, cin, ty, math == Math::Bf16);
    let (v, b) = weights(math, cin, cout);
    let bias = numbers(3, cout);
    let bias = with.bias.then_some(&bias[..]);
    let mut map = Map { h, w, c: cin, data: x.values() };
    if upsample2 {
        map = map.doubled(batch);
    }
    if with.pre_relu {
        map.data.iter_mut().for_each(|v| *v = v.max(0.0));
    }
    let mut wide = map.convolved(batch, &v, bias, cout, stride);
    let (ho, wo) = shape.out();
    assert_eq!((wide.h, wide.w), (ho, wo));
    let pixels = batch * ho * wo;
    let extra =
        [Mat::random(4, pixels, cout, Math::F32, false), Mat::random(5, pixels, cout, Math::Bf16, true)];
    let used: Vec<&Mat> = extra.iter().take(with.residuals).collect();
    for (i, v) in wide.data.iter_mut().enumerate() {
        *v = act(with.act, *v) + used.iter().map(|r| r.at(i / cout, i % cout)).sum::<f64>();
    }
    let (n, few) = (with.pointwise, numbers(6, with.pointwise * cout));
    let few_bias = numbers(7, n);
    let (channels, expected) = if n > 0 {
        (n, product(&wide.data, &few, Some(&few_bias), (pixels, cout, n)))
    } else {
        (cout, wide.data)
    };
    // A doubled map is rounded to the type of the products; a 1x1 adds up what may cancel.
    let deep = upsample2 || n > 0 || with.act == Act::Gelu;
    check(
        &format!("{shape:?}, {ty:?} by {math:?} to {out_ty:?}, {with:?}"),
        limit(math, out_ty, deep),
        conv3x3_scratch_bytes(&shape, math, n),
        &Mat::empty(pixels, channels, out_ty),
        &expected,
        &|ctx, out| {
            let pointwise = (n > 0).then_some(Pointwise { n, w: &few, bias: Some(&few_bias) });
            let residual = [used.first().map(|r| r.src()), used.get(1).map(|r| r.src())];
            let (x, b, With { pre_relu, act, .. }) = (x.src(), b.packed(), with);
            conv3x3(ctx, Conv3x3 { shape, pre_relu, x, b, bias, act, residual, pointwise, out });
        },
    );
}

#[test]
fn conv3x3_matches_f64() {
    for (batch, h, w, cin, cout) in [(1, 1, 1, 1, 1), (2, 3, 5, 3, 5), (1, 9, 13, 8, 33), (1, 2, 30, 17, 70)]
    {
        for stride in [1, 2] {
            for upsample2 in [false, true] {
                let shape = ConvShape { batch, h, w, cin, cout, stride, upsample2 };
                for types in TYPES {
                    for with in [
                        PLAIN,
                        With { bias: false, pre_relu: true, act: Act::Relu, ..PLAIN },
                        With { act: Act::Gelu, residuals: 2, ..PLAIN },
                        With { pre_relu: true, residuals: 1, ..PLAIN },
                        With { act: Act::Relu, pointwise: 4, ..PLAIN },
                        With { act: Act::None, pointwise: 1, ..PLAIN },
                    ] {
                        one(shape, types, with);
                    }
                }
            }
        }
    }
}

/// Adjacent pixels are copied as one row; the other tests have gaps.
#[test]
fn adjacent_pixels() {
    for math in [Math::F32, Math::Bf16] {
        let (h, w, cin, cout) = (5, 9, 6, 4);
        let x = round_numbers(1, h * w * cin);
        let (v, b) = weights(math, cin, cout);
        let map = Map { h, w, c: cin, data: x.iter().map(|v| f64::from(*v)).collect() };
        let shape = ConvShape { batch: 1, h, w, cin, cout, stride: 1, upsample2: false };
        check(
            &format!("adjacent pixels {math:?}"),
            limit(math, Math::F32, false),
            conv3x3_scratch_bytes(&shape, math, 0),
            &Mat::empty(h * w, cout, Math::F32),
            &map.convolved(1, &v, None, cout, 1).data,
            &|ctx, out| {
                let (x, b, residual) = (Src::f32(&x, cin), b.packed(), [None; 2]);
                let (pre_relu, bias, act, pointwise) = (false, None, Act::None, None);
                conv3x3(ctx, Conv3x3 { shape, pre_relu, x, b, bias, act, residual, pointwise, out });
            },
        );
    }
}

#[test]
fn upsample2_matches_f64() {
    for (batch, h, w, c) in [(1, 1, 1, 1), (2, 3, 5, 7), (1, 1, 9, 33), (1, 6, 1, 16), (1, 16, 17, 40)] {
        for (ty, out) in [(Math::F32, Math::F32), (Math::Bf16, Math::F32), (Math::F32, Math::Bf16)] {
            let x = Mat::random(1, batch * h * w, c, ty, false);
            let map = Map { h, w, c, data: x.values() };
            check(
                &format!("upsample2 {batch}x{h}x{w}x{c} {ty:?} {out:?}"),
                limit(Math::F32, out, false),
                upsample2_scratch_bytes(w, c),
                &Mat::empty(batch * 4 * h * w, c, out),
                &map.doubled(batch).data,
                &|ctx, out| upsample2(ctx, Upsample2 { batch, h, w, c, x: x.src(), out }),
            );
        }
    }
}
