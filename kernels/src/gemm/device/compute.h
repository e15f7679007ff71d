#include "args.h"
// MATH_FIDELITY_OF_PRODUCTS, a `MathFidelity`, is the build's: all three TRISCs need it, MATH_FIDELITY only two have.
static void run_gemm(Step step) {
    Share share(step);
    uint32_t kt = ARG(step, GEMM_K), act = ARG(step, GEMM_ACT);
    bool bias = ARG(step, GEMM_BIAS);
    compute_kernel_hw_startup<SrcOrder::Reverse>(CB_A, CB_B, CB_OUT);
    for (uint32_t item = share.first; item < share.end; item++) {
        GemmItem at(step, item);
        if (at.opens(share, item)) cb_wait_front(CB_A, kt);
        tile_regs_acquire();
        if (bias) {
            cb_wait_front(CB_BIAS, GROUP);
            copy_from<CB_BIAS>();
            for (uint32_t i = 0; i < at.columns; i++) copy_tile(CB_BIAS, i, i);
            cb_pop_front(CB_BIAS, GROUP);
        }
        product_init<CB_A, CB_B, MATH_FIDELITY_OF_PRODUCTS>(at.columns);
        for (uint32_t k = 0; k < kt; k++) {
            cb_wait_front(CB_B, GROUP);
            product<CB_A, CB_B, MATH_FIDELITY_OF_PRODUCTS>(k, 0, 0, at.columns);
            cb_pop_front(CB_B, GROUP);
        }
        activate(act, at.columns);
        for (uint32_t r = 0; r < ARG(step, GEMM_RESIDUALS); r++) add_residual(at.columns);
        if (at.closes(step, share, item)) cb_pop_front(CB_A, kt);
        if (ARG(step, GEMM_OUT_F32)) {
            emit<CB_OUT_F32>(at.columns, GROUP);
        } else {
            emit<CB_OUT>(at.columns, GROUP);
        }
    }
}
