// Building blocks of the compute halves. Dst holds 8 tiles in fp32 (DstSync::SyncFull): results in 0..3, operands in 4..7.
#pragma once

#include "cbs.h"

// Before `copy_tile` from this buffer to Dst.
template <uint32_t cb>
static inline void copy_from() {
    reconfig_data_format_srca(cb);
    copy_init(cb);
}

// Dst[0..ct) += in0[tile0] * in1[tile1..tile1 + ct), at its own fidelity.
template <uint32_t in0, uint32_t in1, MathFidelity fidelity>
static inline void product_init(uint32_t ct, uint32_t transpose = 0) {
    reconfig_data_format(in1, in0);
    UNPACK((llk_unpack_AB_matmul_init(in0, in1, transpose, ct, 1, 1)));
    MATH((llk_math_matmul_init<fidelity, 0>(in0, in1, transpose, ct, 1)));
}

template <uint32_t in0, uint32_t in1, MathFidelity fidelity>
static inline void product(uint32_t tile0, uint32_t tile1, uint32_t slot, uint32_t ct) {
    UNPACK((llk_unpack_AB_matmul(in0, in1, tile0, tile1, ct, 1, 1)));
    MATH((llk_math_matmul<fidelity, 0>(slot, ct, 1)));
}

// Hands Dst[0..n) to the packer and appends it to a buffer as a block of `pages`.
template <uint32_t cb>
static inline void emit(uint32_t n, uint32_t pages) {
    tile_regs_commit();
    tile_regs_wait();
    cb_reserve_back(cb, pages);
    pack_reconfig_data_format(cb);
    for (uint32_t i = 0; i < n; i++) pack_tile(i, cb);
    cb_push_back(cb, pages);
    tile_regs_release();
}

// GELU by its definition, x/2 + |x|/2 erf(|x|/sqrt 2). The second term is even: x^2 times a polynomial in x^2 up to |x| = 4
// (minimax, 1.4e-5), and |x|/2 beyond (1.3e-4 at most). Exact at 0.
#ifdef TRISC_MATH
namespace ckernel::sfpu {
template <int ITERATIONS>
inline void gelu_rows() {
    for (int d = 0; d < ITERATIONS; d++) {
        sfpi::vFloat x = sfpi::dst_reg[0];
        sfpi::vFloat a = sfpi::abs(x);
        sfpi::vFloat u = x * x;
        sfpi::vFloat p = 6.740326353e-11f;
        p = p * u + -6.066859015e-09f;
        p = p * u + 2.440831395e-07f;
        p = p * u + -5.860578767e-06f;
        p = p * u + 9.494005644e-05f;
        p = p * u + -1.112855040e-03f;
        p = p * u + 9.815798141e-03f;
        p = p * u + -6.632362306e-02f;
        p = p * u + 3.988810182e-01f;
        p = p * u;
        v_if(a >= 4.0f) { p = a * 0.5f; }
        v_endif;
        sfpi::dst_reg[0] = x * 0.5f + p;
        sfpi::dst_reg++;
    }
}
}  // namespace ckernel::sfpu
#endif
static inline void gelu(uint32_t slot) {
    MATH((SFPU_UNARY_CALL(DST_SYNC_MODE, DST_ACCUM_MODE, gelu_rows, (8), slot, VectorMode::RC)));
}

// Applies an activation to Dst[0..n): 0 none, 1 ReLU, 2 GELU.
static inline void activate(uint32_t act, uint32_t n) {
    if (act == 0) return;
    relu_tile_init();
    for (uint32_t i = 0; i < n; i++) {
        if (act == 1) relu_tile(i);
        if (act == 2) gelu(i);
    }
}

// Dst[0..n) += the next n tiles of CB_RESIDUAL, in f32.
static inline void add_residual(uint32_t n) {
    cb_wait_front(CB_RESIDUAL, GROUP);
    copy_from<CB_RESIDUAL>();
    for (uint32_t i = 0; i < n; i++) copy_tile(CB_RESIDUAL, i, GROUP + i);
    add_binary_tile_init();
    for (uint32_t i = 0; i < n; i++) add_binary_tile(i, GROUP + i, i);
    cb_pop_front(CB_RESIDUAL, GROUP);
}
