#include "args.h"
static void run_gemm(Step step) {
    Share share(step);
    uint32_t kt = ARG(step, GEMM_K), nt = ARG(step, GEMM_N), bias = ARG(step, GEMM_BIAS);
    for (uint32_t item = share.first; item < share.end; item++) {
        GemmItem at(step, item);
        uint32_t column = at.group * GROUP;
        if (at.opens(share, item)) read_tiles(CB_A, ARG(step, GEMM_X), ARG(step, GEMM_X_TILE) + at.row * kt, kt, 2048, kt);
        if (bias) read_tiles(CB_BIAS, bias, column, at.columns, 4096, GROUP);
        for (uint32_t k = 0; k < kt; k++) read_tiles(CB_B, ARG(step, GEMM_W), k * nt + column, at.columns, 2048, GROUP);
        for (uint32_t r = 0; r < ARG(step, GEMM_RESIDUALS); r++) {
            uint32_t first = ARG(step, GEMM_RESIDUAL + 2 * r + 1) + at.row * nt + column;
            read_tiles(CB_RESIDUAL, ARG(step, GEMM_RESIDUAL + 2 * r), first, at.columns, 4096, GROUP);
        }
    }
}
