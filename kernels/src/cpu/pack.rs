//! Packing of weights into panels, once, when a model is compiled.

use half::bf16;

use super::PANEL;

/// Elements of packed f32 weights for `n` results over `k`.
pub fn packed_len_f32(n: usize, k: usize) -> usize {
    n.div_ceil(PANEL) * PANEL * k
}

/// Elements of packed bf16 weights for `n` results over `k`.
pub fn packed_len_bf16(n: usize, k: usize) -> usize {
    n.div_ceil(PANEL) * PANEL * k.next_multiple_of(2)
}

/// w: `[n, k]` row-major (a Linear's own layout, or a patch convolution's `[n, c * p * p]`).
pub fn pack_f32(w: &[f32], n: usize, k: usize, out: &mut [f32]) {
    assert_eq!(w.len(), n * k);
    pack_f32_with(n, k, out, |row, col| w[row * k + col]);
}

/// w: `[n, k]` row-major; rounds to nearest even.
pub fn pack_bf16(w: &[f32], n: usize, k: usize, out: &mut [bf16]) {
    assert_eq!(w.len(), n * k);
    pack_bf16_with(n, k, out, |row, col| w[row * k + col]);
}

/// The contracted length of a 3x3 convolution's packed weights: nine taps of `cin`, each padded to even so that
/// a pair of bf16 never straddles two taps (f32 weights take the same padding).
pub fn conv3x3_k(cin: usize) -> usize {
    9 * cin.next_multiple_of(2)
}

/// w: `[cout, cin, 3, 3]`; packed over `(ky, kx, cin)`, length `packed_len_f32(cout, conv3x3_k(cin))`.
pub fn pack_conv3x3_f32(w: &[f32], cout: usize, cin: usize, out: &mut [f32]) {
    assert_eq!(w.len(), cout * cin * 9);
    pack_f32_with(cout, conv3x3_k(cin), out, |o, col| conv3x3_at(w, cin, o, col));
}

/// w: `[cout, cin, 3, 3]`; packed over `(ky, kx, cin)`, length `packed_len_bf16(cout, conv3x3_k(cin))`.
pub fn pack_conv3x3_bf16(w: &[f32], cout: usize, cin: usize, out: &mut [bf16]) {
    assert_eq!(w.len(), cout * cin * 9);
    pack_bf16_with(cout, conv3x3_k(cin), out, |o, col| conv3x3_at(w, cin, o, col));
}

fn conv3x3_at(w: &[f32], cin: usize, o: usize, col: usize) -> f32 {
    let padded = cin.next_multiple_of(2);
    let (tap, c) = (col / padded, col % padded);
    if c < cin { w[(o * cin + c) * 9 + tap] } else { 0.0 }
}

/// The number of results of a packed transposed convolution: `s * s` taps, each padded to whole panels so that a
/// panel belongs to one tap.
pub fn conv_transpose_n(cout: usize, s: usize) -> usize {
    s * s * cout.next_multiple_of(PANEL)
}

/// w: `[cin, cout, s, s]`; packed `[(dy, dx, cout), cin]`, length `packed_len_f32(conv_transpose_n(cout, s), cin)`.
pub fn pack_conv_transpose_f32(w: &[f32], cin: usize, cout: usize, s: usize, out: &mut [f32]) {
    assert_eq!(w.len(), cin * cout * s * s);
    pack_f32_with(conv_transpose_n(cout, s), cin, out, |row, c| conv_transpose_at(w, cout, s, row, c));
}

/// w: `[cin, cout, s, s]`; packed `[(dy, dx, cout), cin]`, length `packed_len_bf16(conv_transpose_n(cout, s), cin)`.
pub fn pack_conv_transpose_bf16(w: &[f32], cin: usize, cout: usize, s: usize, out: &mut [bf16]) {
    assert_eq!(w.len(), cin * cout * s * s);
    pack_bf16_with(conv_transpose_n(cout, s), cin, out, |row, c| conv_transpose_at(w, cout, s, row, c));
}

fn conv_transpose_at(w: &[f32], cout: usize, s: usize, row: usize, c: usize) -> f32 {
    let padded = cout.next_multiple_of(PANEL);
    let (tap, o) = (row / padded, row % padded);
    if o < cout { w[(c * cout + o) * s * s + tap] } else { 0.0 }
}

fn pack_f32_with(n: usize, k: usize, out: &mut [f32], at: impl Fn(usize, usize) -> f32) {
    assert_eq!(out.len(), packed_len_f32(n, k));
    if k == 0 {
        return;
    }
    for (p, panel) in out.chunks_exact_mut(k * PANEL).enumerate() {
        for (j, row) in (p * PANEL..(p + 1) * PANEL).enumerate() {
            for col in 0..k {
                panel[col * PANEL + j] = if row < n { at(row, col) } else { 0.0 };
            }
        }
    }
}

fn pack_bf16_with(n: usize, k: usize, out: &mut [bf16], at: impl Fn(usize, usize) -> f32) {
    assert_eq!(out.len(), packed_len_bf16(n, k));
    let padded = k.next_multiple_of(2);
    if k == 0 {
        return;
    }
    for (p, panel) in out.chunks_exact_mut(padded * PANEL).enumerate() {
        for (j, row) in (p * PANEL..(p + 1) * PANEL).enumerate() {
            for col in 0..padded {
                let w = if row < n && col < k { at(row, col) } else { 0.0 };
                panel[(col / 2 * PANEL + j) * 2 + col % 2] = bf16::from_f32(w);
            }
        }
    }
}
