#include "args.h"
static void run_gemm(Step step) {
    Share share(step);
    bool f32 = ARG(step, GEMM_OUT_F32);
    for (uint32_t item = share.first; item < share.end; item++) {
        GemmItem at(step, item);
        uint32_t first = ARG(step, GEMM_OUT_TILE) + at.row * ARG(step, GEMM_N) + at.group * GROUP;
        write_tiles(f32 ? CB_OUT_F32 : CB_OUT, ARG(step, GEMM_OUT), first, at.columns, f32 ? 4096 : 2048, GROUP);
    }
}
